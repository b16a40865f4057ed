"""The sparse weights of EASE are those of ridge regressions on the most helpful items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from truelike.models import local_ridge
from truelike.models.local_ridge import local_regressions, local_weights


def random_interactions(seed: int, n_users: int, n_items: int, share: float) -> Any:
    observed = np.random.default_rng(seed).random((n_users, n_items)) < share
    observed[0, 0] = True
    return observed.astype(np.float64)


def csr(observed: Any) -> Any:
    return sparse.csr_array(observed.astype(np.float32))


def restricted_regressions(X: Any, ridge: Any, neighbors: int) -> tuple[Any, Any]:
    """Row j: the ridge regression of item j on the items that alone explain most, by least squares; and the errors."""
    n = X.shape[1]
    G = X.T @ X
    popularity = np.diag(G).copy()
    by_popularity = np.argsort(-(X > 0).sum(axis=0), kind="stable")
    B, errors = np.zeros((n, n)), np.zeros(n)
    for j in range(n):
        gain = G[:, j] ** 2 / (popularity + ridge)
        order = sorted((i for i in by_popularity if i != j and G[i, j] > 0), key=lambda i: -gain[i])
        near = np.array(order[:neighbors], dtype=int)
        left = np.vstack([X[:, near], np.diag(np.sqrt(ridge[near]))])
        right = np.concatenate([X[:, j], np.zeros(len(near))])
        B[j, near] = np.linalg.lstsq(left, right, rcond=None)[0]
        errors[j] = popularity[j] + ridge[j] - G[j, near] @ B[j, near]
    return B, errors


def symmetric_weights(B: Any, errors: Any) -> Any:
    """B_ij = -P_ij / P_jj, where P_ij is the mean of the estimates that there are; only positive ones."""
    P, known = B / errors[:, None], (B != 0).astype(int)
    return np.maximum((P + P.T) / np.maximum(known + known.T, 1) * errors, 0.0)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 40]))
@settings(max_examples=30, deadline=None)
def test_interactions_may_have_weights(seed: int, neighbors: int) -> None:
    rng = np.random.default_rng(seed)
    X = random_interactions(seed, 20, 12, 0.3) * rng.exponential(1.0, (20, 12)).astype(np.float32)
    ridge, by_user = rng.uniform(0.5, 5.0, 12), csr(X)
    expected, errors = restricted_regressions(X, ridge, neighbors)
    plain = sparse.csr_array((np.ones(by_user.nnz), by_user.indices, by_user.indptr), shape=X.shape)
    found, left = local_regressions(plain, ridge, neighbors, 1, counts=by_user.data)
    assert_allclose(found.toarray(), expected, rtol=1e-4, atol=1e-6)
    assert_allclose(left, errors, rtol=1e-6)
    weights = local_weights(plain, ridge, neighbors, 2, counts=by_user.data)
    assert_allclose(weights.toarray(), symmetric_weights(expected, errors), rtol=1e-4, atol=1e-5)


@given(
    st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(2, 25),
    st.sampled_from([1, 2, 5, 9, 40]), st.sampled_from([0.05, 0.3]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_weights_are_those_of_regressions_on_the_most_helpful_items(
    seed: int, n_users: int, n_items: int, neighbors: int, share: float
) -> None:
    X = random_interactions(seed, n_users, n_items, share)
    ridge = np.random.default_rng(seed).uniform(0.5, 5.0, n_items)  # no two items are equally helpful
    expected, errors = restricted_regressions(X, ridge, neighbors)
    found, left = local_regressions(csr(X), ridge, neighbors, 1)
    assert_allclose(found.toarray(), expected, rtol=1e-4, atol=1e-6)
    assert_allclose(left, errors, rtol=1e-6)
    weights = local_weights(csr(X), ridge, neighbors, 2)
    assert weights.has_canonical_format
    assert weights.data.dtype == np.float32
    assert_allclose(weights.toarray(), symmetric_weights(expected, errors), rtol=1e-4, atol=1e-6)


def test_of_equally_helpful_items_the_more_popular_are_kept() -> None:
    X = np.ones((3, 5))
    found, _ = local_regressions(csr(X), np.ones(5), 2, 1)
    assert found.indices.reshape(5, 2).tolist() == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]]


def test_long_lists_of_pairs_are_searched_and_short_ones_read() -> None:
    """Both ways give the same: a popular item among few neighbors, and many neighbors."""
    X = random_interactions(4, 400, 120, 0.2)
    ridge = np.full(120, 3.0) + np.arange(120) / 1e3
    for neighbors in (2, 60):
        expected, _ = restricted_regressions(X, ridge, neighbors)
        assert_allclose(
            local_regressions(csr(X), ridge, neighbors, 1)[0].toarray(), expected, rtol=1e-4, atol=1e-6
        )


def test_the_weights_do_not_depend_on_threads_or_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    X = csr(random_interactions(2, 300, 150, 0.1))
    whole = local_weights(X, np.full(150, 4.0), 12, 1)
    for rows in (1, 7, 64):
        monkeypatch.setattr(local_ridge, "ROWS", rows)
        for n_jobs in (1, 2, 3):
            part = local_weights(X, np.full(150, 4.0), 12, n_jobs)
            assert_array_equal(part.indptr, whole.indptr)
            assert_array_equal(part.indices, whole.indices)
            assert part.data.tobytes() == whole.data.tobytes()


def test_a_system_that_cannot_be_solved_is_an_error() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        local_weights(csr(np.ones((50, 4))), np.zeros(4), 3, 1)
