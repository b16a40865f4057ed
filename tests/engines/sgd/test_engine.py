"""The sampled engine equals a NumPy reference, with the same bits on any number of threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import chisquare
from tests.engines.data import make_dataset

import truelike as tl
from truelike.core import memory, randomness
from truelike.engines.sgd import engine as sampled
from truelike.engines.sgd.engine import SampledEngine
from truelike.engines.sgd.negative_sampling import permutation
from truelike.engines.sgd.samples import BLOCK_SIZE, LEAST_BLOCKS, BlockOrder, Samples, SGDSettings
from truelike.engines.tables import Tables
from truelike.errors import ParameterError, TooLargeError
from truelike.negatives import parse
from truelike.objectives import BPO, BPR, NBPO, NBPOo, NBPOs, Pairwise, Softmax, shift_mc
from truelike.objectives.compiler import compiled_steps

OBJECTIVES: list[Any] = [BPO, NBPO, NBPOs, NBPOo, BPR, shift_mc(0.3)]
NEGATIVES = ["uniform", "popularity^0.5", "popularity", "hard:3"]
SETTINGS = SGDSettings(
    learning_rate=0.1, decay=0.9, regularization=0.4, flip_regularization=0.9, l2_schedule="batch",
    n_negatives=3, batch_size=40, order="file", positive_weight="once",
)  # fmt: skip


def initial_tables(train: Any, factors: int, flip_factors: int, seed: int = 0) -> Tables:
    tables = Tables.zeros(train.n_users, train.n_items, factors, flip_factors)
    tables.initialise("normal", 0.5, -1.0, seed)
    return tables


def trained(
    train: Any, objective: Any = NBPO, negatives: str = "uniform", settings: SGDSettings = SETTINGS, **options: Any
) -> Tables:
    shape = options.get("shape", (5, 3))
    tables = initial_tables(train, *shape)
    engine = SampledEngine(
        train,
        tables,
        objective,
        parse(negatives),
        settings,
        seed=options.get("seed", 7),
        n_jobs=options.get("n_jobs", 1),
        interaction_weights=options.get("weights"),
    )
    for epoch in range(options.get("epochs", 2)):
        engine.epoch(epoch)
    return tables


def as_bytes(tables: Tables) -> tuple[bytes, bytes]:
    return tables.users.tobytes(), tables.items.tobytes()


# --- the reference: dense, one sample at a time, in float64 ----------------------------------------


def reference_steps(
    objective: Any, weight: int, i: int, drawn: Any, r: Any, g: Any
) -> list[tuple[int, float, float]]:
    """The steps of a positive i and its negatives: item, step of r, step of g."""
    if issubclass(objective, Pairwise):
        pairs = [(j, objective.pair(r[i], r[j])) for j in drawn]
        return [step for j, (up, down) in pairs for step in ((i, up, 0.0), (j, down, 0.0))]
    up, flip = objective.positive(r[i], g[i])
    return [(i, weight * up, weight * flip), *((j, *objective.negative(r[j], g[j])) for j in drawn)]


def reference(
    train: Any,
    objective: Any,
    negatives: str,
    settings: SGDSettings,
    shape: tuple[int, int],
    epochs: int,
    seed: int = 7,
    weights: Any = None,
) -> list[Any]:
    tables = initial_tables(train, *shape)
    U, V = tables.user_factors.astype(float), tables.item_factors.astype(float)
    P, Q = tables.user_flips.astype(float), tables.item_flips.astype(float)
    indices, n = train.matrix.indices, train.n_interactions
    samples = Samples(train, parse(negatives), settings, seed)
    weight = settings.n_negatives if settings.positive_weight == "per_negative" else 1
    batch_part = min(1.0, settings.batch_size / n) if settings.l2_schedule == "epoch" else 1.0
    for epoch in range(epochs):
        rate = settings.learning_rate * settings.decay ** (epoch + 1)
        key = np.uint64(randomness.key(seed, "negatives", epoch))
        order = samples.entries(epoch, 0, n)
        if settings.order == "shuffled":
            order = permutation(np.uint64(randomness.key(seed, "order", epoch)), 0, n, n)
        for start in range(0, n, settings.batch_size):
            dU, dV, dP, dQ = (np.zeros_like(table) for table in (U, V, P, Q))
            before, done = (U.copy(), P.copy()), np.zeros(len(U), int)
            for entry in order[start : start + settings.batch_size]:
                u, i = train.user_of_entry[entry], indices[entry]
                if settings.order == "blocks" and done[u] % max(1, 64 // (1 + settings.n_negatives)) == 0:
                    U[u], P[u] = before[0][u] + rate * dU[u], before[1][u] + rate * dP[u]
                done[u] += 1
                drawn = samples.draw(key, np.array([entry], dtype=np.int32))[0]
                steps = reference_steps(objective, weight, i, drawn, V @ U[u], Q @ P[u])
                for place, (item, step, flip) in enumerate(steps):
                    if weights is not None and (place == 0 or issubclass(objective, Pairwise)):
                        step, flip = weights[entry] * step, weights[entry] * flip
                    dU[u] += step * V[item]
                    dV[item] += step * U[u]
                    dP[u] += flip * Q[item]
                    dQ[item] += flip * P[u]
            # L2 shrinks a user's row as the last block was scored with it
            dU -= settings.regularization * batch_part * (U - before[0])
            dP -= settings.flip_regularization * batch_part * (P - before[1])
            U, P = before
            for table, gradient, regularization in (
                (U, dU, settings.regularization),
                (V, dV, settings.regularization),
                (P, dP, settings.flip_regularization),
                (Q, dQ, settings.flip_regularization),
            ):
                table += rate * (gradient - regularization * batch_part * table)
    return [U, V, P, Q]


def assert_like_reference(
    objective: Any,
    negatives: str,
    settings: SGDSettings,
    shape: tuple[int, int] = (5, 3),
    epochs: int = 2,
    weights: Any = None,
) -> None:
    train = make_dataset()
    tables = trained(train, objective, negatives, settings, shape=shape, epochs=epochs, weights=weights)
    expected = reference(train, objective, negatives, settings, shape, epochs, weights=weights)
    found = (tables.user_factors, tables.item_factors, tables.user_flips, tables.item_flips)
    start = initial_tables(train, *shape)
    assert np.abs(found[0] - start.user_factors).max() > 0.01  # it was trained
    for ours, theirs in zip(found, expected, strict=True):
        assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
@pytest.mark.parametrize("positive_weight", ["once", "per_negative"])
def test_every_objective_equals_the_reference(objective: Any, positive_weight: Any) -> None:
    settings = replace(SETTINGS, positive_weight=positive_weight, learning_rate=0.03)
    assert_like_reference(objective, "uniform", settings)


@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (13, 9), (16, 0), (3, 17)])
@pytest.mark.parametrize("objective", [NBPO, BPR], ids=lambda o: o.name)
def test_any_width_equals_the_reference_and_the_padding_stays_zero(objective: Any, shape: tuple[int, int]) -> None:
    assert_like_reference(objective, "uniform", replace(SETTINGS, learning_rate=0.03), shape=shape)
    tables = trained(make_dataset(), objective, shape=shape)
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
        {"l2_schedule": "epoch"},
        {"l2_schedule": "epoch", "batch_size": 100_000},
        {"batch_size": 6, "regularization": 3.0},
        {"batch_size": 6, "regularization": 3.0, "flip_regularization": 5.0},
        {"order": "shuffled"},
        {"order": "blocks"},
        {"order": "blocks", "batch_size": 100_000, "n_negatives": 30, "learning_rate": 0.01},
        {"order": "blocks", "batch_size": 150, "n_negatives": 50, "learning_rate": 0.01, "l2_schedule": "epoch"},
        {"n_negatives": 1},
        {"n_negatives": 50, "learning_rate": 0.01},
        {"n_negatives": 50, "learning_rate": 0.01, "positive_weight": "per_negative"},
        {"n_negatives": 64, "learning_rate": 0.01},
        {"n_negatives": 301, "learning_rate": 0.002, "order": "blocks"},
    ],
    ids=str,
)
@pytest.mark.parametrize("objective", [NBPO, BPR], ids=lambda o: o.name)
def test_every_setting_equals_the_reference(objective: Any, change: dict[str, Any]) -> None:
    assert_like_reference(objective, "uniform", replace(SETTINGS, **{"learning_rate": 0.03, **change}))


@pytest.mark.parametrize("negatives", ["popularity", "popularity^0.5"])
def test_other_negatives_equal_the_reference(negatives: str) -> None:
    assert_like_reference(NBPO, negatives, replace(SETTINGS, learning_rate=0.03))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
@pytest.mark.parametrize("order", ["file", "blocks"])
def test_the_step_of_a_positive_is_multiplied_by_its_weight(objective: Any, order: Any) -> None:
    weights = np.random.default_rng(1).exponential(1, make_dataset().n_interactions).astype(np.float32)
    assert_like_reference(
        objective, "uniform", replace(SETTINGS, order=order, learning_rate=0.03), weights=weights
    )
    ones = np.ones_like(weights)
    assert as_bytes(trained(make_dataset(), objective, weights=ones)) == as_bytes(
        trained(make_dataset(), objective)
    )


def test_a_row_that_no_batch_touches_shrinks_at_every_batch() -> None:
    """User 29 has no positives. Its row shrinks by 1 - rate x lambda at each batch."""
    observed = np.zeros((30, 9), dtype=np.float32)
    observed[:29, :1] = observed[:10, 1:2] = observed[:1, 2:8] = 1
    train = tl.read(sparse.csr_array(observed))
    start = initial_tables(train, 5, 3)
    settings = replace(SETTINGS, batch_size=6, order="shuffled")
    batches = -(-train.n_interactions // 6)
    lazy = trained(train, settings=settings, epochs=1)
    assert_allclose(lazy.user_factors[29], start.user_factors[29] * (1 - 0.09 * 0.4) ** batches, rtol=1e-5)
    assert_allclose(lazy.user_flips[29], start.user_flips[29] * (1 - 0.09 * 0.9) ** batches, rtol=1e-5)
    shared = trained(train, settings=replace(settings, l2_schedule="epoch"), epochs=1)
    factor = (1 - 0.09 * 0.4 * 6 / train.n_interactions) ** batches
    assert_allclose(shared.user_factors[29], start.user_factors[29] * factor, rtol=1e-5)


def test_the_loss_decreases_and_is_the_mean_likelihood() -> None:
    train = make_dataset()
    tables = initial_tables(train, 5, 3)
    engine = SampledEngine(train, tables, BPO, parse("uniform"), replace(SETTINGS, regularization=0.0), seed=0)
    before = engine.loss()
    for epoch in range(5):
        engine.epoch(epoch)
    assert engine.loss() < before - 0.1
    tables.users[:] = 0
    assert engine.loss() == pytest.approx(np.log(2))


# --- reproducibility ------------------------------------------------------------------------------


@pytest.mark.parametrize("negatives", NEGATIVES)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
@pytest.mark.parametrize("order", ["file", "shuffled", "blocks"])
def test_the_number_of_threads_does_not_change_the_result(objective: Any, negatives: str, order: Any) -> None:
    train = make_dataset(60, 40)
    settings = replace(SETTINGS, order=order, learning_rate=0.03, batch_size=37)
    alone = as_bytes(trained(train, objective, negatives, settings))
    for n_jobs in (2, 3, 8):
        assert as_bytes(trained(train, objective, negatives, settings, n_jobs=n_jobs)) == alone


def test_there_may_be_more_threads_than_users_in_a_batch() -> None:
    train = make_dataset(3, 30)
    settings = replace(SETTINGS, batch_size=2)
    assert as_bytes(trained(train, settings=settings, n_jobs=8)) == as_bytes(trained(train, settings=settings))


@pytest.mark.parametrize("order", ["shuffled", "blocks"])
@pytest.mark.parametrize("negatives", ["uniform", "hard:3"])
def test_the_number_of_batches_per_call_does_not_change_the_result(
    negatives: str, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = make_dataset()
    settings = replace(SETTINGS, order=order, batch_size=16)
    found = set()
    for samples_per_call in (1, 64, 200, 333, 2_000_000):
        monkeypatch.setattr(sampled, "SAMPLES_PER_CALL", samples_per_call)
        found.add(as_bytes(trained(train, negatives=negatives, settings=settings, n_jobs=2)))
    assert len(found) == 1


def test_another_seed_or_epoch_gives_another_result() -> None:
    train = make_dataset()
    assert as_bytes(trained(train, seed=7)) != as_bytes(trained(train, seed=8))
    first, second = initial_tables(train, 5, 3), initial_tables(train, 5, 3)
    for number, tables in enumerate((first, second)):
        settings = replace(SETTINGS, decay=1.0)
        SampledEngine(train, tables, NBPO, parse("uniform"), settings, seed=7).epoch(number)
    assert as_bytes(first) != as_bytes(second)


# --- the order of the positives -------------------------------------------------------------------


@given(st.integers(0, 2**63), st.integers(1, 3_000), st.integers(1, 400))
@examples(max_examples=60)
def test_a_permutation_contains_every_number_once_and_can_be_computed_in_pieces(
    key: int, n: int, piece: int
) -> None:
    whole = permutation(np.uint64(key), 0, n, n)
    assert_array_equal(np.sort(whole), np.arange(n))
    parts = [permutation(np.uint64(key), at, min(at + piece, n), n) for at in range(0, n, piece)]
    assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize(
    "n", [50, 200]
)  # below some dozens the four rounds are not uniform, which does not matter
def test_every_number_is_equally_likely_at_every_place(n: int) -> None:
    keys = [np.uint64(randomness.key(seed, "order")) for seed in range(4_000)]
    found = np.array([permutation(key, 0, n, n) for key in keys])
    for place in range(n):
        assert chisquare(np.bincount(found[:, place], minlength=n)).pvalue > 1e-6


@pytest.mark.parametrize("order", ["shuffled", "blocks"])
@pytest.mark.parametrize("batch_size", [1, 16, 10_000])
def test_an_epoch_contains_every_positive_once_and_sorts_each_batch(batch_size: int, order: Any) -> None:
    train = make_dataset()
    settings = replace(SETTINGS, order=order, batch_size=batch_size)
    n = train.n_interactions
    entries = Samples(train, parse("uniform"), settings, seed=0).entries(5, 0, n)
    assert_array_equal(np.sort(entries), np.arange(n))
    for start in range(0, n, batch_size):
        batch = entries[start : start + batch_size]
        assert (np.diff(batch if order == "shuffled" else train.user_of_entry[batch]) >= 0).all()
    if batch_size < n:
        assert (np.diff(entries) < 0).any()


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=30).filter(any), st.integers(0, 2**63), st.integers(1, 500)
)
@examples(max_examples=60)
def test_blocks_are_random_parts_of_a_users_positives(counts: list[int], key: int, piece: int) -> None:
    observed = np.arange(201) < np.array(counts)[:, None]
    train = tl.read(sparse.csr_array(observed.astype(np.float32)))
    n, blocks = train.n_interactions, BlockOrder(train)
    whole = blocks.entries(np.uint64(key), 0, n, 1)  # in batches of one nothing is sorted
    assert_array_equal(np.sort(whole), np.arange(n))
    batches = blocks.entries(np.uint64(key), 0, n, piece)
    for at in range(0, n, piece):
        batch = batches[at : at + piece]
        assert_array_equal(blocks.entries(np.uint64(key), at, min(at + piece, n), piece), batch)
        assert_array_equal(np.sort(batch), np.sort(whole[at : at + piece]))
        assert (np.diff(train.user_of_entry[batch]) >= 0).all()
    users = train.user_of_entry[whole]
    _, starts = blocks.order(np.uint64(key))
    for start, end in zip(starts, [*starts[1:], n], strict=True):
        user = users[start]
        n_blocks = max(-(-counts[user] // BLOCK_SIZE), min(counts[user], LEAST_BLOCKS))
        assert (users[start:end] == user).all()
        assert end - start in (counts[user] // n_blocks, -(-counts[user] // n_blocks))  # equal sizes, up to one
        assert (np.diff(whole[start:end]) > 0).all()


def test_a_batch_that_does_not_fit_into_memory_is_an_error_that_says_what_to_lower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 10**7)
    with pytest.raises(
        TooLargeError, match=r"with 5,000 negatives each would take .*smaller batch_size, or fewer"
    ):
        tl.BPR(n_negatives=5_000, n_jobs=1).fit(make_dataset(60, 40), progress=False)


def test_a_listwise_objective_is_an_error() -> None:
    train = make_dataset()
    with pytest.raises(ParameterError, match="Softmax is neither pointwise nor pairwise"):
        SampledEngine(train, initial_tables(train, 5, 3), Softmax, parse("uniform"), SETTINGS, seed=0)


def test_every_compiled_function_has_a_unique_name() -> None:
    """numba finds cached functions by name. Two loops of one name, cached by two processes, were mixed up."""
    everything = [*OBJECTIVES, shift_mc(0.5), shift_mc(0.0)]
    functions = {function for objective in everything for function in compiled_steps(objective)}
    names = {function.py_func.__qualname__ for function in functions}
    assert len(names) >= len(functions) - 2  # the negative step of ShiftMC is the same at any flip rate
