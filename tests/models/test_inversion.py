"""The inverse is NumPy's, at any size, and the same on any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_limits

from truelike.models import inversion


def positive_definite(n: int) -> Any:
    half = np.random.default_rng(n).normal(size=(n, 2 * n))
    return half @ half.T / n + 0.1 * np.eye(n)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("BLOCK", 16), ("ROWS", 48), ("COLUMNS", 96)):
        monkeypatch.setattr(inversion, name, size)


def check_inverse(n: int, dtype: str = "float64", tolerance: float = 1e-12) -> None:
    matrix = positive_definite(n)
    found = np.tril(matrix).astype(dtype)
    inversion.invert(found, 2)
    assert found.dtype == dtype
    assert_allclose(found, found.T, atol=0.0)
    assert_allclose(found, np.linalg.inv(matrix), atol=tolerance * np.abs(found).max())


@pytest.mark.parametrize("n", [1, 31, 191, 192, 193, 384, 770])
def test_the_inverse_is_that_of_numpy_at_any_size(n: int) -> None:
    check_inverse(n)
    check_inverse(n, "float32", 1e-5)


@given(st.integers(1, 400))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("small_tiles")
def test_the_inverse_is_that_of_numpy_with_many_tiles(n: int) -> None:
    check_inverse(n)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.usefixtures("small_tiles")
def test_the_inverse_does_not_depend_on_the_number_of_threads(dtype: str) -> None:
    found = set()
    for n_jobs, blas in ((1, 1), (1, 2), (2, 2), (3, 1), (7, 2)):
        matrix = positive_definite(300).astype(dtype)
        with threadpool_limits(limits=blas, user_api="blas"):
            inversion.invert(matrix, n_jobs)
        found.add(matrix.tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("at", [0, 150, 299])
@pytest.mark.usefixtures("small_tiles")
def test_a_matrix_that_is_not_positive_definite_is_refused(at: int) -> None:
    matrix = positive_definite(300)
    matrix[at, at] = -1.0
    with pytest.raises(np.linalg.LinAlgError):
        inversion.invert(matrix)
