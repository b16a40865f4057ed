"""Fold-in of a listwise objective finds the most likely row, whatever the objective."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize

from truelike.models.fold_in import AllItemsFoldIn
from truelike.objectives import Listwise, Softmax, log, softmax

RNG = np.random.default_rng(0)
V = RNG.normal(0, 0.7, (50, 6)).astype(np.float32)
BIAS = RNG.normal(0, 1, 50).astype(np.float32)
HISTORY = np.array([3, 8, 20, 21, 44], dtype=np.int32)
OBSERVED = np.isin(np.arange(50), HISTORY).astype(float)


def tempered_softmax(temperature: float) -> Any:
    class TemperedSoftmax(Listwise):
        name = f"softmax at {temperature}"

        @staticmethod
        def steps(r: Any, observed: Any) -> Any:
            return (observed - observed.sum(-1)[..., None] * softmax(r / temperature)) / temperature

        @staticmethod
        def likelihood(r: Any, observed: Any) -> Any:
            return (observed * log(softmax(r / temperature))).sum(-1)

    return TemperedSoftmax


class CentredSquares(Listwise):
    """Half the squared error of centred scores, times 20: its curvature is far above that of the softmax."""

    name = "centred squares"

    @staticmethod
    def steps(r: Any, observed: Any) -> Any:
        error = observed - r
        return 20 * (error - error.mean(-1)[..., None])

    @staticmethod
    def likelihood(r: Any, observed: Any) -> Any:
        error = observed - r
        return -10 * ((error - error.mean(-1)[..., None]) ** 2).sum(-1)


class Robust(Listwise):
    """The Cauchy likelihood of the errors, which is not concave."""

    name = "robust"

    @staticmethod
    def steps(r: Any, observed: Any) -> Any:
        error = observed - r
        return 2 * error / (1 + error**2)

    @staticmethod
    def likelihood(r: Any, observed: Any) -> Any:
        return -log(1 + (observed - r) ** 2).sum(-1)


@pytest.mark.parametrize(
    "objective",
    [Softmax, tempered_softmax(0.2), tempered_softmax(5.0), CentredSquares, Robust],
    ids=lambda o: o.name,
)
@pytest.mark.parametrize("l2", [0.5, 5.0])
def test_the_folded_row_is_the_most_likely_one(objective: Any, l2: float) -> None:
    row = AllItemsFoldIn(V, BIAS, objective, None, unobserved_weight=0.0, l2=l2).row(HISTORY)

    def loss(x: Any) -> Any:
        return -objective.likelihood(V.astype(float) @ x + BIAS, OBSERVED) + l2 / 2 * x @ x

    best = optimize.minimize(loss, np.zeros(6), tol=1e-10)
    assert np.linalg.norm(best.x) > 0.05
    assert_allclose(row, best.x, atol=1e-3)


def test_temperature_1_is_folded_in_as_the_softmax() -> None:
    rows = [
        AllItemsFoldIn(V, BIAS, objective, None, unobserved_weight=0.0, l2=1.0).row(HISTORY)
        for objective in (Softmax, tempered_softmax(1.0))
    ]
    assert_allclose(rows[0], rows[1], atol=1e-4)
