"""EASE and EDLAE minimise what their papers minimise, at any size and on any number of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from threadpoolctl import threadpool_limits

import truelike as tl
from truelike import memory
from truelike.errors import ParameterError, StorageError, TooLargeError
from truelike.models import inversion
from truelike.models.ease import gram


def random_interactions(seed: int, n_users: int, n_items: int, share: float = 0.3) -> Any:
    observed = np.random.default_rng(seed).random((n_users, n_items)) < share
    observed[0, 0] = True
    return observed


def dataset_of(observed: Any) -> Any:
    return tl.read(sparse.csr_array(observed.astype(np.float32)))


def reference_ease(observed: Any, regularization: float) -> Any:
    """Steck's listing, dense and in float64."""
    X = observed.astype(np.float64)
    G = X.T @ X + regularization * np.eye(X.shape[1])
    P = np.linalg.inv(G)
    B = P / -np.diag(P)
    B[np.diag_indices_from(B)] = 0
    return B


def constrained_ridge(observed: Any, ridge: Any) -> Any:
    """min |x_j - X b|^2 + sum of ridge_i b_i^2 with b_j = 0, one item j at a time, by least squares.

    The ridge becomes rows of the problem; the constraint removes the item itself.
    """
    X = observed.astype(np.float64)
    n = X.shape[1]
    B = np.zeros((n, n))
    for j in range(n):
        others = np.arange(n) != j
        left = np.vstack([X[:, others], np.diag(np.sqrt(ridge[others]))])
        right = np.concatenate([X[:, j], np.zeros(n - 1)])
        B[others, j] = np.linalg.lstsq(left, right, rcond=None)[0]
    return B


@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(2, 14), st.sampled_from([0.01, 1.0, 300.0]))
@settings(max_examples=40, deadline=None)
def test_ease_is_the_closed_form_of_its_paper(
    seed: int, n_users: int, n_items: int, regularization: float
) -> None:
    observed = random_interactions(seed, n_users, n_items)
    model = tl.EASE(regularization=regularization).fit(dataset_of(observed))
    expected = reference_ease(observed, regularization)
    assert_allclose(model.weights_, expected, rtol=2e-6, atol=1e-7)
    users, items = np.meshgrid(np.arange(n_users), np.arange(n_items), indexing="ij")
    found = model.score(users.ravel(), items.ravel()).reshape(observed.shape)
    assert_allclose(found, observed @ expected, rtol=1e-5, atol=1e-6)


@given(
    st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(2, 12),
    st.sampled_from([0.0, 0.2, 0.5, 0.9]), st.sampled_from([0.1, 5.0]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_edlae_is_the_ridge_regression_with_a_zero_diagonal(
    seed: int, n_users: int, n_items: int, dropout: float, regularization: float
) -> None:
    observed = random_interactions(seed, n_users, n_items)
    model = tl.EDLAE(dropout=dropout, regularization=regularization).fit(dataset_of(observed))
    ridge = dropout / (1 - dropout) * observed.sum(axis=0) + regularization
    assert_allclose(model.weights_, constrained_ridge(observed, ridge), rtol=1e-5, atol=1e-6)


def test_edlae_is_the_least_squares_solution_under_dropout() -> None:
    """With hardly any other ridge, it minimises the mean loss over many samples of hidden interactions."""
    observed, dropout = random_interactions(3, 40, 5, 0.5), 0.4
    rng = np.random.default_rng(0)
    X = np.tile(observed.astype(np.float64), (4_000, 1))
    visible = X * (rng.random(X.shape) >= dropout) / (1 - dropout)
    B = np.zeros((5, 5))
    for j in range(5):
        others = np.arange(5) != j
        B[others, j] = np.linalg.lstsq(visible[:, others], X[:, j], rcond=None)[0]
    model = tl.EDLAE(dropout=dropout, regularization=1e-3).fit(dataset_of(observed))
    assert_allclose(model.weights_, B, atol=0.01)


def test_edlae_without_dropout_is_ease(world: Any) -> None:
    plain = tl.EASE(regularization=20.0).fit(world)
    assert_array_equal(tl.EDLAE(dropout=0.0, regularization=20.0).fit(world).weights_, plain.weights_)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_gram_matrix_counts_common_users(dtype: str) -> None:
    observed = random_interactions(1, 50, 150)
    found = gram(dataset_of(observed).matrix, np.dtype(dtype), 2)
    assert found.dtype == dtype
    assert_array_equal(found, np.tril(observed.T.astype(int) @ observed.astype(int)))


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_the_weights_do_not_depend_on_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    data = dataset_of(random_interactions(5, 300, 200, 0.1))
    monkeypatch.setattr(inversion, "BLOCK", 48)
    monkeypatch.setattr(inversion, "ROWS", 96)
    fits = []
    for n_jobs, blas in ((1, 1), (1, 2), (2, 2), (3, 1)):
        with threadpool_limits(limits=blas, user_api="blas"):
            fits.append(tl.EASE(precision=precision, n_jobs=n_jobs).fit(data).weights_.tobytes())
    assert len(set(fits)) == 1


def test_single_precision_is_close_to_double() -> None:
    data = dataset_of(random_interactions(7, 300, 100, 0.2))
    single, double = (tl.EASE(regularization=20.0, precision=p).fit(data).weights_ for p in ("float32", "float64"))
    assert_allclose(single, double, atol=2e-5)


def test_similar_items_are_those_with_the_largest_weights_for_the_item(world: Any) -> None:
    model = tl.EASE(regularization=20.0).fit(world)
    frame = model.similar_items(7, k=5)
    column = model.weights_[:, 7].copy()
    column[7] = -np.inf
    assert frame["similar_item_id"].to_list() == np.argsort(-column, kind="stable")[:5].tolist()


def test_a_catalogue_too_large_for_memory_is_refused_before_allocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_items = 200_000
    data = tl.read(sparse.coo_array((np.ones(3), ([0, 1, 2], [0, 5, n_items - 1])), shape=(3, n_items)))
    monkeypatch.setattr(memory, "available_memory", lambda: 16 * 10**9)
    with pytest.raises(TooLargeError) as error:
        tl.EDLAE().fit(data)
    for part in ("EDLAE", "200,000 items", "480.0 GB", "16.0 GB are available", "IALS", "SoftmaxMF", "tl.k_core"):
        assert part in str(error.value)
    assert 'precision="float32" it would take 160.0 GB' in str(error.value)
    with pytest.raises(TooLargeError, match=r"160\.0 GB") as error:
        tl.EASE(precision="float32").fit(data)
    assert "precision" not in str(error.value)


def test_available_memory_respects_the_limit_of_a_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "limit").write_text("1000000\n")
    (tmp_path / "used").write_text("400000\n")
    monkeypatch.setattr(memory, "_LIMIT", tmp_path / "limit")
    monkeypatch.setattr(memory, "_USED", tmp_path / "used")
    assert memory.available_memory() == 600_000
    (tmp_path / "limit").write_text("max\n")
    assert memory.available_memory() > 10**6


def test_a_gram_matrix_that_float32_cannot_invert_is_an_error_that_says_what_to_do() -> None:
    observed = np.ones((100_000, 2), dtype=bool)
    with pytest.raises(ParameterError, match=r'float32.*Use more regularization, or precision="float64"'):
        tl.EASE(regularization=1e-3, precision="float32").fit(dataset_of(observed))


def test_loading_refuses_weights_of_another_shape(world: Any, tmp_path: Path) -> None:
    model = tl.EASE().fit(world)
    model._state["weights_"] = model.weights_[:-1]
    model.save(tmp_path / "model")
    with pytest.raises(StorageError, match=r"weights are float32 of shape \(39, 40\)"):
        tl.load(tmp_path / "model")
