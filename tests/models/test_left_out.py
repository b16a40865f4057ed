"""Histories without one interaction are folded in together as they are one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from truelike.models import left_out
from truelike.models.fold_in import fold_in, fold_in_all
from truelike.models.left_out import AllItems, Sampled
from truelike.negatives import Popularity, Uniform
from truelike.objectives import BPO, BPR, NBPO, Listwise, NBPOo, NBPOs, Softmax, noisy_bpr, shift_mc, softmax

RNG = np.random.default_rng(0)
V = RNG.normal(0, 0.7, (80, 6)).astype(np.float32)
BIAS = RNG.normal(0, 1, 80).astype(np.float32)
FLIPS = RNG.normal(-1, 1, 80).astype(np.float32)
POPULARITY = RNG.integers(1, 40, 80)
HISTORIES = [np.array([3, 44]), np.array([3, 8, 20, 21, 44]), np.arange(0, 80, 2)]


class Tempered(Listwise):
    """A softmax with a temperature: a listwise objective of one's own."""

    name = "tempered"

    @staticmethod
    def steps(r: Any, observed: Any) -> Any:
        return (observed - observed.sum(-1)[..., None] * softmax(r / 2)) / 2


@pytest.mark.parametrize("history", HISTORIES, ids=len)
@pytest.mark.parametrize(
    "objective", [BPO, NBPO, NBPOs, NBPOo, BPR, noisy_bpr(0.3), shift_mc(0.3)], ids=lambda o: o.name
)
@pytest.mark.parametrize("distribution", [Uniform(), Popularity()], ids=["uniform", "popularity"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_of_sampled_training(history: Any, objective: Any, distribution: Any, with_bias: bool) -> None:
    history = history.astype(np.int32)
    bias, settings = BIAS if with_bias else None, {"n_negatives": 4, "weight": 2.0}

    def folded_in(each: Any, l2: float = 1.5) -> Any:
        chances = distribution.probabilities(POPULARITY, each)
        return fold_in(V, each, objective, chances, FLIPS, item_bias=bias, regularization=l2, **settings)

    row = folded_in(history, 2.0)
    problem = Sampled(
        V, bias, history, objective, FLIPS, row, l2=2.0, l2_without=1.5,
        probabilities=distribution.probabilities(POPULARITY, history),
        prior=distribution.probabilities(POPULARITY, history[:0]), **settings,
    )  # fmt: skip
    places = np.arange(len(history), dtype=np.int32)
    found = problem.left_out_rows(places, lambda each: pytest.fail("not found together"))
    expected = [row, *(folded_in(np.delete(history, place)) for place in places)]
    # by popularity, the probabilities of the others depend on which item is left out; the matrix has their mean
    tolerance = 2e-4 if distribution == Uniform() else 4e-3
    assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("history", HISTORIES, ids=len)
@pytest.mark.parametrize("objective", [BPO, NBPOo, shift_mc(0.3), Softmax, Tempered], ids=lambda o: o.name)
@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_of_training_on_all_items(
    history: Any, objective: Any, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_out, "PAIRS_AT_ONCE", at_once)
    history = history.astype(np.int32)

    def folded_in(each: Any, l2: float = 1.5) -> Any:
        return fold_in_all(V, BIAS, each, objective, FLIPS, unobserved_weight=0.5, regularization=l2)

    row = folded_in(history, 2.0)
    problem = AllItems(V, BIAS, history, objective, FLIPS, row, l2=2.0, l2_without=1.5, unobserved_weight=0.5)
    places = np.arange(len(history), dtype=np.int32)
    found = problem.left_out_rows(places, folded_in)
    expected = [row, *(folded_in(np.delete(history, place)) for place in places)]
    assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


def test_a_row_that_does_not_come_to_rest_is_folded_in_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_out, "STEPS", 1)
    history = HISTORIES[1].astype(np.int32)
    problem = AllItems(V, BIAS, history, BPO, None, V[0], l2=2.0, l2_without=1.5, unobserved_weight=0.5)
    found = problem.left_out_rows(np.arange(2, dtype=np.int32), lambda each: np.full(6, len(each), np.float32))
    assert_allclose(found, [V[0], np.full(6, 4), np.full(6, 4)])
