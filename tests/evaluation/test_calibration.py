"""AUC and calibration against slow and simple definitions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from truelike.evaluation.calibration import Pooled, auc

pairs = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40)


def by_pairs(scores: Any, liked: Any) -> float:
    """AUC by comparing every like with every dislike."""
    wins = [(a > b) + 0.5 * (a == b) for a in scores[liked] for b in scores[~liked]]
    return sum(wins) / len(wins) if wins else math.nan


def columns(rows: Any) -> tuple[Any, Any]:
    return np.array([score for score, _ in rows], dtype=np.float64), np.array([like for _, like in rows])


@given(pairs)
def test_auc_is_the_share_of_pairs_in_the_right_order(rows: Any) -> None:
    scores, liked = columns(rows)
    assert_allclose(auc(scores, liked), by_pairs(scores, liked), rtol=1e-12)


@given(pairs)
def test_the_pooled_auc_is_the_auc_over_all_pairs(rows: Any) -> None:
    scores, liked = columns(rows)
    pooled = Pooled()
    pooled.add(scores[::2] / 7, liked[::2])
    pooled.add(scores[1::2] / 7, liked[1::2])
    assert_allclose(pooled.auc(), by_pairs(scores, liked), rtol=1e-12)


def test_a_constant_has_an_auc_of_one_half_and_one_bin() -> None:
    liked = np.arange(100) % 4 == 0
    pooled = Pooled()
    pooled.add(np.full(100, 0.25), liked)
    assert auc(np.full(100, 0.25), liked) == pooled.auc() == 0.5
    assert len(pooled.reliability()) == 1, "equal probabilities are in the same bin"
    assert pooled.calibration_error() == pytest.approx(0, abs=1e-4), "the constant is the true share"


def test_a_hand_computed_calibration_error() -> None:
    predicted = np.array([0.1, 0.1, 0.1, 0.1, 0.6, 0.6, 0.6, 0.6])
    liked = np.array([0, 0, 0, 1, 1, 0, 1, 1], dtype=bool)
    pooled = Pooled()
    pooled.add(predicted, liked)
    table = pooled.reliability(bins=2)
    assert [(b.liked, b.count) for b in table] == [(0.25, 4), (0.75, 4)]
    assert_allclose([b.predicted for b in table], [0.1, 0.6], rtol=1e-4)
    assert pooled.calibration_error(bins=2) == pytest.approx(0.15, rel=1e-3)
    expected = -np.mean(np.log(np.where(liked, predicted, 1 - predicted)))
    assert pooled.log_loss() == pytest.approx(expected, rel=1e-3)


def test_bins_hold_about_the_same_number_of_pairs() -> None:
    rng = np.random.default_rng(0)
    predicted = rng.beta(0.5, 8, size=30_000)
    pooled = Pooled()
    pooled.add(predicted, rng.random(30_000) < predicted)
    table = pooled.reliability(bins=10)
    assert len(table) == 10
    assert_allclose([b.count for b in table], 3_000, rtol=0.01)
    assert all(a.predicted < b.predicted for a, b in itertools.pairwise(table))
    assert pooled.calibration_error() < 0.01
    off = Pooled()
    off.add(predicted / 2, rng.random(30_000) < predicted)
    assert off.calibration_error() == pytest.approx(predicted.mean() / 2, rel=0.1)


def test_probabilities_of_0_and_1_and_slightly_outside_are_counted() -> None:
    pooled = Pooled()
    pooled.add(np.array([0.0, 1.0, 1.0 + 1e-6, -1e-9]), np.array([False, True, True, False]))
    assert pooled.auc() == 1.0
    assert pooled.calibration_error() == pytest.approx(0, abs=1e-9)
    assert pooled.log_loss() == pytest.approx(0, abs=1e-5)
