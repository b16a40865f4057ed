"""IALS minimises the objective of its paper, row by row, on any number of threads."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from threadpoolctl import threadpool_limits

import truelike as tl
from truelike.engines.als import engine as alternating
from truelike.engines.als.engine import AlternatingEngine, Solver, Weights, exact_row
from truelike.engines.tables import Tables
from truelike.errors import DataWarning, DivergedError, ParameterError

WEIGHTS = Weights(unobserved=0.3, regularization=0.05, frequency_power=0.8)


def random_data(
    seed: int = 0, n_users: int = 70, n_items: int = 45, share: float = 0.2, weight: float = 1.0
) -> Any:
    """A dataset in which user 0 and item 3 have no interactions, as may happen in a split."""
    observed = np.random.default_rng(seed).random((n_users, n_items)) < share
    observed[0] = False
    observed[:, 3] = False
    observed[1, :2] = True
    data = tl.read(sparse.csr_array(np.where(observed, weight, 0.0)))
    assert (data.n_users, data.n_items) == (n_users, n_items)
    assert (np.diff(data.matrix.indptr) == 0).sum() == 1
    return data


def start(data: Any, factors: int, seed: int = 0) -> Tables:
    tables = Tables.zeros(data.n_users, data.n_items, factors, 0)
    tables.initialise("normal", 0.3, 0.0, seed)
    return tables


def engine(data: Any, tables: Tables, weights: Weights = WEIGHTS, **how: Any) -> AlternatingEngine:
    solver = Solver(how.pop("solver", "cg"), how.pop("cg_steps", 3), how.pop("relaxation", 1.0))
    return AlternatingEngine(data, tables, weights, **{"solver": solver, "n_jobs": 2, **how})


def random_counts(data: Any, counted: bool) -> Any:
    """How much each interaction counts, or None; and the same as a dense matrix."""
    if not counted:
        return None, (data.matrix.toarray() > 0).astype(np.float64)
    counts = np.random.default_rng(0).gamma(0.7, size=data.n_interactions)
    counts[:: max(len(counts) // 7, 1)] = 0.0  # as after many half-lives
    counts, matrix = (counts / counts.mean()).astype(np.float32), data.matrix
    dense = sparse.csr_array((counts, matrix.indices, matrix.indptr), shape=matrix.shape).toarray()
    return counts, dense.astype(np.float64)


def dense_objective(data: Any, U: Any, V: Any, counts: Any) -> float:
    """Rendle et al., Equations 1 to 4, dense and in float64; a positive counts c (1 - r)^2."""
    observed, weights = data.matrix.toarray() > 0, WEIGHTS
    U, V = U.astype(np.float64), V.astype(np.float64)
    r, total = U @ V.T, 0.0
    for rows, others, axis in ((U, V, 1), (V, U, 0)):
        n = observed.sum(axis) + weights.unobserved * len(others)
        total += (weights.regularization * n**weights.frequency_power * (rows**2).sum(1)).sum()
    return float((counts * (1 - r) ** 2).sum() + weights.unobserved * (r**2).sum() + total)


def dense_half(observed: Any, counts: Any, V: Any, weights: Weights = WEIGHTS) -> Any:
    """Solve every row by the normal equations over all pairs, dense and in float64; the ridge counts positives."""
    V = V.astype(np.float64)
    rows = []
    for positive, c in zip(observed, counts, strict=True):
        ridge = weights.regularization * (positive.sum() + weights.unobserved * len(V)) ** weights.frequency_power
        A = (V * (c + weights.unobserved)[:, None]).T @ V + ridge * np.eye(V.shape[1])
        rows.append(np.linalg.solve(A, V.T @ c))
    return np.array(rows)


@pytest.mark.parametrize("factors", [1, 5, 8, 13])
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize("power", [0.0, 1.0])
@pytest.mark.parametrize("counted", [False, True])
def test_an_epoch_solves_the_users_then_the_items(factors: int, solver: str, power: float, counted: bool) -> None:
    data, weights = random_data(weight=3.0), Weights(0.3, 0.5, power)  # weights of interactions do not count
    tables, (given, counts) = start(data, factors), random_counts(data, counted)
    observed = data.matrix.toarray() > 0
    users = dense_half(observed, counts, tables.item_factors, weights)
    items = dense_half(observed.T, counts.T, users, weights)
    engine(data, tables, weights, solver=solver, cg_steps=40, interaction_weights=given).epoch(0)
    assert_allclose(tables.user_factors, users, rtol=1e-4, atol=2e-5)
    assert_allclose(tables.item_factors, items, rtol=1e-4, atol=2e-5)
    assert_array_equal(tables.users[:, factors:], 0)
    assert_array_equal(tables.user_factors[0], 0)


def test_more_steps_of_conjugate_gradients_approach_cholesky() -> None:
    data = random_data()
    exact = start(data, 16)
    engine(data, exact, solver="cholesky").epoch(0)
    distances = []
    for steps in (1, 2, 4, 8, 16):
        tables = start(data, 16)
        engine(data, tables, cg_steps=steps).epoch(0)
        distances.append(np.linalg.norm(tables.users - exact.users))
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-4 * distances[0]


@pytest.mark.parametrize("cg_steps", [1, 3])
@pytest.mark.parametrize("factors", [8, 32])
def test_half_an_epoch_equals_implicit_where_the_objectives_coincide(cg_steps: int, factors: int) -> None:
    """implicit gives a positive the weight c and the target 1.

    Divided by c - 1, its objective is ours with the target c / (c - 1). With items fixed, a row is linear in the
    target, and so is every step of conjugate gradients from a start in the same proportion. So half an epoch must
    give the same row times c / (c - 1).
    """
    from implicit.cpu.als import AlternatingLeastSquares

    data, c, regularization = random_data(4, 120, 80), 6.0, 7.0
    observed = sparse.csr_matrix(data.matrix, copy=True)
    observed.data[:] = 1.0
    tables = start(data, factors)
    target = c / (c - 1)
    with threadpool_limits(limits=1, user_api="blas"):  # implicit warns of more
        peer = AlternatingLeastSquares(factors=factors)
    peer.cg_steps = cg_steps
    rows = np.ascontiguousarray(tables.user_factors * np.float32(target))
    peer.solver(c * observed, rows, np.ascontiguousarray(tables.item_factors), regularization, num_threads=1)
    weights = Weights(unobserved=1 / (c - 1), regularization=regularization / (c - 1), frequency_power=0.0)
    mine = engine(data, tables, weights, cg_steps=cg_steps)
    mine._solve(mine.sides[0], beyond=0.0)
    active = np.diff(data.matrix.indptr) > 0
    assert_allclose(target * tables.user_factors[active], rows[active], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
@pytest.mark.parametrize("counted", [False, True])
def test_the_loss_is_the_objective_and_never_rises(solver: str, counted: bool) -> None:
    data = random_data()
    tables, (given, counts) = start(data, 12), random_counts(data, counted)
    last = dense_objective(data, tables.user_factors, tables.item_factors, counts) / data.n_interactions
    work = engine(data, tables, solver=solver, interaction_weights=given)
    for number in range(12):
        work.epoch(number)
        dense = dense_objective(data, tables.user_factors, tables.item_factors, counts) / data.n_interactions
        assert work.loss() == pytest.approx(dense, rel=1e-5)
        assert dense <= last * (1 + 1e-6)
        last = dense


COUNTED = {"weighting": "log", "recency": "user", "half_life": 0.3}
either = pytest.mark.parametrize("how", [{}, COUNTED], ids=["plain", "counted"])


def timed_rows(seed: int = 0) -> list[dict[str, int]]:
    """Rows with times, of which some are repeated."""
    rng = np.random.default_rng(seed)
    return [
        {"user": user, "item": int(item), "time": int(rng.integers(0, 1000))}
        for user in range(60)
        for item in rng.integers(0, 40, size=12)
    ]


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
@either
@pytest.mark.filterwarnings("ignore:IALS uses whether a pair was observed")
def test_the_factors_do_not_depend_on_the_number_of_threads(
    solver: str, how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alternating, "GRAM_ROWS", 32)
    data = tl.read(timed_rows()) if how else random_data(2, 300, 150, 0.1)
    found = set()
    for n_jobs, blas in ((1, 1), (2, 2), (3, 2), (1, 2)):
        with threadpool_limits(limits=blas, user_api="blas"):
            model = tl.IALS(factors=20, solver=solver, epochs=3, n_jobs=n_jobs, **how).fit(data)
        found.add(model.tables_.users.tobytes() + model.tables_.items.tobytes())
    assert len(found) == 1


@either
def test_a_resumed_run_ends_with_the_same_bits(how: Any, tmp_path: Path) -> None:
    data = tl.read(timed_rows()) if how else random_data()
    whole = tl.IALS(factors=8, epochs=6, **how).fit(data)
    tl.IALS(factors=8, epochs=3, **how).fit(data, checkpoint=tmp_path / "run")
    again = tl.IALS(factors=8, epochs=6, **how).fit(data, checkpoint=tmp_path / "run", resume=True)
    assert again.tables_.users.tobytes() == whole.tables_.users.tobytes()
    assert again.history_["loss"].to_list() == whole.history_["loss"].to_list()


def test_the_initialization_depends_on_the_seed_and_the_scale(world: Any) -> None:
    starts = [tl.IALS(factors=16, epochs=0, seed=seed).fit(world) for seed in (0, 0, 1)]
    assert_array_equal(starts[0].user_factors_, starts[1].user_factors_)
    assert (starts[0].user_factors_ != starts[2].user_factors_).all()
    assert starts[0].user_factors_.std() == pytest.approx(starts[0].init_scale / 4, rel=0.1)


def test_the_default_weights_follow_the_data(world: Any) -> None:
    """The weight of all pairs is 8 times that of the interactions; the mean ridge is the same at any power."""
    n_u, n_i = world.n_interactions / world.n_users, world.n_interactions / world.n_items
    weight = 8 * world.n_interactions / (world.n_users * world.n_items)
    assert (world.interactions_per_user() > 0).all()
    assert (world.popularity() > 0).all()
    for power in (0.0, 0.5, 1.0):
        model = tl.IALS(factors=4, frequency_power=power, epochs=1).fit(world)
        assert model.unobserved_weight_ == pytest.approx(min(1.0, weight))
        ridge = model._engine(world, model.tables_).sides[0].ridge
        assert ridge.mean() == pytest.approx(0.5 * n_u * (n_u**-0.5 + n_i**-0.5), rel=1e-5)
        given = tl.IALS(factors=4, frequency_power=power, epochs=1, regularization=model.regularization_)
        assert_array_equal(given.fit(world).user_factors_, model.user_factors_)


def test_the_default_ridge_does_not_shrink_sparse_data_to_zero() -> None:
    """Every user has one or two interactions; a ridge of 8 would shrink all rows to zero."""
    data = tl.read(sorted({(user, (user * step + step) % 20) for user in range(40) for step in (1, 3)}))
    usual, strong = (tl.IALS(factors=8, epochs=30, regularization=r).fit(data) for r in (None, 8.0))
    assert np.abs(usual.user_factors_).max() > 0.1
    assert np.abs(strong.user_factors_).max() < 1e-3


def test_equations_without_a_solution_are_an_error_that_says_what_to_do() -> None:
    own = np.full((3, 4), 1e12)
    with pytest.raises(DivergedError, match=r"no unique solution.*Use more regularization"):
        exact_row(own, np.zeros((4, 4)), 1e-9)


def test_new_users_without_a_solution_are_not_told_to_use_the_solver_in_use(world: Any) -> None:
    """Vectors of new users are exact with any solver."""
    model = tl.IALS(factors=4, solver="cg", epochs=1, regularization=1e-6).fit(world)
    model.item_factors_[:] = 1e12
    with pytest.raises(DivergedError, match=r"Use more regularization\.$"):
        model.with_train(world).recommend_from_items(list(world.items)[:3])


# --- interactions that do not count the same ------------------------------------------------------


@pytest.mark.parametrize("setting", [{"weighting": "linear"}, {"recency": "user"}, {"recency": "global"}], ids=str)
@pytest.mark.filterwarnings("ignore:IALS uses whether a pair was observed")
def test_repetition_and_recency_change_the_result(setting: dict[str, Any]) -> None:
    data = tl.read(timed_rows())
    plain, counted = (tl.IALS(factors=8, epochs=2, **more).fit(data) for more in ({}, setting))
    assert np.abs(counted.user_factors_ - plain.user_factors_).max() > 1e-3


def test_a_loaded_model_continues_with_weights_and_times(tmp_path: Path) -> None:
    rows = timed_rows()
    model = tl.IALS(factors=8, epochs=3, **COUNTED).fit(tl.read(rows))
    model.save(tmp_path / "model")
    more = [{"user": 3, "item": 5, "time": 2000}, {"user": 99, "item": 5, "time": 2001}]
    loaded = tl.load(tmp_path / "model").partial_fit(tl.read(more), epochs=2)
    model.partial_fit(tl.read(more), epochs=2)
    assert loaded.tables_.users.tobytes() == model.tables_.users.tobytes()
    assert loaded.train_.to_frame().equals(tl.read([*rows, *more]).to_frame())


def test_a_partial_fit_without_times_is_an_error_and_leaves_the_model_as_it_was() -> None:
    model = tl.IALS(factors=8, epochs=2, **COUNTED).fit(tl.read(timed_rows()))
    before = model.user_factors_.copy()
    with pytest.raises(ParameterError, match=r"the training data has no times.*tl\.read\(\.\.\., time="):
        model.partial_fit([(3, 5), (99, 5)])
    assert_array_equal(model.user_factors_, before)
    assert model.train_.times is not None


def test_fit_warns_of_weights_that_do_not_count_and_names_the_parameter_that_counts_them() -> None:
    data = tl.read(timed_rows())
    with pytest.warns(DataWarning, match=r'do not count\. Pass weighting="log" to count them'):
        tl.IALS(factors=4, epochs=1, recency="user").fit(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tl.IALS(factors=4, epochs=1, weighting="linear").fit(data)


@pytest.mark.parametrize(
    ("data", "how"), [(random_data(9), {}), (tl.read(timed_rows()), COUNTED)], ids=["plain", "counted"]
)
def test_the_items_of_a_list_have_the_weight_1_and_the_usual_age(data: Any, how: Any) -> None:
    model = tl.IALS(factors=8, epochs=3, **how).fit(data)
    table, weights = model.item_factors_.astype(np.float64), model._weights(data)
    history = np.array([1, 4, 7])
    observed = np.isin(np.arange(len(table)), history)[None]
    count = np.log1p(1) / np.log1p(data.matrix.data).mean() if how else 1.0
    [row] = dense_half(observed, count * observed, table, weights)
    found = model.recommend_from_items(history.tolist(), k=40).sort("item_id")
    assert_allclose(found["score"].to_numpy(), table[found["item_id"].to_numpy()] @ row, rtol=1e-4, atol=1e-5)
