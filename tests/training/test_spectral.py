"""A start from the log's spectrum: what stands out of noise, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import truelike as tl
from truelike.training.spectral import _spectrum, add_spectrum
from truelike.training.tables import Tables


def log_of(likely: Any, seed: int = 0) -> Any:
    votes = np.random.default_rng(seed).random(likely.shape) < likely
    votes[np.arange(len(votes)), np.arange(len(votes)) % votes.shape[1]] = True
    return tl.read(sparse.csr_array(votes.astype(np.float32)))


def two_tastes(n_users: int = 300, n_items: int = 200) -> Any:
    same = np.arange(n_users)[:, None] % 2 == np.arange(n_items)[None, :] % 2
    return log_of(np.where(same, 0.3, 0.05))


def test_the_spectrum_is_that_of_a_dense_decomposition() -> None:
    log = two_tastes()
    votes = (log.matrix.toarray() > 0).astype(float)
    scaled = votes / np.sqrt(votes.sum(1))[:, None] / np.sqrt(votes.sum(0))[None, :]
    left, expected, right = np.linalg.svd(scaled, full_matrices=False)
    users, values, items = _spectrum(log, 8, 0, None)
    assert_allclose(values[0], expected[1], rtol=1e-3)
    assert (values[1:] < expected[2]).all()  # noise, of which the bulk is found only roughly
    assert abs(users[:, 0] @ left[:, 1]) > 0.999
    assert abs(items[:, 0] @ right[1]) > 0.999


def started(log: Any, factors: int = 6, n_jobs: int | None = None) -> Tables:
    tables = Tables.zeros(log.n_users, log.n_items, factors, 0)
    add_spectrum(tables, log, 0, n_jobs)
    return tables


def test_a_log_of_two_tastes_starts_with_one_factor_that_tells_them_apart() -> None:
    tables = started(two_tastes())
    size = np.linalg.norm(tables.item_factors, axis=0)
    assert size[0] > 5 * size[1:].max()
    sides = np.sign(tables.item_factors[:, 0])
    even = np.arange(200) % 2 == 0
    assert (sides[even] == sides[0]).mean() > 0.97
    assert (sides[~even] == -sides[0]).mean() > 0.97


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_a_log_without_tastes_starts_at_almost_nothing(share: float) -> None:
    random = started(log_of(np.full((400, 300), share)))
    assert np.abs(random.item_factors).max() < 0.2 * np.abs(started(two_tastes()).item_factors).max()


def test_the_number_of_threads_never_shows() -> None:
    log = log_of(np.full((2500, 60), 0.2))
    one, *others = (started(log, n_jobs=n) for n in (1, 2, 3))
    assert all(other.items.tobytes() == one.items.tobytes() for other in others)
    assert all(other.users.tobytes() == one.users.tobytes() for other in others)


def test_more_factors_than_the_log_has_are_no_matter() -> None:
    tables = started(tl.read([(0, 0), (0, 1), (1, 1), (2, 0)]), factors=16)
    assert np.isfinite(tables.users).all()
