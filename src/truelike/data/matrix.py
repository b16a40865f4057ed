"""Sparse matrices from files."""

from __future__ import annotations

from typing import Any

from scipy import sparse


def checked_csr(parts: tuple[Any, Any, Any], shape: tuple[int, int]) -> Any:
    """A CSR of stored (data, indices, indptr), fully checked: compiled loops do not check bounds.

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
