"""Pairs of users and items by row numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes

__all__ = ["is_seen"]


def is_seen(train: Dataset | Blocks, users: Codes, items: Codes) -> NDArray[np.bool_]:
    """Return whether each pair, given by row numbers and sorted by user, is in the training data."""
    wanted = np.unique(users)
    seen, rows = train.rows(wanted)
    lengths = (seen.indptr[rows + 1] - seen.indptr[rows]).astype(np.int64)
    ends = np.cumsum(lengths)
    at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(seen.indptr[rows] - (ends - lengths), lengths)
    pairs = np.repeat(wanted.astype(np.int64), lengths) * train.n_items + seen.indices[at]  # sorted
    asked = users.astype(np.int64) * train.n_items + items
    if not len(pairs):
        return np.zeros(len(asked), dtype=bool)
    return np.asarray(pairs[np.minimum(np.searchsorted(pairs, asked), len(pairs) - 1)] == asked)
