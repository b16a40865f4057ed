"""Histories without one interaction are folded in together as they are one by one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from truelike.models import left_out
from truelike.models.fold_in import AllItemsFoldIn, SampledFoldIn
from truelike.negatives import Popularity, Uniform
from truelike.objectives import BPO, BPR, NBPO, NBPOo, NBPOs, Softmax, noisy_bpr, shift_mc

RNG = np.random.default_rng(0)
V = RNG.normal(0, 0.7, (80, 6)).astype(np.float32)
BIAS = RNG.normal(0, 1, 80).astype(np.float32)
FLIPS = RNG.normal(-1, 1, 80).astype(np.float32)
POPULARITY = RNG.integers(1, 40, 80)
HISTORIES = [np.array([3, 44]), np.array([3, 8, 20, 21, 44]), np.arange(0, 80, 2)]


def check(fold: Any, history: Any, tolerance: float) -> None:
    """All at once, the rows are those of one history after the other."""
    places = np.arange(len(history), dtype=np.int32)
    expected = [fold.row(history), *(fold.row(np.delete(history, place)) for place in places)]
    assert_allclose(fold.rows_without(history, places), expected, atol=tolerance * np.abs(expected).max())


class Known:
    """Known flips."""

    def average_logits(self) -> Any:
        return FLIPS


@pytest.mark.parametrize("history", HISTORIES, ids=len)
@pytest.mark.parametrize(
    "objective", [BPO, NBPO, NBPOs, NBPOo, BPR, noisy_bpr(0.3), shift_mc(0.3)], ids=lambda o: o.name
)
@pytest.mark.parametrize("distribution", [Uniform(), Popularity()], ids=["uniform", "popularity"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_of_sampled_training(history: Any, objective: Any, distribution: Any, with_bias: bool) -> None:
    history = history.astype(np.int32)
    fold = SampledFoldIn(
        V, BIAS if with_bias else None, objective, Known(), partial(distribution.probabilities, POPULARITY),
        n_negatives=4, weight=2.0, l2=0.5 * len(history),
    )  # fmt: skip
    # by popularity, the probabilities of the others depend on which item is left out; the matrix has their mean
    tolerance = 2e-4 if distribution == Uniform() else 4e-3
    check(fold, history, tolerance)


@pytest.mark.parametrize("history", HISTORIES, ids=len)
@pytest.mark.parametrize("objective", [BPO, NBPOo, shift_mc(0.3), Softmax], ids=lambda o: o.name)
@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_of_training_on_all_items(
    history: Any, objective: Any, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_out, "PAIRS_AT_ONCE", at_once)
    history = history.astype(np.int32)
    fold = AllItemsFoldIn(V, BIAS, objective, Known(), unobserved_weight=0.5, l2=2.0, frequency_power=0.5)
    check(fold, history, 2e-3)


def test_a_row_that_does_not_come_to_rest_is_folded_in_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    history = HISTORIES[1].astype(np.int32)
    fold = AllItemsFoldIn(V, BIAS, BPO, None, unobserved_weight=0.5, l2=2.0)
    expected = [fold.row(np.delete(history, place)) for place in (0, 1)]
    monkeypatch.setattr(left_out, "STEPS", 1)
    found = fold.rows_without(history, np.arange(2, dtype=np.int32))
    assert_array_equal(found[1:], expected)
