"""ItemKNN computes its formula, at any size and on any number of threads."""

from __future__ import annotations

import tracemalloc
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import truelike as tl
from truelike.models import item_knn


def dense_similarity(observed: Any, neighbors: int | None, shrinkage: float) -> Any:
    """s_ij by the formula, dense."""
    common, root = observed.T.astype(float) @ observed, np.sqrt(observed.sum(axis=0))
    np.fill_diagonal(common, 0.0)
    length = np.outer(root, root) + shrinkage
    similarity = np.divide(common, length, out=np.zeros_like(common), where=common > 0).astype(np.float32)
    order = np.argsort(-similarity, axis=1, kind="stable")
    np.put_along_axis(similarity, order[:, observed.shape[1] if neighbors is None else neighbors :], 0, axis=1)
    return similarity


def fitted(observed: Any, **parameters: Any) -> Any:
    return tl.ItemKNN(**parameters).fit(tl.read(sparse.csr_array(observed.astype(np.float32))))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 12),
    st.integers(2, 14),
    st.sampled_from([1, 2, 3, 50, None]),
    st.sampled_from([0.0, 1.0, 10.0]),
)
@settings(max_examples=60, deadline=None)
def test_similarities_and_scores_follow_the_formula(
    seed: int, n_users: int, n_items: int, neighbors: Any, shrinkage: float
) -> None:
    rng = np.random.default_rng(seed)
    observed = rng.random((n_users, n_items)) < 0.4
    observed[0, 0] = True
    model = fitted(observed, neighbors=neighbors, shrinkage=shrinkage)
    expected = dense_similarity(observed, neighbors, shrinkage)
    assert_array_equal(model.similarity_.toarray(), expected)
    scores = observed.astype(np.float64) @ expected.T.astype(np.float64)
    users, items = np.meshgrid(np.arange(n_users), np.arange(n_items), indexing="ij")
    found = model.score(users.ravel(), items.ravel()).reshape(scores.shape)
    assert_allclose(found, scores, rtol=1e-6, atol=1e-7)


def test_items_with_few_common_users_are_not_similar() -> None:
    observed = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 0, 1]], dtype=bool)
    common = observed.T.astype(int) @ observed
    every = fitted(observed, shrinkage=0.0).similarity_.toarray()
    for least, weighting in product((1, 2, 3, 4), ("none", "log")):
        model = fitted(observed, shrinkage=0.0, min_support=least, weighting=weighting)
        assert_array_equal(model.similarity_.toarray(), np.where(common >= least, every, 0))
    model = fitted(observed, shrinkage=0.0, min_support=3)
    assert model.similar_items([0, 1, 2])["similar_item_id"].to_list() == [1, 0], "2 has none"
    with pytest.raises(tl.errors.ParameterError, match="min_support is 0"):
        tl.ItemKNN(min_support=0)


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, None]), st.sampled_from(["linear", "log"]))
@settings(max_examples=20, deadline=None)
def test_with_weights_they_are_cosines_of_weighted_columns(seed: int, neighbors: Any, weighting: str) -> None:
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((9, 7)) < 0.5, rng.integers(1, 9, (9, 7)), 0.0)
    X[0, :2] = 3.0
    model = tl.ItemKNN(neighbors=neighbors, shrinkage=0.7, weighting=weighting).fit(tl.read(sparse.csr_array(X)))
    C = np.log1p(X) if weighting == "log" else X
    C = C / C[X > 0].mean()
    common, root = C.T @ C, np.sqrt((C**2).sum(axis=0))
    np.fill_diagonal(common, 0.0)
    expected = common / (np.outer(root, root) + 0.7)
    if neighbors is not None:
        np.put_along_axis(expected, np.argsort(-expected, axis=1, kind="stable")[:, neighbors:], 0.0, axis=1)
    assert_allclose(model.similarity_.toarray(), expected, rtol=1e-5, atol=1e-7)
    assert_allclose(model.scorer.score_users(np.arange(9)), C @ expected.T, rtol=1e-4, atol=1e-6)


def test_the_result_does_not_depend_on_threads_or_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = np.random.default_rng(1).random((80, 60)) < 0.2
    whole = fitted(observed, neighbors=7).similarity_
    for memory in (1, 16 * 60 * 7, 2**25):
        monkeypatch.setattr(item_knn, "MAX_SIMILARITY_BYTES", memory)
        for n_jobs in (1, 2, 3):
            part = fitted(observed, neighbors=7, n_jobs=n_jobs).similarity_
            assert_array_equal(part.indptr, whole.indptr)
            assert_array_equal(part.indices, whole.indices)
            assert part.data.tobytes() == whole.data.tobytes()


def test_memory_does_not_grow_with_the_square_of_the_catalogue() -> None:
    """30,000 items: a dense matrix of items by items would take 3.6 GB."""
    n_users, n_items, n = 10_000, 30_000, 100_000
    rng = np.random.default_rng(0)
    users = rng.integers(0, n_users, n)
    items = (n_items * rng.random(n) ** 2).astype(np.int64)  # the first items are the popular ones
    pairs = np.unique(np.column_stack([users, items]), axis=0).T
    data = tl.read(sparse.coo_array((np.ones(pairs.shape[1]), tuple(pairs)), shape=(n_users, n_items)))
    tracemalloc.start()
    model = tl.ItemKNN(neighbors=100).fit(data)
    frame = model.recommend([1, 2, 3], k=10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert frame["score"].min() > 0
    assert np.diff(model.similarity_.indptr).max() == 100
    assert peak < 150e6


def test_items_without_a_common_user_are_not_listed_as_similar() -> None:
    data = tl.read([(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "c"), (2, "d")])
    frame = tl.ItemKNN().fit(data).similar_items("a", k=10)
    assert frame["similar_item_id"].to_list() == ["b"]
    assert frame["score"].min() > 0


@pytest.mark.parametrize("model", [tl.ItemKNN(shrinkage=0.0), tl.EASE(neighbors=1, regularization=1.0)], ids=str)
def test_items_without_a_similar_one_come_last_by_popularity_with_score_0(model: Any) -> None:
    rows = [(0, "x"), (0, "y"), (1, "x")]
    rows += [(user, item) for item, users in (("a", 1), ("b", 3), ("c", 2)) for user in range(10, 10 + users)]
    frame = model.fit(tl.read(rows)).recommend(1, k=5)
    assert frame["item_id"].to_list() == ["y", "b", "c", "a"]
    assert frame["score"].to_list()[1:] == [0.0, 0.0, 0.0]
    assert model.recommend_from_items(["x"], k=5)["item_id"].to_list() == ["y", "b", "c", "a"]


def test_without_a_shrinkage_it_follows_the_length_of_histories() -> None:
    long = fitted(np.ones((4, 55), dtype=bool))
    assert long.shrinkage_ == 4.0  # (110 / 55)^2
    assert_array_equal(
        long.similarity_.toarray(), fitted(np.ones((4, 55), dtype=bool), shrinkage=4.0).similarity_.toarray()
    )
    assert fitted(np.ones((4, 2), dtype=bool)).shrinkage_ == 300.0
    assert fitted(np.ones((4, 2), dtype=bool), shrinkage=1).shrinkage_ == 1.0
