"""Entries of a sparse matrix (users x items): chosen, given other row numbers, joined.

Interactions, other feedback and impressions are such entries. Each function also tells which entries were taken, so
that what is known of each (times, positions) is taken along.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.ids import Codes, check_count

A = TypeVar("A", bound=NDArray[Any])
Entries = NDArray[np.bool_] | NDArray[np.int32]  # a mask of entries, or their numbers in a new order


def users_of(csr: sparse.csr_array) -> Codes:
    """The row number of the user of each entry."""
    return np.repeat(np.arange(csr.shape[0], dtype=np.int32), np.diff(csr.indptr))


def taken(values: A | None, entries: Entries) -> A | None:
    """The values of some entries; None if there are none."""
    return None if values is None else values[entries]  # type: ignore[return-value]


def select(csr: sparse.csr_array, entries: NDArray[np.bool_]) -> sparse.csr_array:
    """The marked entries of a matrix.

    >>> select(sparse.csr_array([[1, 2], [0, 3]]), np.array([False, True, True])).toarray().tolist()
    [[0, 2], [0, 3]]
    """
    before = np.zeros(len(entries) + 1, dtype=np.int32)
    np.cumsum(entries, out=before[1:])
    return sparse.csr_array((csr.data[entries], csr.indices[entries], before[csr.indptr]), shape=csr.shape)


def recode(
    csr: sparse.csr_array, users: Codes, items: Codes, shape: tuple[int, int]
) -> tuple[sparse.csr_array, Entries]:
    """The entries in other row numbers, and which they were: user n becomes users[n], or is left out where it is -1.

    >>> matrix = sparse.csr_array([[1, 2], [0, 3]])
    >>> found, entries = recode(matrix, np.array([1, 0]), np.array([-1, 0]), (2, 1))
    >>> found.toarray().tolist(), entries.tolist()
    ([[3], [2]], [2, 1])
    """
    kept = (items >= 0)[csr.indices]
    kept &= np.repeat(users >= 0, np.diff(csr.indptr))
    if not (_in_order(users) and _in_order(items)):  # ids are numbers in one, and text in the other
        rows, columns = users[users_of(csr)[kept]], items[csr.indices[kept]]
        order = sorted_pairs(rows, columns, shape)
        numbers = np.flatnonzero(kept).astype(np.int32)[order]
        matrix = sparse.csr_array((csr.data[numbers], columns[order], pointers(rows, shape[0])), shape=shape)
        return matrix, numbers
    before = np.zeros(len(kept) + 1, dtype=np.int32)
    np.cumsum(kept, out=before[1:])
    counts = np.zeros(shape[0], dtype=np.int32)
    counts[users[users >= 0]] = np.diff(before[csr.indptr])[users >= 0]
    del before
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return sparse.csr_array((csr.data[kept], items[csr.indices[kept]], indptr), shape=shape), kept


def _in_order(codes: Codes) -> bool:
    """Whether the row numbers that are known increase."""
    known = codes[codes >= 0]
    return bool((known[1:] > known[:-1]).all())


def pointers(users: Codes, n_users: int) -> NDArray[np.int32]:
    """Where the entries of each user begin, of entries that are sorted by user."""
    return np.concatenate(([0], np.cumsum(np.bincount(users, minlength=n_users)))).astype(np.int32)


def sorted_pairs(users: Codes, items: Codes, shape: tuple[int, int]) -> NDArray[np.int32]:
    """The order of pairs by user, then by item; equal pairs keep theirs."""
    check_count(len(users), "rows")
    order = stable_order(items, shape[1])
    return order[stable_order(users[order], shape[0])]


def stable_order(codes: Codes, n_codes: int) -> NDArray[np.int32]:
    """A stable argsort of codes below `n_codes` by counting, as SciPy transposes a sparse matrix.

    >>> stable_order(np.array([2, 0, 2, 1], dtype=np.int32), 3).tolist()
    [1, 3, 0, 2]
    """
    n = len(codes)
    one_a_row = (np.ones(n, dtype=np.int8), codes, np.arange(n + 1, dtype=np.int32))
    order: NDArray[np.int32] = sparse.csr_array(one_a_row, shape=(n, n_codes)).tocsc().indices
    return order


def first_of_pairs(users: Codes, items: Codes) -> NDArray[np.intp]:
    """Where each different pair begins, of pairs that are sorted."""
    new = np.ones(len(users), dtype=bool)
    new[1:] = (users[1:] != users[:-1]) | (items[1:] != items[:-1])
    return np.flatnonzero(new)
