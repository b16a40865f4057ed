"""Dataset: the id maps and the sparse matrix (users x items) that everything else works on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.frames import Library, to_native
from truelike.data.ids import Codes, Ids
from truelike.errors import DataError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Who voted for what: each (user, item) pair once, with the number of its rows as weight.

    Attributes
    ----------
    users, items
        The caller's own ids, sorted.
    matrix
        CSR (users x items) with int32 indices, sorted in each row; the data are the weights.
    times
        For each entry of `matrix`, when the pair was *first* seen; None where the log has no times.
    titles
        For each item, a name for people to read; None where none is known.
    library
        The frame library that the rows came in, and that results go out in.
    name
        What to call this log in tables.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("ann", "tea")])
    >>> log
    Dataset(3 interactions, 2 users, 2 items, sparsity 25.0000%)
    >>> log.seen("ann").to_list()
    ['milk', 'tea']
    >>> log.matrix.toarray()
    array([[1., 2.],
           [0., 1.]], dtype=float32)
    """

    users: Ids
    items: Ids
    matrix: Any
    times: NDArray[np.int64] | None = None
    titles: pl.Series | None = None
    library: Library = "polars"
    name: str = field(default="log")

    @classmethod
    def from_pairs(
        cls,
        users: Ids,
        items: Ids,
        user_codes: Codes,
        item_codes: Codes,
        *,
        weights: NDArray[np.floating] | None = None,
        times: NDArray[np.int64] | None = None,
        **rest: Any,
    ) -> Dataset:
        """Build from coded rows; repeated ones merge (weights add up, the first time is kept)."""
        order = stable_order(item_codes, len(items))
        order = order[stable_order(user_codes[order], len(users))]
        rows, columns = user_codes[order], item_codes[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
        first = np.flatnonzero(new)
        counts = np.diff(first, append=len(order))
        merged = counts if weights is None else np.add.reduceat(weights[order], first)
        if times is not None:
            times = np.minimum.reduceat(times[order], first)
        counts = np.bincount(rows[first], minlength=len(users))
        indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        matrix = sparse.csr_array(
            (merged.astype(np.float32), columns[first].astype(np.int32), indptr),
            shape=(len(users), len(items)),
        )
        return cls(users, items, matrix, times, **rest)

    @property
    def n_users(self) -> int:
        """The number of users."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """The number of items."""
        return len(self.items)

    @property
    def n_interactions(self) -> int:
        """The number of distinct (user, item) pairs."""
        return int(self.matrix.nnz)

    @property
    def n_rows(self) -> float:
        """The sum of all weights: the number of rows before repeated ones merged."""
        return float(self.matrix.data.sum(dtype=np.float64))

    @property
    def sparsity(self) -> float:
        """The share of (user, item) pairs that nobody voted for."""
        return 1.0 - self.n_interactions / (self.n_users * self.n_items)

    @cached_property
    def user_of_entry(self) -> Codes:
        """For each entry of `matrix`, its row number."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), self.rows_per_user())

    def rows_per_user(self) -> NDArray[np.int64]:
        """How many items each user voted for."""
        counts: NDArray[np.int64] = np.diff(self.matrix.indptr).astype(np.int64)
        return counts

    def popularity(self) -> NDArray[np.int64]:
        """How many users voted for each item, in the order of `items`."""
        return np.bincount(self.matrix.indices, minlength=self.n_items)

    def seen(self, user: Any) -> pl.Series:
        """The items that one user voted for."""
        code = self.users.known(user)[0]
        lo, hi = self.matrix.indptr[code : code + 2]
        return self.items.take(self.matrix.indices[lo:hi]).alias("item_id")

    def to_frame(self) -> Any:
        """One row a pair: user_id, item_id, weight and, where known, time."""
        frame = pl.DataFrame(
            [
                self.users.take(self.user_of_entry).alias("user_id"),
                self.items.take(self.matrix.indices).alias("item_id"),
                pl.Series("weight", self.matrix.data),
            ]
        )
        if self.times is not None:
            frame = frame.with_columns(pl.Series("time", self.times))
        return to_native(frame, self.library)

    def select(self, entries: NDArray[np.bool_]) -> Dataset:
        """The same users and items with only the marked entries of `matrix`."""
        counts = np.bincount(self.user_of_entry[entries], minlength=self.n_users)
        indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        data, indices = self.matrix.data[entries], self.matrix.indices[entries]
        matrix = sparse.csr_array((data, indices, indptr), shape=self.matrix.shape)
        times = None if self.times is None else self.times[entries]
        return replace(self, matrix=matrix, times=times)

    def restrict(self, users: NDArray[np.bool_], items: NDArray[np.bool_]) -> Dataset:
        """Only the marked users and items, with the entries between them."""
        kept = self.select(users[self.user_of_entry] & items[self.matrix.indices])
        indptr = np.concatenate(([0], np.cumsum(kept.rows_per_user()[users]))).astype(np.int32)
        codes = np.cumsum(items, dtype=np.int32) - 1
        matrix = sparse.csr_array(
            (kept.matrix.data, codes[kept.matrix.indices], indptr),
            shape=(int(users.sum()), int(items.sum())),
        )
        titles = None if self.titles is None else self.titles.filter(pl.Series(items))
        return replace(
            kept,
            users=self.users.subset(users),
            items=self.items.subset(items),
            matrix=matrix,
            titles=titles,
        )

    def recode(self, users: Ids, items: Ids) -> tuple[Dataset, int]:
        """The same pairs in the id maps of another log, and how many pairs it does not know."""
        if self.users == users and self.items == items:
            return replace(self, users=users, items=items), 0
        user_codes = users.codes(self.users.values)[self.user_of_entry]
        item_codes = items.codes(self.items.values)[self.matrix.indices]
        known = (user_codes >= 0) & (item_codes >= 0)
        recoded = Dataset.from_pairs(
            users,
            items,
            user_codes[known],
            item_codes[known],
            weights=self.matrix.data[known],
            times=None if self.times is None else self.times[known],
            library=self.library,
            name=self.name,
        )
        return recoded, int((~known).sum())

    def merge(self, other: Dataset) -> Dataset:
        """The rows of both logs, which must have the same id maps; weights add up, the first time is kept."""
        times = None
        if self.times is not None and other.times is not None:
            times = np.concatenate([self.times, other.times])
        merged = Dataset.from_pairs(
            self.users,
            self.items,
            np.concatenate([self.user_of_entry, other.user_of_entry]),
            np.concatenate([self.matrix.indices, other.matrix.indices]),
            weights=np.concatenate([self.matrix.data, other.matrix.data]),
            times=times,
        )
        return replace(self, matrix=merged.matrix, times=merged.times)

    def with_titles(self, titles: dict[Any, str]) -> Dataset:
        """The same log with names for its items; an item that is not named keeps its id as name."""
        ids = self.items.take(np.arange(self.n_items, dtype=np.int32)).to_list()
        return replace(self, titles=pl.Series("title", [titles.get(i, str(i)) for i in ids]))

    def __repr__(self) -> str:
        return (
            f"Dataset({self.n_interactions:,} interactions, {self.n_users:,} users, "
            f"{self.n_items:,} items, sparsity {self.sparsity:.4%})"
        )


def stable_order(codes: Codes, n_codes: int) -> NDArray[np.int32]:
    """A stable argsort of codes below `n_codes`, by counting: SciPy's transposition of a sparse matrix.

    >>> stable_order(np.array([2, 0, 2, 1], dtype=np.int32), 3).tolist()
    [1, 3, 0, 2]
    """
    n = len(codes)
    one_a_row = (np.ones(n, dtype=np.int8), codes, np.arange(n + 1, dtype=np.int32))
    order: NDArray[np.int32] = sparse.csr_array(one_a_row, shape=(n, n_codes)).tocsc().indices
    return order


def check_usable(log: Dataset) -> Dataset:
    """A log from which nothing can be learned is an error, said early."""
    if log.n_interactions == 0:
        raise DataError("the log is empty: no row is left. Is it the right file? Is min_rating too high?")
    for ids in (log.users, log.items):
        if len(ids) < 2:
            raise DataError(
                f"the log has only one {ids.what}, {ids.values[0]!r}: there is nothing to compare. "
                f"Was the right column taken as {ids.what}? Say {ids.what}=... to name another."
            )
    return log
