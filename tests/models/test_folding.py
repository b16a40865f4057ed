"""Fold-in finds the row at which training would rest, from a history alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import truelike as tl
from truelike.models.folding import fold_in
from truelike.negatives import Popularity, Uniform
from truelike.objectives import BPO, BPR, NBPO, NBPOo, NBPOs, shift_mc

OBJECTIVES: list[Any] = [BPO, NBPO, NBPOs, NBPOo, BPR, shift_mc(0.3)]
RNG = np.random.default_rng(0)
V = RNG.normal(0, 0.7, (50, 6)).astype(np.float32)
FLIPS = RNG.normal(-1, 1, 50)
POPULARITY = RNG.integers(1, 40, 50)
HISTORY = np.array([3, 8, 20, 21, 44], dtype=np.int32)


def expected_step(objective: Any, row: Any, history: Any, law: Any, flips: Any, rho: int, weight: float) -> Any:
    """The sum over a whole epoch, one (positive, unvoted) pair at a time."""
    total = np.zeros(len(row))
    vectors = V.astype(float)
    g = np.zeros(50) if flips is None else flips
    for i in history:
        if objective is not BPR:
            total += weight * objective.positive(row @ vectors[i], g[i])[0] * vectors[i]
        for j in np.flatnonzero(law):
            if objective is BPR:
                up, down = objective.pair(row @ vectors[i], row @ vectors[j])
                total += rho * law[j] * (up * vectors[i] + down * vectors[j])
            else:
                total += rho * law[j] * objective.unvoted(row @ vectors[j], g[j])[0] * vectors[j]
    return total


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
@pytest.mark.parametrize("law", [Uniform(), Popularity()], ids=["uniform", "popularity"])
@pytest.mark.parametrize("weight", [1.0, 4.0])
@pytest.mark.parametrize("with_flips", [False, True])
def test_at_the_folded_row_the_expected_step_of_training_is_zero(
    objective: Any, law: Any, weight: float, with_flips: bool
) -> None:
    flips = FLIPS if with_flips else None
    chances = law.law(POPULARITY, HISTORY)
    row = fold_in(V, HISTORY, objective, chances, flips, n_negatives=4, weight=weight, regularization=2.0)
    start = expected_step(objective, np.zeros(6), HISTORY, chances, flips, 4, weight)
    rest = expected_step(objective, row.astype(float), HISTORY, chances, flips, 4, weight) - 2.0 * row
    assert np.linalg.norm(start) > 0.3
    assert np.linalg.norm(rest) < 1e-3 * np.linalg.norm(start)


@pytest.mark.parametrize("objective", [BPO, BPR], ids=lambda o: o.name)
def test_beside_a_bias_of_items_the_folded_row_is_the_most_likely_one(objective: Any) -> None:
    bias = RNG.normal(0, 1, 50).astype(np.float32)
    law = Uniform().law(POPULARITY, HISTORY)
    row = fold_in(V, HISTORY, objective, law, item_bias=bias, n_negatives=3, weight=1.0, regularization=2.0)

    def moved(step: Any) -> Any:
        """The likelihood of the history and of what is drawn, and the prior."""
        r = V.astype(float) @ (row + step) + bias
        expected = 3 * len(HISTORY) * law
        if objective is BPR:
            voted = sum(3 * law @ objective.likelihood_pair(r[i], r) for i in HISTORY)
        else:
            voted = objective.likelihood_positive(r[HISTORY], 0.0).sum()
            voted = voted + expected @ objective.likelihood_unvoted(r, np.zeros(50))
        return voted - np.sum((row + step) ** 2)

    for step in np.eye(6) * 0.05:  # the best there is, in every direction
        assert moved(np.zeros(6)) > max(moved(step), moved(-step))


def test_fold_in_is_not_random() -> None:
    law = Uniform().law(POPULARITY, HISTORY)
    how = {"n_negatives": 5, "weight": 1.0, "regularization": 1.0}
    assert_array_equal(fold_in(V, HISTORY, BPR, law, **how), fold_in(V, HISTORY, BPR, law, **how))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
def test_the_stronger_the_prior_the_shorter_the_row(objective: Any) -> None:
    law = Uniform().law(POPULARITY, HISTORY)
    lengths = [
        np.linalg.norm(fold_in(V, HISTORY, objective, law, n_negatives=4, weight=1.0, regularization=strength))
        for strength in (0.1, 1.0, 10.0, 100.0)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < 0.5 * lengths[0]


# --- through a model ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log() -> Any:
    """90 users of three tastes and 45 items; user 0 likes items 0, 3, 6, ..."""
    rng = np.random.default_rng(5)
    users, items = np.arange(90)[:, None], np.arange(45)[None, :]
    voted = (rng.random((90, 45)) < np.where(users % 3 == items % 3, 0.6, 0.05)) | (users % 45 == items)
    return tl.read([(int(u), int(i)) for u, i in np.argwhere(voted)])


FITTED: dict[str, dict[str, Any]] = {
    "BPO": {}, "BPR": {}, "NBPO": {}, "NBPO-o": {}, "NBPO-s": {"regularization": 0.3},
    "ShiftMC": {"learning_rate": 0.01},
}  # fmt: skip


@pytest.fixture(scope="module", params=FITTED)
def model(request: pytest.FixtureRequest, log: Any) -> Any:
    quick = {
        "factors": 6, "flip_factors": 3, "epochs": 120, "batch_size": 60, "regularization": 2.0,
        "flip_regularization": 8.0, "learning_rate": 0.05, "decay": 0.98, "n_negatives": 5,
    }  # fmt: skip
    return tl.MatrixFactorization(objective=request.param, **{**quick, **FITTED[request.param]}).fit(log)


def test_the_folded_row_of_a_training_user_is_like_the_trained_one(model: Any, log: Any) -> None:
    alike = []
    for user in range(log.n_users):
        history = log.matrix.indices[log.matrix.indptr[user] : log.matrix.indptr[user + 1]]
        folded, trained = model._score_vectors(np.stack([model._fold_in(history), model.user_factors_[user]]))
        alike.append(np.corrcoef(folded, trained)[0, 1])
    assert np.mean(alike) > 0.9
    assert np.min(alike) > 0.6


def test_more_history_of_one_taste_makes_the_taste_clearer(model: Any) -> None:
    def margin(history: list[int]) -> float:
        """How far the unseen items of taste 1 stand above all others."""
        scores = model._score_vectors(model._fold_in(np.array(history, dtype=np.int32))[None])[0]
        unseen = np.setdiff1d(np.arange(45), history)
        return float(scores[unseen[unseen % 3 == 1]].mean() - scores[unseen[unseen % 3 != 1]].mean())

    one, some, many = margin([1]), margin([1, 7, 13]), margin([1, 4, 7, 10, 13, 16, 19, 22])
    assert 0 < one < some < many


def test_a_stranger_gets_the_rest_of_their_taste(model: Any) -> None:
    history = [1, 4, 7, 10, 13, 16]
    best = set(model.recommend_from_items(history, k=9)["item_id"])
    assert len(best & set(range(1, 45, 3))) >= 6  # of the 9 that are left; by chance it would be 2
    assert not best & set(history)


def test_a_history_of_two_tastes_lifts_both_above_the_third(model: Any) -> None:
    history = np.array([1, 4, 7, 10, 2, 5, 8, 11], dtype=np.int32)
    scores = model._score_vectors(model._fold_in(history)[None])[0]
    unseen = np.setdiff1d(np.arange(45), history)
    means = [scores[unseen[unseen % 3 == taste]].mean() for taste in range(3)]
    assert means[0] < min(means[1:])
