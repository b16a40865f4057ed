"""ExposureMF: a guess of exposure in place of impressions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truelike as tl

WORLD = tl.synthetic.World(n_users=400, n_items=200, impressions_per_user=120, exposure_skew=1.8, seed=1)
EVIDENCE = {"structured": "assumed: user activity and item visibility", "item": "interactions"}


@pytest.mark.parametrize("exposure", EVIDENCE)
def test_it_says_what_is_assumed_and_is_saved_whole(exposure: Any, tmp_path: Path) -> None:
    model = tl.ExposureMF(factors=8, exposure=exposure, epochs=3).fit(WORLD.dataset(), progress=False)
    found = model.like_probability(1, [2, 3])
    assert set(found["evidence"]) == set(model.hidden_likes(1, k=3)["evidence"]) == {EVIDENCE[exposure]}
    assert model.likes.is_identified == (exposure == "structured")
    model.save(tmp_path / "model")
    again: Any = tl.load(tmp_path / "model")
    assert again.like_probability(1, [2, 3]).equals(found)
    assert again.hidden_likes([1, 2]).equals(model.hidden_likes([1, 2]))
    assert again.recommend_from_items([1, 2, 3], k=5).equals(model.recommend_from_items([1, 2, 3], k=5))
    assert len(again.explain(1, again.recommend(1, k=1)["item_id"][0])) > 0
    one = tl.clone(model, n_jobs=1).fit(WORLD.dataset(), progress=False)
    assert one.user_factors_.tobytes() == model.user_factors_.tobytes()


def test_exposure_by_item_is_one_number_per_item() -> None:
    model = tl.ExposureMF(factors=4, epochs=2, exposure="item").fit(WORLD.dataset(), progress=False)
    flips = model.flip_probability([1, 2, 3, 1], [7, 7, 7, 8])
    assert len(set(flips[:3].tolist())) == 1 != len(set(flips.tolist()))


@pytest.mark.slow
def test_structured_exposure_finds_true_likes_better_than_learned_flips() -> None:
    world = tl.synthetic.World(n_users=1_200, n_items=600, impressions_per_user=200, exposure_skew=1.8, seed=1)
    found = {}
    for model in (tl.ExactNBPO(factors=16, regularization=3.0), tl.ExposureMF(factors=16, regularization=3.0)):
        scores = tl.evaluate(model.fit(world.dataset(), progress=False), truth=world.truth(), ks=(20,)).truth
        assert scores is not None
        found[model.name] = scores.totals
    assert found["ExposureMF"]["hidden_pooled_auc"] > found["ExactNBPO"]["hidden_pooled_auc"] + 0.03
    assert found["ExposureMF"]["hidden_ece"] < found["ExactNBPO"]["hidden_ece"] - 0.01


def test_the_flips_of_the_engine_are_the_estimated_exposure() -> None:
    model = tl.ExposureMF(factors=4, epochs=1).fit(WORLD.dataset(), progress=False)
    users = np.arange(5)
    shown = 1 - model.flip_probability(np.repeat(users, 3), np.tile([0, 1, 2], 5)).astype(float)
    expected = model.rates_.propensity(np.repeat(users, 3), np.tile([0, 1, 2], 5))
    np.testing.assert_allclose(shown, expected, rtol=1e-3, atol=1e-6)
