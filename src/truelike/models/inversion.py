"""Invert a large positive definite matrix in place, with the same bits on any number of threads.

The method is blocked Gauss-Jordan elimination (the sweep operator; Goodnight, American Statistician 1979). It takes as
many operations as LAPACK's Cholesky inverse, but nearly all of them are matrix products of fixed tiles, which are
spread over threads. BLAS adds each product to its tile, without a temporary copy.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from truelike.core.parallel import for_each, one_blas_thread
from truelike.models.kernels import mirror

BLOCK = 192  # rows and columns that are eliminated together: the depth of the matrix products
ROWS = 4 * BLOCK  # rows of a tile of the matrix
COLUMNS = 4 * ROWS  # columns of a tile


def invert(matrix: NDArray[Any], n_jobs: int | None = -1) -> None:
    """Replace a symmetric positive definite matrix by its inverse; only its lower triangle is read.

    The matrix is float64 or float32, and its rows are contiguous. Raises `numpy.linalg.LinAlgError` if it is not
    positive definite in its precision.

    >>> a = np.array([[2.0, 0.0], [1.0, 2.0]])
    >>> invert(a)
    >>> (3 * a).round(9)
    array([[ 2., -1.],
           [-1.,  2.]])
    """
    n = len(matrix)
    rows = _pieces(0, n, ROWS)
    buffers = np.empty((2, n, min(n, BLOCK)), dtype=matrix.dtype)
    with one_blas_thread():
        for pivot in _pieces(0, n, BLOCK):
            _sweep(matrix, pivot, rows, buffers, n_jobs)
    for_each(lambda part: np.negative(matrix[part], out=matrix[part]), rows, n_jobs)
    for_each(lambda part: mirror(matrix, part.start, part.stop), rows, n_jobs)


def _sweep(
    matrix: NDArray[Any], pivot: slice, rows: list[slice], buffers: NDArray[Any], n_jobs: int | None
) -> None:
    """With D the inverse of the pivot A_kk, set A_ij to A_ij - A_ik D A_kj, A_ik to A_ik D, and A_kk to -D.

    After every block has been the pivot, A is minus its inverse.
    """
    square = matrix[pivot, pivot]
    inverse = linalg.cho_solve(linalg.cho_factor(square, lower=True), np.eye(len(square), dtype=matrix.dtype))
    column, scaled = buffers[:, :, : len(square)]  # A_ik, and A_ik D

    def scale(part: slice) -> None:
        """Copy these rows of A_ik, which are A_ki transposed above the pivot, and replace them by A_ik D."""
        above, below = _cut(part, 0, pivot.start), _cut(part, pivot.stop, len(matrix))
        column[above] = matrix[pivot, above].T
        column[below] = matrix[below, pivot]
        column[_cut(part, pivot.start, pivot.stop)] = 0  # the rows and columns of the pivot are not updated
        np.matmul(column[part], inverse, out=scaled[part])
        matrix[pivot, above] = scaled[above].T
        matrix[below, pivot] = scaled[below]

    def update(tile: tuple[slice, slice]) -> None:
        _subtract_product(matrix[tile], scaled[tile[0]], column[tile[1]])

    for_each(scale, rows, n_jobs)
    for_each(update, _lower_tiles(rows), n_jobs)
    matrix[pivot, pivot] = -inverse


def _pieces(start: int, stop: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def _cut(part: slice, start: int, stop: int) -> slice:
    """The piece of a slice between start and stop; it may be empty."""
    first = max(part.start, start)
    return slice(first, max(first, min(part.stop, stop)))


def _lower_tiles(rows: list[slice]) -> list[tuple[slice, slice]]:
    """The tiles of the lower triangle. The small ones on the diagonal come last, so that threads end together."""
    left = [(tile, part) for tile in rows for part in _pieces(0, tile.start, COLUMNS)]
    along = [
        (part, slice(tile.start, part.stop)) for tile in rows for part in _pieces(tile.start, tile.stop, BLOCK)
    ]
    return left + along


def _subtract_product(out: NDArray[Any], left: NDArray[Any], right: NDArray[Any]) -> None:
    """Subtract left @ right.T from out, in place. NumPy would write the product to a temporary array first.

    The arrays are of one type, and their rows are contiguous. BLAS stores columns: it sees all of them transposed.
    """
    gemm, real = _gemm(out.dtype.char)

    def whole(number: int) -> Any:
        return ctypes.byref(ctypes.c_int(number))

    def array(part: NDArray[Any]) -> tuple[int, Any]:
        return part.ctypes.data, whole(part.strides[0] // part.itemsize)

    transpose, plain = ctypes.c_char(b"T"), ctypes.c_char(b"N")
    gemm(
        ctypes.byref(transpose), ctypes.byref(plain), whole(out.shape[1]), whole(out.shape[0]), whole(left.shape[1]),
        ctypes.byref(real(-1.0)), *array(right), *array(left), ctypes.byref(real(1.0)), *array(out),
    )  # fmt: skip


@lru_cache(maxsize=2)
def _gemm(kind: str) -> tuple[Any, Any]:
    """The matrix product of SciPy's BLAS for "d" (float64) or "f" (float32), and the type of its numbers."""
    from numba.extending import get_cython_function_address

    name, real = {"d": ("dgemm", ctypes.c_double), "f": ("sgemm", ctypes.c_float)}[kind]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)
    return function(get_cython_function_address("scipy.linalg.cython_blas", name)), real
