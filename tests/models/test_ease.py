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
from truelike.core import memory
from truelike.errors import ParameterError, StorageError, TooLargeError
from truelike.models import ease, inversion


def random_interactions(seed: int, n_users: int, n_items: int, share: float = 0.3) -> Any:
    observed = np.random.default_rng(seed).random((n_users, n_items)) < share
    observed[0, 0] = True
    return observed


def dataset_of(observed: Any) -> Any:
    return tl.read(sparse.csr_array(observed.astype(np.float32)))


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


@given(
    st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(2, 14),
    st.sampled_from([None, 0.0, 0.2, 0.5, 0.9]), st.sampled_from([0.1, 5.0, 300.0]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_the_weights_are_the_ridge_regression_with_a_zero_diagonal(
    seed: int, n_users: int, n_items: int, dropout: float | None, regularization: float
) -> None:
    """Without a dropout: EASE, which has the same ridge for every item."""
    observed = random_interactions(seed, n_users, n_items)
    model = tl.EASE() if dropout is None else tl.EDLAE(dropout=dropout)
    model.set_params(regularization=regularization).fit(dataset_of(observed))
    dropout = dropout or 0.0
    expected = constrained_ridge(observed, dropout / (1 - dropout) * observed.sum(axis=0) + regularization)
    assert_allclose(model.weights_, expected, rtol=1e-5, atol=1e-6)
    users, items = np.meshgrid(np.arange(n_users), np.arange(n_items), indexing="ij")
    found = model.score(users.ravel(), items.ravel()).reshape(observed.shape)
    assert_allclose(found, observed @ expected, rtol=1e-4, atol=1e-5)


@given(
    st.integers(0, 2**32 - 1), st.sampled_from([None, 0.4]), st.sampled_from(["linear", "log"]),
    st.sampled_from(["float64", "float32"]),
)  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_with_weights_it_reconstructs_the_weighted_interactions(
    seed: int, dropout: float | None, weighting: Any, precision: Any
) -> None:
    observed = random_interactions(seed, 25, 9)
    X = observed * np.random.default_rng(seed).integers(1, 9, observed.shape)
    model = tl.EASE() if dropout is None else tl.EDLAE(dropout=dropout)
    model.set_params(regularization=2.0, weighting=weighting, precision=precision).fit(dataset_of(X))
    C = np.log1p(X) if weighting == "log" else X
    C = C / C[observed].mean()
    dropout = dropout or 0.0
    expected = constrained_ridge(C, dropout / (1 - dropout) * (C**2).sum(axis=0) + 2.0)
    tolerance = 1e-5 if precision == "float64" else 2e-3
    assert_allclose(model.weights_, expected, rtol=tolerance, atol=tolerance)
    assert_allclose(model.scorer.score_users(np.arange(25)), C @ expected, rtol=1e-2, atol=10 * tolerance)


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


@pytest.mark.parametrize("neighbors", [None, 5])
def test_similar_items_are_those_with_the_largest_weights_for_the_item(world: Any, neighbors: int | None) -> None:
    model = tl.EASE(regularization=20.0, neighbors=neighbors).fit(world)
    column = (model.weights_ if neighbors is None else model.weights_.toarray())[:, 7].copy()
    column[7] = -np.inf
    listed = 5 if neighbors is None else (column > 0).sum()  # sparse: only items that have a weight
    expected = np.argsort(-column, kind="stable")[:listed].tolist()
    assert model.similar_items(7, k=5 if neighbors is None else 40)["similar_item_id"].to_list() == expected


def test_a_catalogue_too_large_for_memory_is_refused_before_allocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_items, most = 200_000, 199_999  # all others: a dense matrix
    data = tl.read(sparse.coo_array((np.ones(3), ([0, 1, 2], [0, 5, n_items - 1])), shape=(3, n_items)))
    monkeypatch.setattr(memory, "available_memory", lambda: 16 * 10**9)
    with pytest.raises(TooLargeError) as error:
        tl.EDLAE(neighbors=most).fit(data)
    for part in (
        "EDLAE",
        "200,000 items",
        "480.0 GB",
        "16.0 GB are available",
        "neighbors=200",
        "IALS",
        "SoftmaxMF",
    ):
        assert part in str(error.value)
    assert 'precision="float32" it would take 160.0 GB' in str(error.value)
    with pytest.raises(TooLargeError, match=r"160\.0 GB") as error:
        tl.EASE(precision="float32", neighbors=most).fit(data)
    assert "precision" not in str(error.value)


def test_too_many_neighbors_for_memory_are_refused_before_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dataset_of(np.ones((3, 100), dtype=bool))
    monkeypatch.setattr(memory, "available_memory", lambda: 20_000)
    with pytest.raises(TooLargeError, match=r"EASE with 50 neighbors for each of 100 items .*Use fewer neighbors"):
        tl.EASE(neighbors=50).fit(data)


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


def test_a_large_catalogue_gets_neighbors_and_a_small_one_does_not(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(tl.EASE().fit(world).weights_, np.ndarray)
    monkeypatch.setattr(ease, "DENSE", 39)
    monkeypatch.setattr(ease, "NEIGHBORS", 7)
    by_size, given = tl.EASE().fit(world).weights_, tl.EASE(neighbors=7).fit(world).weights_
    assert by_size.has_canonical_format
    assert_array_equal(by_size.toarray(), given.toarray())


def test_all_others_as_neighbors_are_the_closed_form(world: Any) -> None:
    assert_array_equal(tl.EASE(neighbors=39).fit(world).weights_, tl.EASE().fit(world).weights_)


@pytest.mark.parametrize("neighbors", [None, 5])
def test_a_loaded_model_has_the_same_learned_attributes(world: Any, tmp_path: Path, neighbors: int | None) -> None:
    model = tl.EDLAE(neighbors=neighbors).fit(world)
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.regularization_ == model.regularization_
    assert again.recommend(k=10).equals(model.recommend(k=10))
    assert again.similar_items([1, 2], k=9).equals(model.similar_items([1, 2], k=9))
    again.partial_fit([(0, 1), (100, 101), (100, 1)])
    assert again.weights_.shape == (41, 41)


def test_loading_refuses_weights_that_do_not_fit(world: Any, tmp_path: Path) -> None:
    model = tl.EASE(neighbors=5).fit(world)
    dense = tl.EASE().fit(world)
    near, all_others = model.weights_, dense.weights_
    for each, wrong in (
        (model, near[:-1]),
        (model, near.astype(np.float64)),
        (model, all_others[:, :-1]),
        (dense, all_others[:-1]),
    ):
        each._state["weights_"] = wrong
        each.save(tmp_path / "model")
        with pytest.raises(StorageError):
            tl.load(tmp_path / "model")


def test_given_parameters_are_used_and_missing_ones_follow_the_data(world: Any, other_world: Any) -> None:
    assert tl.EASE(regularization=7.0).fit(world).regularization_ == 7.0
    assert tl.EDLAE(dropout=0.5, regularization=3.0).fit(world).regularization_ == 3.0
    usual = tl.EASE().fit(world)
    assert usual.regularization is None
    assert usual.regularization_ != tl.EASE().fit(other_world).regularization_
    assert tl.EDLAE(dropout=0.75).fit(world).regularization_ == usual.regularization_ / 2
    assert_array_equal(tl.EASE(regularization=usual.regularization_).fit(world).weights_, usual.weights_)


@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(2, 150))
@settings(max_examples=40, deadline=None)
def test_the_usual_regularization_compares_common_users_with_popularity(
    seed: int, n_users: int, n_items: int
) -> None:
    observed = random_interactions(seed, n_users, n_items, 0.2)
    common = observed.T.astype(float) @ observed
    np.fill_diagonal(common, 0.0)
    share = observed.sum(axis=0) / observed.sum()
    expected = (common**2).sum() / ((common.sum() * np.outer(share, share)) ** 2).sum() if common.any() else 1.0
    for n_jobs in (1, 2):
        found = ease.usual_regularization(dataset_of(observed), n_jobs)
        assert found == pytest.approx(max(1e-3, 260 / expected**0.75))


@pytest.mark.parametrize(
    "wrong", [np.array([0.0]), np.array([np.nan]), np.array([1.0, 2.0]), np.array([1], np.int64)]
)
def test_loading_refuses_a_regularization_that_is_no_positive_number(
    world: Any, tmp_path: Path, wrong: Any
) -> None:
    model = tl.EASE().fit(world)
    arrays = {**model._arrays(), "regularization": wrong}
    with pytest.raises(ValueError, match="the regularization is not a positive number"):
        model._restore(arrays, model.train_)
