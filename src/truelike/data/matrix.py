"""Sparse matrices from outside, checked once: compiled loops do not check bounds."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.ids import check_count
from truelike.errors import DataError

A = TypeVar("A", bound=NDArray[Any])


def checked_csr(parts: tuple[Any, Any, Any], shape: tuple[int, int]) -> sparse.csr_array:
    """A CSR of stored (data, indices, indptr), fully checked.

    >>> checked_csr(([1.0, 2.0], [1, 0], [0, 2]), (1, 2))
    Traceback (most recent call last):
    ...
    ValueError: the columns of a sparse matrix are not sorted
    """
    matrix = sparse.csr_array(parts, shape=shape)
    matrix.check_format(full_check=True)
    if not matrix.has_canonical_format:
        raise ValueError("the columns of a sparse matrix are not sorted")
    return matrix


def own_csr(matrix: Any, shape: tuple[int, int]) -> sparse.csr_array:
    """A copy of a caller's CSR of interactions, with float32 weights and int32 indices.

    >>> own_csr(sparse.csr_array([[0.0, 2.0]]), (1, 2)).data
    array([2.], dtype=float32)
    >>> own_csr(sparse.csr_array([[0.0, -2.0]]), (1, 2))
    Traceback (most recent call last):
    ...
    truelike.errors.DataError: the matrix of a Dataset has weights that are not positive numbers; pass tl.read(matrix)
    """
    if not (sparse.issparse(matrix) and matrix.format == "csr"):
        raise DataError(f"the matrix of a Dataset is a {type(matrix).__name__}; expected a CSR of SciPy")
    if tuple(matrix.shape) != shape:
        raise DataError(f"the matrix of a Dataset has shape {matrix.shape}; its ids are {shape[0]} x {shape[1]}")
    check_count(matrix.nnz, "interactions")
    parts = (matrix.data, matrix.indices, matrix.indptr)
    kinds = [part.dtype.kind in kind for part, kind in zip(parts, ("biuf", "iu", "iu"), strict=True)]
    if not all(kinds) or any(isinstance(part, np.ma.MaskedArray) for part in parts):
        raise DataError(
            "the matrix of a Dataset has no plain numbers as weights and indices; pass tl.read(matrix)"
        )
    try:
        checked_csr((matrix.data, matrix.indices, matrix.indptr), shape)
    except (ValueError, TypeError) as error:
        raise DataError(f"the matrix of a Dataset is not a valid CSR: {error}; pass tl.read(matrix)") from error
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.array(matrix.data, dtype=np.float32)
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise DataError("the matrix of a Dataset has weights that are not positive numbers; pass tl.read(matrix)")
    own = (weights, np.array(matrix.indices, dtype=np.int32), np.array(matrix.indptr, dtype=np.int32))
    return sparse.csr_array(own, shape=shape)


def own_times(times: Any, n: int) -> NDArray[np.int64] | None:
    """A copy of a caller's times, one for each interaction."""
    if times is None:
        return None
    found = np.array(times)
    masked = isinstance(times, np.ma.MaskedArray)
    if masked or found.dtype.kind not in "iu" or found.dtype == np.uint64 or found.shape != (n,):
        raise DataError(
            f"the times of a Dataset are {found.dtype} of shape {found.shape}; expected {n} whole numbers"
        )
    return read_only(found.astype(np.int64))


def check_mask(mask: NDArray[np.bool_], n: int, what: str) -> None:
    """Raise an error if a value is not an array of n times True or False."""
    right = isinstance(mask, np.ndarray) and not isinstance(mask, np.ma.MaskedArray)
    if not right or mask.dtype != bool or mask.shape != (n,):
        raise DataError(f"the mask of {what} must be an array of {n:,} times True or False")


def read_only(array: A) -> A:
    """A view of an array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
