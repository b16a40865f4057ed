"""The compiled engine does what a few plain lines of NumPy say, bit by bit the same on any threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import chisquare

import truelike as tl
from truelike import randomness
from truelike.negatives import parse
from truelike.objectives import BPO, BPR, NBPO, NBPOo, NBPOs, Pairwise, shift_mc
from truelike.training import sampled
from truelike.training.drawing import permutation
from truelike.training.sampled import SampledEngine
from truelike.training.samples import Recipe, Samples
from truelike.training.tables import Tables

OBJECTIVES: list[Any] = [BPO, NBPO, NBPOs, NBPOo, BPR, shift_mc(0.3)]
LAWS = ["uniform", "popularity^0.5", "popularity", "hard:3"]
PLAIN = Recipe(
    learning_rate=0.1, decay=0.9, regularization=0.4, flip_regularization=0.9, prior="batch", shrink="all",
    n_negatives=3, batch_size=40, order="file", positives="once",
)  # fmt: skip


def log_of(n_users: int = 30, n_items: int = 25, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    votes = rng.random((n_users, n_items)) < rng.uniform(0.03, 0.5, (n_users, 1))
    votes[np.arange(n_users), np.arange(n_users) % n_items] = True
    return tl.read(sparse.csr_array(votes.astype(np.float32)))


def fresh(train: Any, factors: int, flip_factors: int, seed: int = 0) -> Tables:
    tables = Tables.zeros(train.n_users, train.n_items, factors, flip_factors)
    tables.initialise("normal", 0.5, -1.0, seed)
    return tables


def trained(train: Any, objective: Any = NBPO, law: str = "uniform", recipe: Recipe = PLAIN, **how: Any) -> Tables:
    shape = how.get("shape", (5, 3))
    tables = fresh(train, *shape)
    engine = SampledEngine(
        train, tables, objective, parse(law), recipe, seed=how.get("seed", 7), n_jobs=how.get("n_jobs", 1)
    )
    for epoch in range(how.get("epochs", 2)):
        engine.epoch(epoch)
    return tables


def as_bytes(tables: Tables) -> tuple[bytes, bytes]:
    return tables.users.tobytes(), tables.items.tobytes()


# --- a reference: slow, dense and in float64 ------------------------------------------------------


def reference(
    train: Any, objective: Any, law: str, recipe: Recipe, shape: tuple[int, int], epochs: int, seed: int = 7
) -> list[Any]:
    tables = fresh(train, *shape)
    U, V = tables.user_factors.astype(float), tables.item_factors.astype(float)
    P, Q = tables.user_flips.astype(float), tables.item_flips.astype(float)
    indices, n = train.matrix.indices, train.n_interactions
    samples = Samples(train, parse(law), recipe, seed)
    weight = recipe.n_negatives if recipe.positives == "each" else 1
    share = min(1.0, recipe.batch_size / n) if recipe.prior == "epoch" else 1.0
    for epoch in range(epochs):
        rate = recipe.learning_rate * recipe.decay ** (epoch + 1)
        key = np.uint64(randomness.key(seed, "negatives", epoch))
        order = np.arange(n)
        if recipe.order == "shuffled":
            order = permutation(np.uint64(randomness.key(seed, "order", epoch)), 0, n, n)
        for start in range(0, n, recipe.batch_size):
            dU, dV, dP, dQ = (np.zeros_like(table) for table in (U, V, P, Q))
            users, items = np.zeros(len(U), bool), np.zeros(len(V), bool)
            for entry in order[start : start + recipe.batch_size]:
                u, i = train.user_of_entry[entry], indices[entry]
                drawn = samples.drawn(key, np.array([entry], dtype=np.int32))[0]
                steps: list[Any] = []
                if issubclass(objective, Pairwise):
                    for j in drawn:
                        up, down = objective.pair(U[u] @ V[i], U[u] @ V[j])
                        steps += [(i, up, 0.0), (j, down, 0.0)]
                else:
                    up, flip = objective.positive(U[u] @ V[i], P[u] @ Q[i])
                    steps.append((i, weight * up, weight * flip))
                    steps += [(j, *objective.unvoted(U[u] @ V[j], P[u] @ Q[j])) for j in drawn]
                users[u] = True
                for item, step, flip in steps:
                    items[item] = True
                    dU[u] += step * V[item]
                    dV[item] += step * U[u]
                    dP[u] += flip * Q[item]
                    dQ[item] += flip * P[u]
            for table, gradient, strength, touched in (
                (U, dU, recipe.regularization, users),
                (V, dV, recipe.regularization, items),
                (P, dP, recipe.flip_regularization, users),
                (Q, dQ, recipe.flip_regularization, items),
            ):
                rows = touched if recipe.shrink == "touched" else slice(None)
                table[rows] += rate * (gradient[rows] - strength * share * table[rows])
    return [U, V, P, Q]


def assert_like_reference(
    objective: Any, law: str, recipe: Recipe, shape: tuple[int, int] = (5, 3), epochs: int = 2
) -> None:
    train = log_of()
    tables = trained(train, objective, law, recipe, shape=shape, epochs=epochs)
    expected = reference(train, objective, law, recipe, shape, epochs)
    found = (tables.user_factors, tables.item_factors, tables.user_flips, tables.item_flips)
    start = fresh(train, *shape)
    assert np.abs(found[0] - start.user_factors).max() > 0.01  # it moved
    for ours, theirs in zip(found, expected, strict=True):
        assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
@pytest.mark.parametrize("positives", ["once", "each"])
def test_every_objective_is_its_reference(objective: Any, positives: Any) -> None:
    recipe = replace(PLAIN, positives=positives, learning_rate=0.03)
    assert_like_reference(objective, "uniform", recipe)


@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (13, 9), (16, 0), (3, 17)])
@pytest.mark.parametrize("objective", [NBPO, BPR], ids=lambda o: o.name)
def test_any_width_is_its_reference_and_the_padding_stays_zero(objective: Any, shape: tuple[int, int]) -> None:
    assert_like_reference(objective, "uniform", replace(PLAIN, learning_rate=0.03), shape=shape)
    tables = trained(log_of(), objective, shape=shape)
    used = np.zeros(tables.users.shape[1], bool)
    used[: shape[0]] = used[tables.width : tables.width + shape[1]] = True
    assert not tables.users[:, ~used].any()
    assert not tables.items[:, ~used].any()


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 100_000},
        {"batch_size": 1},
        {"batch_size": 7},
        {"prior": "epoch"},
        {"prior": "epoch", "batch_size": 100_000},
        {"shrink": "touched"},
        {"shrink": "touched", "batch_size": 6, "regularization": 3.0},
        {"batch_size": 6, "regularization": 3.0, "flip_regularization": 5.0},
        {"order": "shuffled"},
        {"order": "shuffled", "batch_size": 9, "shrink": "touched"},
        {"n_negatives": 1},
        {"n_negatives": 50, "learning_rate": 0.01},
        {"n_negatives": 50, "learning_rate": 0.01, "positives": "each"},
    ],
    ids=str,
)
@pytest.mark.parametrize("objective", [NBPO, BPR], ids=lambda o: o.name)
def test_every_switch_is_its_reference(objective: Any, change: dict[str, Any]) -> None:
    assert_like_reference(objective, "uniform", replace(PLAIN, **{"learning_rate": 0.03, **change}))


@pytest.mark.parametrize("law", ["popularity", "popularity^0.5"])
def test_other_laws_are_their_reference(law: str) -> None:
    assert_like_reference(NBPO, law, replace(PLAIN, learning_rate=0.03))


def test_a_row_that_no_batch_touches_shrinks_at_every_batch_or_never() -> None:
    """User 29 has no vote, and shrinks by 1 - rate x lambda for each of the 8 batches; or stays."""
    votes = np.zeros((30, 9), dtype=np.float32)
    votes[:29, :1] = votes[:10, 1:2] = votes[:1, 2:8] = 1
    train = tl.read(sparse.csr_array(votes))
    start = fresh(train, 5, 3)
    recipe = replace(PLAIN, batch_size=6, order="shuffled")
    batches = -(-train.n_interactions // 6)
    lazy = trained(train, recipe=recipe, epochs=1)
    assert_allclose(lazy.user_factors[29], start.user_factors[29] * (1 - 0.09 * 0.4) ** batches, rtol=1e-5)
    assert_allclose(lazy.user_flips[29], start.user_flips[29] * (1 - 0.09 * 0.9) ** batches, rtol=1e-5)
    shared = trained(train, recipe=replace(recipe, prior="epoch"), epochs=1)
    factor = (1 - 0.09 * 0.4 * 6 / train.n_interactions) ** batches
    assert_allclose(shared.user_factors[29], start.user_factors[29] * factor, rtol=1e-5)
    touched = trained(train, recipe=replace(recipe, shrink="touched"), epochs=1)
    assert_array_equal(touched.users[29], start.users[29])
    assert not np.array_equal(touched.users[0], start.users[0])


def test_the_rate_decays_before_the_first_epoch() -> None:
    train = log_of()
    halved = trained(train, recipe=replace(PLAIN, learning_rate=0.1, decay=0.5), epochs=1)
    direct = trained(train, recipe=replace(PLAIN, learning_rate=0.05, decay=1.0), epochs=1)
    assert as_bytes(halved) == as_bytes(direct)
    assert [replace(PLAIN, decay=0.5).rate(epoch) for epoch in range(3)] == [0.05, 0.025, 0.0125]


def test_the_loss_goes_down_and_is_the_mean_of_the_likelihood() -> None:
    train = log_of()
    tables = fresh(train, 5, 3)
    engine = SampledEngine(train, tables, BPO, parse("uniform"), replace(PLAIN, regularization=0.0), seed=0)
    before = engine.loss()
    for epoch in range(5):
        engine.epoch(epoch)
    assert engine.loss() < before - 0.1
    tables.users[:] = 0
    assert engine.loss() == pytest.approx(np.log(2))


# --- the same bits --------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
@pytest.mark.parametrize("order", ["file", "shuffled"])
def test_the_number_of_threads_never_shows(objective: Any, law: str, order: Any) -> None:
    train = log_of(60, 40)
    recipe = replace(PLAIN, order=order, learning_rate=0.03, batch_size=37)
    alone = as_bytes(trained(train, objective, law, recipe))
    for n_jobs in (2, 3, 8):
        assert as_bytes(trained(train, objective, law, recipe, n_jobs=n_jobs)) == alone


def test_more_threads_than_users_in_a_batch_are_no_matter() -> None:
    train = log_of(3, 30)
    recipe = replace(PLAIN, batch_size=2)
    assert as_bytes(trained(train, recipe=recipe, n_jobs=8)) == as_bytes(trained(train, recipe=recipe))


@pytest.mark.parametrize("law", ["uniform", "hard:3"])
def test_how_many_batches_run_at_once_never_shows(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    train = log_of()
    recipe = replace(PLAIN, order="shuffled", batch_size=16)
    found = set()
    for at_once in (1, 64, 200, 333, 2_000_000):
        monkeypatch.setattr(sampled, "SAMPLES_AT_ONCE", at_once)
        found.add(as_bytes(trained(train, law=law, recipe=recipe, n_jobs=2)))
    assert len(found) == 1


def test_another_seed_and_another_epoch_are_other_numbers() -> None:
    train = log_of()
    assert as_bytes(trained(train, seed=7)) != as_bytes(trained(train, seed=8))
    first, second = fresh(train, 5, 3), fresh(train, 5, 3)
    for number, tables in enumerate((first, second)):
        recipe = replace(PLAIN, decay=1.0)
        SampledEngine(train, tables, NBPO, parse("uniform"), recipe, seed=7).epoch(number)
    assert as_bytes(first) != as_bytes(second)


# --- the order of the positives -------------------------------------------------------------------


@given(st.integers(0, 2**63), st.integers(1, 3_000), st.integers(1, 400))
@settings(max_examples=60)
def test_a_permutation_holds_every_number_once_however_it_is_cut(key: int, n: int, piece: int) -> None:
    whole = permutation(np.uint64(key), 0, n, n)
    assert_array_equal(np.sort(whole), np.arange(n))
    parts = [permutation(np.uint64(key), at, min(at + piece, n), n) for at in range(0, n, piece)]
    assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("n", [50, 200])  # four rounds are too few below some dozens, where nothing hangs on it
def test_every_number_comes_at_every_place_alike(n: int) -> None:
    keys = [np.uint64(randomness.key(seed, "order")) for seed in range(4_000)]
    found = np.array([permutation(key, 0, n, n) for key in keys])
    for place in range(n):
        assert chisquare(np.bincount(found[:, place], minlength=n)).pvalue > 1e-6


def test_a_permutation_leaves_no_trace_of_the_order() -> None:
    found = permutation(np.uint64(randomness.key(1, "order")), 0, 100_000, 100_000).astype(float)
    assert abs(np.corrcoef(found, np.arange(100_000))[0, 1]) < 0.015
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.015


@pytest.mark.parametrize("batch_size", [1, 16, 10_000])
def test_an_epoch_goes_through_every_positive_once_a_batch_sorted(batch_size: int) -> None:
    train = log_of()
    recipe = replace(PLAIN, order="shuffled", batch_size=batch_size)
    n = train.n_interactions
    entries = Samples(train, parse("uniform"), recipe, seed=0).entries(5, 0, n)
    assert_array_equal(np.sort(entries), np.arange(n))
    for start in range(0, n, batch_size):
        assert (np.diff(entries[start : start + batch_size]) > 0).all()
    if batch_size < n:
        assert (np.diff(entries) < 0).any()


def test_every_compiled_equation_has_a_name_of_its_own() -> None:
    """Symbols are looked up by name: loops of one name, cached by two processes, took each other's place."""
    everything = [*OBJECTIVES, shift_mc(0.5), shift_mc(0.0)]
    functions = {function for objective in everything for function in sampled.compiled_steps(objective)}
    names = {function.py_func.__qualname__ for function in functions}
    assert len(names) >= len(functions) - 2  # the unvoted step of ShiftMC is the same at any rate
