"""iALS minimises what its paper says, row by row, however the work is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from threadpoolctl import threadpool_limits

import truelike as tl
from truelike.models.ials import usual_ridge
from truelike.training import alternating
from truelike.training.alternating import AlternatingEngine, Weights
from truelike.training.tables import Tables

WEIGHTS = Weights(unobserved=0.3, regularization=0.05, frequency_power=0.8)


def some_log(seed: int = 0, n_users: int = 70, n_items: int = 45, share: float = 0.2) -> Any:
    votes = np.random.default_rng(seed).random((n_users, n_items)) < share
    votes[0] = False  # a user without a vote, of whom there may be some in a split
    votes[:, 3] = False
    votes[1, :2] = True
    weights = np.where(votes, 3.0, 0.0)  # how often somebody voted does not count
    return tl.read(sparse.csr_array(weights))


def whole_log(seed: int = 0) -> Any:
    """As `some_log`, but read so that the user and the item without a vote stay."""
    log = some_log(seed)
    assert (log.n_users, log.n_items) == (70, 45)
    assert (np.diff(log.matrix.indptr) == 0).sum() == 1
    return log


def start(log: Any, factors: int, seed: int = 0) -> Tables:
    tables = Tables.zeros(log.n_users, log.n_items, factors, 0)
    tables.initialise("normal", 0.3, 0.0, seed)
    return tables


def engine(log: Any, tables: Tables, weights: Weights = WEIGHTS, **how: Any) -> AlternatingEngine:
    return AlternatingEngine(log, tables, weights, **{"solver": "cg", "cg_steps": 3, "n_jobs": 2, **how})


def dense_objective(log: Any, U: Any, V: Any, weights: Weights = WEIGHTS) -> float:
    """Rendle et al., Equations 1 to 4, one term after the other, in float64."""
    votes = log.matrix.toarray() > 0
    r = U.astype(np.float64) @ V.astype(np.float64).T
    of_users = weights.regularization * (votes.sum(1) + weights.unobserved * len(V)) ** weights.frequency_power
    of_items = weights.regularization * (votes.sum(0) + weights.unobserved * len(U)) ** weights.frequency_power
    ridge = (of_users * (U.astype(np.float64) ** 2).sum(1)).sum() + (
        of_items * (V.astype(np.float64) ** 2).sum(1)
    ).sum()
    return float(((1 - r[votes]) ** 2).sum() + weights.unobserved * (r**2).sum() + ridge)


def dense_half(votes: Any, V: Any, weights: Weights = WEIGHTS) -> Any:
    """Every row by the normal equations over all pairs, dense and in float64."""
    V = V.astype(np.float64)
    rows = []
    for voted in votes:
        pull = voted + weights.unobserved  # (1 - r)^2 where voted, and weight r^2 everywhere
        ridge = weights.regularization * (voted.sum() + weights.unobserved * len(V)) ** weights.frequency_power
        A = (V * pull[:, None]).T @ V + ridge * np.eye(V.shape[1])
        rows.append(np.linalg.solve(A, V.T @ voted))
    return np.array(rows)


@pytest.mark.parametrize("factors", [1, 5, 8, 13])
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize("power", [0.0, 1.0])
def test_an_epoch_is_the_dense_solution_of_users_then_items(factors: int, solver: str, power: float) -> None:
    log, weights = whole_log(), Weights(0.3, 0.5, power)
    tables = start(log, factors)
    votes = (log.matrix.toarray() > 0).astype(np.float64)
    users = dense_half(votes, tables.item_factors, weights)
    items = dense_half(votes.T, users, weights)
    engine(log, tables, weights, solver=solver, cg_steps=40).epoch(0)
    assert_allclose(tables.user_factors, users, rtol=1e-4, atol=2e-5)
    assert_allclose(tables.item_factors, items, rtol=1e-4, atol=2e-5)
    assert_array_equal(tables.users[:, factors:], 0)
    assert_array_equal(tables.user_factors[0], 0)


def test_more_steps_of_conjugate_gradients_come_nearer_to_cholesky() -> None:
    log = whole_log()
    exact = start(log, 16)
    engine(log, exact, solver="cholesky").epoch(0)
    distances = []
    for steps in (1, 2, 4, 8, 16):
        tables = start(log, 16)
        engine(log, tables, cg_steps=steps).epoch(0)
        distances.append(np.linalg.norm(tables.users - exact.users))
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-4 * distances[0]


@pytest.mark.parametrize("cg_steps", [1, 3])
@pytest.mark.parametrize("factors", [8, 32])
def test_a_half_is_implicits_where_the_objectives_coincide(cg_steps: int, factors: int) -> None:
    """implicit weighs a vote by c and pulls it to 1. Ours is that by c - 1, but for the pull: c / (c - 1), not 1.

    With items fixed a row, and each step of conjugate gradients from a start in the same proportion, is linear in
    the pull. So one half of an iteration must be the same row times c / (c - 1).
    """
    from implicit.cpu.als import AlternatingLeastSquares

    log, c, regularization = some_log(4, 120, 80), 6.0, 7.0
    votes = sparse.csr_matrix(log.matrix)
    votes.data[:] = 1.0
    tables = start(log, factors)
    pull = c / (c - 1)
    with threadpool_limits(limits=1, user_api="blas"):  # implicit warns of more
        peer = AlternatingLeastSquares(factors=factors)
    peer.cg_steps = cg_steps
    rows = np.ascontiguousarray(tables.user_factors * np.float32(pull))
    peer.solver(c * votes, rows, np.ascontiguousarray(tables.item_factors), regularization, num_threads=1)
    weights = Weights(unobserved=1 / (c - 1), regularization=regularization / (c - 1), frequency_power=0.0)
    mine = engine(log, tables, weights, cg_steps=cg_steps)
    mine._solve(mine.sides[0])
    voted = np.diff(log.matrix.indptr) > 0
    assert_allclose(pull * tables.user_factors[voted], rows[voted], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_the_loss_is_the_objective_and_never_rises(solver: str) -> None:
    log = whole_log()
    tables = start(log, 12)
    last = dense_objective(log, tables.user_factors, tables.item_factors) / log.n_interactions
    work = engine(log, tables, solver=solver)
    for number in range(12):
        work.epoch(number)
        dense = dense_objective(log, tables.user_factors, tables.item_factors) / log.n_interactions
        assert work.loss() == pytest.approx(dense, rel=1e-5)
        assert dense <= last * (1 + 1e-6)
        last = dense


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_neither_our_threads_nor_those_of_blas_show(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternating, "GRAM_ROWS", 32)
    log = some_log(2, 300, 150, 0.1)
    found = set()
    for n_jobs, blas in ((1, 1), (2, 2), (3, 2), (1, 2)):
        with threadpool_limits(limits=blas, user_api="blas"):
            model = tl.IALS(factors=20, solver=solver, epochs=3, n_jobs=n_jobs).fit(log)
        found.add(model.tables_.users.tobytes() + model.tables_.items.tobytes())
    assert len(found) == 1


def test_a_row_does_not_depend_on_who_shares_its_block() -> None:
    """Users 0 to 9 of a log, and the same users at the end of a longer one: the same rows, to the bit."""
    log = some_log(6, 90, 60)
    whole, part = start(log, 24), start(log, 24)
    engine(log, whole)._solve(engine(log, whole).sides[0])
    rows = log.matrix[41:]
    side = engine(log, part).sides[0]
    side.votes, side.rows, side.ridge = rows, part.users[41:], side.ridge[41:]
    engine(log, part)._solve(side)
    assert_array_equal(part.users[41:], whole.users[41:])


def test_a_stranger_with_a_users_history_gets_the_row_that_cholesky_gives_the_user() -> None:
    log = some_log(9)
    model = tl.IALS(factors=8, solver="cholesky", epochs=4).fit(log)
    fresh = model.tables_.copy()
    work = model._engine(log, fresh)
    work._solve(work.sides[0])
    for user in (5, 17):
        history = log.seen(user)
        found = model.recommend_from_items(history, k=45).sort("item_id")
        scores = fresh.item_factors[found["item_id"].to_numpy()] @ fresh.user_factors[user]
        assert_allclose(found["score"].to_numpy(), scores, rtol=1e-4, atol=1e-5)


def test_the_best_epoch_on_validation_is_kept_and_training_stops() -> None:
    split = tl.split.by_user(tl.synthetic.World(n_users=300, n_items=120).log(), seed=0)
    model = tl.IALS(factors=32, regularization=1e-4, epochs=60, patience=3)
    model.fit(split.train, validation=split.validation, progress=False)
    measured = model.history_["ndcg@20"]
    assert len(measured) < 60
    assert measured.arg_max() == len(measured) - 4
    assert tl.evaluate(model, split.validation).means()["ndcg@20"] == pytest.approx(measured.max())


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    log = some_log()
    whole = tl.IALS(factors=8, epochs=6).fit(log)
    tl.IALS(factors=8, epochs=3).fit(log, checkpoint=tmp_path / "run")
    again = tl.IALS(factors=8, epochs=6).fit(log, checkpoint=tmp_path / "run", resume=True)
    assert again.tables_.users.tobytes() == whole.tables_.users.tobytes()
    assert again.history_["loss"].to_list() == whole.history_["loss"].to_list()


def test_the_seed_decides_the_start_and_its_scale(world: Any) -> None:
    starts = [tl.IALS(factors=16, epochs=0, seed=seed).fit(world) for seed in (0, 0, 1)]
    assert_array_equal(starts[0].user_factors_, starts[1].user_factors_)
    assert (starts[0].user_factors_ != starts[2].user_factors_).all()
    assert starts[0].user_factors_.std() == pytest.approx(starts[0].init_scale / 4, rel=0.1)


def test_without_a_regularization_the_average_users_ridge_is_the_usual_one(world: Any) -> None:
    for power in (0.0, 0.5, 1.0):
        model = tl.IALS(factors=4, frequency_power=power, epochs=1).fit(world)
        ridge = model._engine(world, model.tables_).sides[0].ridge
        assert ridge.mean() == pytest.approx(usual_ridge(world), rel=1e-5)
        told = tl.IALS(
            factors=4, frequency_power=power, epochs=1, regularization=model._weights(world).regularization
        )
        assert_array_equal(told.fit(world).user_factors_, model.user_factors_)


def test_a_usual_ridge_leaves_something_of_a_sparse_log() -> None:
    """Everybody has two votes, which a ridge of 8 would shrink to nothing."""
    log = tl.read([(user, (user * step + step) % 20) for user in range(40) for step in (1, 3)])
    kept, lost = (tl.IALS(factors=8, epochs=30, regularization=r).fit(log) for r in (None, 8.0))
    assert np.abs(kept.user_factors_).max() > 0.1
    assert np.abs(lost.user_factors_).max() < 1e-3


def test_frequency_power_spares_rows_with_few_votes() -> None:
    """At the same ridge on the average row, a higher power shrinks the rows with many votes more."""
    counts = np.array([1.0, 100.0])
    flat, steep = Weights(0.0, 5.0, 0.0).ridge(counts, 50), Weights(0.0, 0.1, 1.0).ridge(counts, 50)
    assert_allclose(flat, [5.0, 5.0])
    assert_allclose(steep, [0.1, 10.0])
