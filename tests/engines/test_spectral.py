"""Spectral initialisation contains the structure of the data, and almost no noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import truelike as tl
from truelike.engines.spectral import _spectrum, add_spectrum
from truelike.engines.tables import Tables


def make_dataset(probability: Any, seed: int = 0) -> Any:
    observed = np.random.default_rng(seed).random(probability.shape) < probability
    observed[np.arange(len(observed)), np.arange(len(observed)) % observed.shape[1]] = True
    return tl.read(sparse.csr_array(observed.astype(np.float32)))


def two_tastes(n_users: int = 300, n_items: int = 200) -> Any:
    same = np.arange(n_users)[:, None] % 2 == np.arange(n_items)[None, :] % 2
    return make_dataset(np.where(same, 0.3, 0.05))


def test_the_spectrum_equals_a_dense_decomposition() -> None:
    train = two_tastes()
    observed = (train.matrix.toarray() > 0).astype(float)
    scaled = observed / np.sqrt(observed.sum(1))[:, None] / np.sqrt(observed.sum(0))[None, :]
    left, expected, right = np.linalg.svd(scaled, full_matrices=False)
    users, values, items = _spectrum(train, 8, 0, None)
    assert_allclose(values[0], expected[1], rtol=1e-3)
    assert (values[1:] < expected[2]).all()  # noise, which subspace iteration approximates only roughly
    assert abs(users[:, 0] @ left[:, 1]) > 0.999
    assert abs(items[:, 0] @ right[1]) > 0.999


def initial_tables(train: Any, factors: int = 6, n_jobs: int | None = -1) -> Tables:
    tables = Tables.zeros(train.n_users, train.n_items, factors, 0)
    add_spectrum(tables, train, 0, n_jobs)
    return tables


@pytest.mark.parametrize("density", [0.02, 0.1, 0.3])
def test_random_data_give_almost_no_factors(density: float) -> None:
    random = initial_tables(make_dataset(np.full((400, 300), density)))
    assert np.abs(random.item_factors).max() < 0.2 * np.abs(initial_tables(two_tastes()).item_factors).max()


def test_the_number_of_threads_does_not_change_the_result() -> None:
    train = make_dataset(np.full((2500, 60), 0.2))
    one, *others = (initial_tables(train, n_jobs=n) for n in (1, 2, 3))
    assert all(other.items.tobytes() == one.items.tobytes() for other in others)
    assert all(other.users.tobytes() == one.users.tobytes() for other in others)


def test_there_may_be_more_factors_than_items() -> None:
    tables = initial_tables(tl.read([(0, 0), (0, 1), (1, 1), (2, 0)]), factors=16)
    assert np.isfinite(tables.users).all()
