"""The best k items of each user are those of a full stable sort, for any block size and number of threads."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

import truelike as tl
from truelike.errors import ParameterError
from truelike.ranking.factor_ranker import FactorRanker
from truelike.ranking.kernels import TILE
from truelike.ranking.top_k import TopK, tie_places, top_k_by_scores

SEEDS = st.integers(0, 2**32 - 1)


def top_k_by_factors(
    U: Any, V: Any, users: Any, k: int, *, item_bias: Any = None, ties: Any = None, **options: Any
) -> TopK:
    return FactorRanker(V, item_bias, ties=ties).top_k(U[users], k, rows=users, **options)


def by_full_sort(scores: Any, users: Any, k: int, seen: Any, allowed: Any, ties: Any = None) -> TopK:
    """The list of each user by sorting Python tuples."""
    n_items = scores.shape[1]
    places = range(n_items) if ties is None else ties
    kept = min(k, n_items)
    items = np.full((len(users), kept), -1, dtype=np.int32)
    values = np.full((len(users), kept), -np.inf, dtype=np.float32)
    for row, user in enumerate(users):
        left = [
            (-float(scores[user, item]), places[item], item)
            for item in range(n_items)
            if not np.isnan(scores[user, item])
            and not (seen is not None and seen[user, item])
            and not (allowed is not None and not allowed[item])
        ]
        for place, (_, _, item) in enumerate(sorted(left)[:kept]):
            items[row, place], values[row, place] = item, scores[user, item]
    return TopK(items, values)


def assert_same(found: TopK, expected: TopK) -> None:
    assert_array_equal(found.items, expected.items)
    assert found.scores.tobytes() == expected.scores.tobytes()


def csr(pattern: Any) -> Any:
    return None if pattern is None else sparse.csr_array(pattern.astype(np.float32))


@given(
    SEEDS,
    st.integers(1, 9),
    st.integers(1, 300),
    st.integers(1, 400),
    st.sampled_from([1, 3_000, 2**26]),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_top_k_by_scores_is_a_full_stable_sort(
    seed: int, n_users: int, n_items: int, k: int, memory: int, n_jobs: int, mask: bool, ban: bool
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-3, 4, size=(n_users, n_items)).astype(np.float32)
    scores[rng.random(scores.shape) < 0.1] = np.nan
    seen = rng.random(scores.shape) < rng.choice([0.1, 0.9]) if mask else None
    allowed = rng.random(n_items) < 0.7 if ban else None
    users = rng.integers(0, n_users, size=rng.integers(0, 2 * n_users + 1)).astype(np.int32)
    ties = rng.permutation(n_items).astype(np.int32) if rng.random() < 0.7 else None
    found = top_k_by_scores(
        lambda block: scores[block], users, k,
        n_items=n_items, seen=csr(seen), allowed=allowed, ties=ties, n_jobs=n_jobs, memory=memory,
    )  # fmt: skip
    assert_same(found, by_full_sort(scores, users, k, seen, allowed, ties))


@given(
    SEEDS,
    st.integers(1, 7),
    st.sampled_from([1, 5, 129, TILE - 1, TILE, TILE + 1, 2 * TILE + 77]),
    st.integers(1, 9),
    st.sampled_from([1, 10, 128, 129, 200, 5_000]),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_top_k_by_factors_is_a_full_stable_sort(
    seed: int, n_users: int, n_items: int, width: int, k: int, n_jobs: int, mask: bool, ban: bool, lean: bool
) -> None:
    """Small whole numbers as factors make every sum exact and give many ties."""
    rng = np.random.default_rng(seed)
    U = rng.integers(-2, 3, size=(n_users, width)).astype(np.float32)
    V = rng.integers(-2, 3, size=(n_items, width)).astype(np.float32)
    bias = rng.integers(-2, 3, size=n_items).astype(np.float32) if lean else None
    scores = U @ V.T + (0 if bias is None else bias)
    scores += np.float32(0)  # -0 is 0
    seen = rng.random(scores.shape) < rng.choice([0.1, 0.95]) if mask else None
    allowed = rng.random(n_items) < 0.7 if ban else None
    users = rng.integers(0, n_users, size=rng.integers(0, 2 * n_users + 1)).astype(np.int32)
    ties = rng.permutation(n_items).astype(np.int32) if rng.random() < 0.7 else None
    options = {"seen": csr(seen), "allowed": allowed, "n_jobs": n_jobs}
    found = top_k_by_factors(U, V, users, k, item_bias=bias, ties=ties, **options)
    expected = by_full_sort(scores, users, k, seen, allowed, ties)
    assert_array_equal(found.items, expected.items)
    assert_array_equal(found.scores, expected.scores)


@pytest.fixture(scope="module")
def factors() -> tuple[Any, Any, Any, Any]:
    """Real numbers, so that sums depend on their order in the last bits."""
    rng = np.random.default_rng(11)
    U = rng.normal(size=(601, 37)).astype(np.float32)
    V = rng.normal(size=(TILE + 333, 37)).astype(np.float32)
    return U, V, rng.normal(size=len(V)).astype(np.float32), csr(rng.random((len(U), len(V))) < 0.05)


@pytest.mark.parametrize("k", [20, 128, 129, 500])
def test_the_number_of_threads_does_not_change_the_result(factors: Any, k: int) -> None:
    U, V, bias, seen = factors
    users = np.arange(len(U), dtype=np.int32)
    one, *others = (top_k_by_factors(U, V, users, k, item_bias=bias, seen=seen, n_jobs=n) for n in (1, 2, 3, -1))
    for other in others:
        assert_same(other, one)


@pytest.mark.parametrize("k", [3, 200])
def test_items_with_nan_factors_are_never_listed(k: int) -> None:
    U, V = np.ones((2, 3), dtype=np.float32), np.ones((250, 3), dtype=np.float32)
    V[[0, 7]] = np.nan
    U[1] = np.nan
    found = top_k_by_factors(U, V, np.array([0, 1], dtype=np.int32), k)
    assert not np.isin(found.items[0], [0, 7]).any()
    assert (found.items[1] == -1).all()


@pytest.mark.parametrize("k", [0, -1])
def test_a_list_length_below_1_is_an_error(k: int) -> None:
    scores = np.ones((1, 4), dtype=np.float32)
    with pytest.raises(ParameterError, match=f"k is {k}"):
        top_k_by_scores(lambda block: scores[block], np.array([0]), k, n_items=4)
    with pytest.raises(ParameterError, match=f"k is {k}"):
        top_k_by_factors(scores, np.ones((3, 4), dtype=np.float32), np.array([0]), k)


@pytest.mark.parametrize("user", [-1, 5])
def test_a_row_number_out_of_range_is_an_error(user: int) -> None:
    model = tl.ItemPop().fit(tl.read([(u, i) for u in range(5) for i in range(u + 1)]))
    with pytest.raises(ParameterError, match="row numbers from 0 to 4"):
        model.scorer.top_k(np.array([user], dtype=np.int32), 2)
    with pytest.raises(ParameterError, match="row numbers from 0 to 4"):
        model.scorer.top_k(np.array([user], dtype=np.int32), 2, exclude_seen=False)
    with pytest.raises(ParameterError, match="row numbers from 0 to 4"):
        model.scorer.top_k(np.array([0, user], dtype=np.int32), 2)


@pytest.mark.parametrize("name", ["ItemPop", "ItemKNN"])
def test_evaluation_never_stores_the_scores_of_all_users_and_items(name: str) -> None:
    n_users, n_items = 5_000, 4_000
    rng = np.random.default_rng(0)
    matrix = sparse.coo_array(
        (np.ones(50_000), (rng.integers(0, n_users, 50_000), rng.integers(0, n_items, 50_000))),
        shape=(n_users, n_items),
    )
    matrix = sparse.csr_array(matrix)
    matrix.data[:] = 1
    split = tl.splits.random(tl.read(matrix), validation=0.0, test=0.2)
    model = getattr(tl, name)().fit(split.train)
    tl.evaluate(model, split.test, ks=(20,), n_jobs=2)
    tracemalloc.start()
    result = tl.evaluate(model, split.test, ks=(20,), n_jobs=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(result.users) > 0.7 * n_users
    assert peak < 0.5 * 4 * n_users * n_items


def test_of_equal_scores_the_more_popular_item_is_first_and_low_ids_are_not_favoured() -> None:
    places = tie_places(np.repeat([3, 7], 1_000))
    assert places[1_000:].max() < places[:1_000].min()
    for equal in (places[:1_000], places[1_000:]):
        assert abs(np.corrcoef(equal, np.arange(1_000))[0, 1]) < 0.1


def test_reversed_ids_do_not_make_a_better_list() -> None:
    """A list of ItemPop holds as many of the first as of the last of equally popular items."""
    first = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        names = rng.permutation(1_000)[: rng.integers(40, 80)]  # ids whose order says nothing
        data = tl.read([(user, int(item)) for user in range(3) for item in names] + [(9, 2_000)])
        listed = tl.ItemPop().fit(data).recommend(9, k=10)["item_id"].to_numpy()
        first += int((listed < np.median(names)).sum())
    assert 140 < first < 260  # of 400; by row number all are among the first
