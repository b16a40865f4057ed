"""Defaults of the regularization that depend on the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from truelike import randomness
from truelike.data.dataset import Dataset

LIFT_SAMPLES = 100_000
LIFT_INTERACTIONS = 2_000_000  # of a larger dataset, some users with about as many are used


def interactions_per_row(train: Dataset) -> float:
    """The geometric mean of the mean number of interactions of a user and that of an item.

    Users and items without an interaction are left out: they do not change how much is known of the others.
    """
    rows, columns = train.interactions_per_user(), train.popularity()
    return float(np.sqrt(rows[rows > 0].mean() * columns[columns > 0].mean()))


def lift(train: Dataset) -> float:
    """How much more often users who share an item share another one than popularity explains; at least 1.

    An interaction (u, i), another item k of u and another user w of i are drawn at random. The share of draws in which
    w interacted with k is divided by the share that is expected if w's items were drawn by popularity. It is 1.0 on
    MovieLens 1M, 1.2 on the Amazon split and 11 on citeulike, whose users and items form many small groups. The draws
    are fixed, so the value depends on the data alone.
    """
    popularity, n = train.popularity().astype(np.float64), train.n_interactions
    by_user = train._csr[:: max(1, n // LIFT_INTERACTIONS)]
    by_item, per_user = by_user.tocsc(), np.diff(by_user.indptr).astype(np.float64)
    draws = [randomness.uniform(randomness.key(0, "lift", k), np.arange(LIFT_SAMPLES)) for k in range(3)]

    def one_of(rows: Any, codes: Any, draw: Any) -> Any:
        """A random column of each of some rows."""
        start, stop = rows.indptr[codes], rows.indptr[codes + 1]
        return rows.indices[start + (draw * (stop - start)).astype(np.int64)]

    first = (draws[0] * by_item.nnz).astype(np.int64)
    users = by_item.indices[first]
    items = np.searchsorted(by_item.indptr, first, side="right") - 1
    others, sharing = one_of(by_user, users, draws[1]), one_of(by_item, items, draws[2])
    chosen = (others != items) & (sharing != users)
    others, sharing = others[chosen], sharing[chosen]
    expected = np.minimum((per_user[sharing] - 1) * (popularity[others] - 1) / n, 1.0).sum()
    pairs = (
        np.repeat(np.arange(len(per_user)), np.diff(by_user.indptr)) * train.n_items + by_user.indices
    )  # sorted
    wanted = sharing.astype(np.int64) * train.n_items + others
    found = np.count_nonzero(pairs[np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)] == wanted)
    return max(1.0, float(found / expected)) if expected else 1.0
