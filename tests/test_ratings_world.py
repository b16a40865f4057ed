"""The semi-synthetic world of the exposure study: real ratings decide who likes what."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl

USERS, ITEMS = 120, 60
EVERYONE, EVERYTHING = (each.ravel() for each in np.indices((USERS, ITEMS)))


def ratings() -> tl.Dataset:
    """Two kinds of users, of whom each likes one half of the items; later users and items have more ratings."""
    rng = np.random.default_rng(0)
    users, items = np.indices((USERS, ITEMS))
    rated = rng.random(users.shape) < (0.2 + 0.6 * users / USERS) * (0.3 + 0.7 * items / ITEMS)
    mean = np.where(users % 2 == items % 2, 4.2, 2.2)
    stars = np.clip(np.rint(mean + rng.normal(0, 0.7, users.shape)), 1, 5)
    table = pl.DataFrame({"user": users[rated], "item": items[rated], "rating": stars[rated]})
    return tl.read(table, weight="rating")


@pytest.fixture(scope="module")
def world() -> Any:
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    try:
        module = importlib.import_module("ratings_world")
    finally:
        sys.path.pop(0)
    return module.RatingsWorld(ratings(), impressions_per_user=25, like_rate=0.3, exposure_skew=2.0)


def test_the_model_of_ratings_finds_who_likes_what(world: Any) -> None:
    p = world.like_probability(EVERYONE, EVERYTHING)
    same = EVERYONE % 2 == EVERYTHING % 2
    assert abs(p.mean() - 0.3) < 1e-3
    assert p[same].mean() > 3 * p[~same].mean()
    liked = world.true_likes().matrix.toarray() > 0
    assert abs(liked.mean() - 0.3) < 0.02
    assert np.array_equal(world.dataset().matrix.toarray(), liked & (world.impressions().matrix.toarray() > 0))


def test_exposure_follows_the_numbers_of_ratings(world: Any) -> None:
    never = world.flip_probability(EVERYONE, EVERYTHING).reshape(USERS, ITEMS)
    by_user, by_item = world.ratings.interactions_per_user(), world.ratings.popularity()
    assert np.array_equal(np.argsort(never.mean(axis=0), kind="stable"), np.argsort(-by_item, kind="stable"))
    assert np.corrcoef(by_user, never.mean(axis=1))[0, 1] < -0.9
