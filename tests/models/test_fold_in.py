"""Fold-in finds the row of a new user at which the expected step of training is zero."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize

import truelike as tl
from truelike.models.fold_in import AllItemsFoldIn, SampledFoldIn
from truelike.negatives import Popularity, Uniform
from truelike.objectives import BPO, BPR, NBPO, Listwise, NBPOo, NBPOs, Pairwise, Softmax, log, shift_mc

OBJECTIVES: list[Any] = [BPO, NBPO, NBPOs, NBPOo, BPR, shift_mc(0.3)]
RNG = np.random.default_rng(0)
V = RNG.normal(0, 0.7, (50, 6)).astype(np.float32)
FLIPS = RNG.normal(-1, 1, 50)
POPULARITY = RNG.integers(1, 40, 50)
BIAS = RNG.normal(0, 1, 50).astype(np.float32)
HISTORY = np.array([3, 8, 20, 21, 44], dtype=np.int32)


def fold_in(
    objective: Any, probabilities: Any, flips: Any = None, *, item_bias: Any = None, **settings: Any
) -> Any:
    known = None if flips is None else SimpleNamespace(average_logits=lambda: flips)
    return SampledFoldIn(V, item_bias, objective, known, lambda _: probabilities, **settings).row(HISTORY)


def expected_step(
    objective: Any, row: Any, probabilities: Any, flips: Any, bias: Any, rho: int, weight: float
) -> Any:
    """The sum over an epoch of the steps of the positives and of the expected negatives."""
    vectors, drawn = V.astype(float), rho * probabilities
    r = vectors @ row + bias
    if issubclass(objective, Pairwise):
        pairs = [(i, *objective.pair(r[i], r)) for i in HISTORY]
        return sum(drawn @ up * vectors[i] + (drawn * down) @ vectors for i, up, down in pairs)
    of_positives = weight * objective.positive(r, flips)[0][HISTORY] @ vectors[HISTORY]
    return of_positives + len(HISTORY) * (drawn * objective.negative(r, flips)[0]) @ vectors


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
@pytest.mark.parametrize("distribution", [Uniform(), Popularity()], ids=["uniform", "popularity"])
@pytest.mark.parametrize("weight", [1.0, 4.0])
@pytest.mark.parametrize("with_flips", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_the_expected_step_of_training_is_zero_at_the_folded_row(
    objective: Any, distribution: Any, weight: float, with_flips: bool, with_bias: bool
) -> None:
    flips, bias = FLIPS if with_flips else None, BIAS if with_bias else None
    chances = distribution.probabilities(POPULARITY, HISTORY)
    row = fold_in(objective, chances, flips, item_bias=bias, n_negatives=4, weight=weight, l2=2.0)
    known = (chances, FLIPS if with_flips else np.zeros(50), BIAS if with_bias else 0.0, 4, weight)
    start = expected_step(objective, np.zeros(6), *known)
    end = expected_step(objective, row.astype(float), *known) - 2.0 * row
    assert np.linalg.norm(start) > 0.3
    assert np.linalg.norm(end) < 1e-3 * np.linalg.norm(start)


# --- of a listwise objective: the most likely row, whatever the objective ---------------------------

OBSERVED = np.isin(np.arange(50), HISTORY).astype(float)


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
    [Softmax, CentredSquares, Robust],
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


# --- through a model ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> Any:
    """90 users of three tastes and 45 items; user 0 likes items 0, 3, 6, ..."""
    rng = np.random.default_rng(5)
    users, items = np.arange(90)[:, None], np.arange(45)[None, :]
    observed = (rng.random((90, 45)) < np.where(users % 3 == items % 3, 0.6, 0.05)) | (users % 45 == items)
    return tl.read([(int(u), int(i)) for u, i in np.argwhere(observed)])


FITTED: dict[str, dict[str, Any]] = {
    "BPO": {}, "BPR": {}, "NBPO": {}, "NBPO-o": {}, "NBPO-s": {"regularization": 0.3},
    "ShiftMC": {"learning_rate": 0.01},
}  # fmt: skip


@pytest.fixture(scope="module", params=FITTED)
def model(request: pytest.FixtureRequest, data: Any) -> Any:
    quick = {
        "factors": 6, "flip_factors": 3, "epochs": 120, "batch_size": 60, "regularization": 2.0,
        "flip_regularization": 8.0, "learning_rate": 0.05, "decay": 0.98, "n_negatives": 5,
    }  # fmt: skip
    return tl.SampledMF(objective=request.param, **{**quick, **FITTED[request.param]}).fit(data)


def test_the_folded_row_of_a_training_user_is_close_to_the_trained_row(model: Any, data: Any) -> None:
    correlations = []
    for user in range(data.n_users):
        history = data.matrix.indices[data.matrix.indptr[user] : data.matrix.indptr[user + 1]]
        folded, trained = model.scorer.vectors.of_vectors(
            np.stack([model.scorer.fold_in.row(history), model.user_factors_[user]])
        )
        correlations.append(np.corrcoef(folded, trained)[0, 1])
    assert np.mean(correlations) > 0.9
    assert np.min(correlations) > 0.6


def test_a_longer_history_of_one_taste_gives_a_larger_margin(model: Any) -> None:
    def margin(history: list[int]) -> float:
        """By how much the unseen items of taste 1 score above all others."""
        scores = model.scorer.vectors.of_vectors(
            model.scorer.fold_in.row(np.array(history, dtype=np.int32))[None]
        )[0]
        unseen = np.setdiff1d(np.arange(45), history)
        return float(scores[unseen[unseen % 3 == 1]].mean() - scores[unseen[unseen % 3 != 1]].mean())

    one, some, many = margin([1]), margin([1, 7, 13]), margin([1, 4, 7, 10, 13, 16, 19, 22])
    assert 0 < one < some < many


class SquaredPair(Pairwise):
    """A pairwise objective that declares no curvature: -(1 - (r_i - r_j))^2."""

    name = "SquaredPair"

    @staticmethod
    def pair(r_i: Any, r_j: Any) -> Any:
        step = 2 * (1 - (r_i - r_j))
        return step, -step


def test_the_curvature_of_an_objective_of_ones_own_is_measured() -> None:
    data = tl.synthetic.World(n_users=150, n_items=60).dataset()
    model = tl.SampledMF(objective=SquaredPair, factors=8, epochs=20, learning_rate=0.005).fit(
        data, progress=False
    )
    scores = model.recommend_from_items(data.seen(data.users[0]), k=60)["score"]
    assert scores.abs().max() < 10
