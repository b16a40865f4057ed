"""Pairs of users and items by row numbers: which are in training, and which held-out ones are in a list."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.data.protocol import Rows

USERS_AT_ONCE = 50_000  # whose seen items or lists are in memory at a time, or go to a worker of a cluster

Pairs = NDArray[np.int64]  # user * n_items + item


def find(pairs: Pairs, asked: Pairs) -> tuple[Pairs, NDArray[np.bool_]]:
    """Where each asked pair is among sorted pairs, and whether it is there."""
    if not len(pairs):
        return np.zeros(asked.shape, dtype=np.int64), np.zeros(asked.shape, dtype=bool)
    at = np.minimum(np.searchsorted(pairs, asked), len(pairs) - 1)
    return at, np.asarray(pairs[at] == asked)


def pairs_of(matrix: sparse.csr_array) -> Pairs:
    """The pairs of a CSR; sorted if its rows are."""
    owners = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return np.asarray(owners * matrix.shape[1] + matrix.indices)


def is_seen(before: Rows, users: Codes, items: Codes) -> NDArray[np.bool_]:
    """Return whether each pair, given by row numbers and sorted by user, is in the training data, or in other rows."""
    wanted = np.unique(users)
    seen, rows = before.rows(wanted)
    lengths = (seen.indptr[rows + 1] - seen.indptr[rows]).astype(np.int64)
    ends = np.cumsum(lengths)
    at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(seen.indptr[rows] - (ends - lengths), lengths)
    pairs = np.repeat(wanted.astype(np.int64), lengths) * before.n_items + seen.indices[at]  # sorted
    return find(pairs, users.astype(np.int64) * before.n_items + items)[1]


def relevant_items(seen: Rows, test: Dataset) -> sparse.csr_array:
    """Return a CSR (users x items) of the test interactions that are not in training, or in other rows.

    Both must have the same ids. The rows of the result are sorted, and its data are ones.
    """
    matrix = sparse.csr_array(test.csr, copy=True)
    matrix.sort_indices()
    owners = np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(matrix.indptr))
    kept = np.ones(len(owners), dtype=bool)
    active = np.flatnonzero(np.diff(matrix.indptr))
    for start in range(0, len(active), USERS_AT_ONCE):
        users = active[start : start + USERS_AT_ONCE]
        entries = slice(matrix.indptr[users[0]], matrix.indptr[users[-1] + 1])
        kept[entries] = ~is_seen(seen, owners[entries], matrix.indices[entries])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owners[kept], minlength=matrix.shape[0]))])
    ones = np.ones(np.count_nonzero(kept), dtype=np.float32)
    return sparse.csr_array((ones, matrix.indices[kept], indptr.astype(np.int32)), shape=matrix.shape)


def hits_of(best: Codes, relevant: sparse.csr_array) -> tuple[NDArray[np.bool_], Pairs]:
    """Which items of lists are relevant to the user of their row, and which entry of the sorted CSR each of them is.

    >>> relevant = sparse.csr_array(np.array([[0, 1, 0], [1, 0, 1]]))
    >>> hits_of(np.array([[1, 2], [2, -1]], dtype=np.int32), relevant)[0].tolist()
    [[True, False], [True, False]]
    """
    listed = np.arange(len(best), dtype=np.int64)[:, None] * relevant.shape[1] + best
    entries, found = find(pairs_of(relevant), listed)
    return found & (best >= 0), entries
