"""`Dataset`: interactions of users with items, as a sparse matrix and the ids of its rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.frames import Library, to_native
from truelike.data.html import dataset_html
from truelike.data.ids import Codes, Ids, check_count
from truelike.data.matrix import check_mask, own_csr, own_times, read_only
from truelike.data.titles import titles_of
from truelike.errors import DataError


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Dataset:
    """Interactions of users with items: each pair (user, item) once, with a weight.

    `tl.read` makes one. The weight of a pair is the number of its rows, or the sum of their weights. A dataset is never
    changed: its arrays are read-only, because compiled loops trust them. Copy them to work on them.

    Attributes
    ----------
    users, items
        The ids, sorted: sequences, e.g. ``data.users[0]``.
    matrix
        CSR (users x items) of the weights, with int32 indices that are sorted in each row: a read-only view.
    times
        For each entry of `matrix`, the time of its last row; None if there are no times. So a split by time puts a
        pair into training only if all of its rows are before the held-out ones: its weight tells nothing of the
        future.
    titles
        A title for each item; None if there are no titles.
    library
        The frame library of the rows that were read. Results are frames of the same library.
    name
        The name of the dataset in tables.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("ann", "tea")])
    >>> data
    Dataset(3 interactions, 2 users, 2 items, sparsity 25.0000%)
    >>> data.users[0], list(data.items)
    ('ann', ['milk', 'tea'])
    >>> data.seen("ann").to_list()
    ['milk', 'tea']
    >>> data.matrix.toarray()
    array([[1., 2.],
           [0., 1.]], dtype=float32)
    """

    users: Ids
    items: Ids
    _csr: sparse.csr_array
    times: NDArray[np.int64] | None
    titles: pl.Series | None
    library: Library
    name: str

    def __init__(
        self,
        users: Ids,
        items: Ids,
        matrix: Any,
        times: NDArray[np.int64] | None = None,
        titles: pl.Series | None = None,
        library: Library = "polars",
        name: str = "dataset",
    ) -> None:
        if not (isinstance(users, Ids) and isinstance(items, Ids)):
            raise DataError("users and items of a Dataset are Ids; pass tl.read(rows)")
        csr = own_csr(matrix, (len(users), len(items)))
        self._set(users, items, csr, own_times(times, csr.nnz), titles, library, name)

    def _set(self, *values: Any) -> None:
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)  # the class is frozen

    @classmethod
    def _of(
        cls,
        users: Ids,
        items: Ids,
        csr: sparse.csr_array,
        times: NDArray[np.int64] | None = None,
        titles: pl.Series | None = None,
        library: Library = "polars",
        name: str = "dataset",
    ) -> Dataset:
        """Build a dataset of a CSR that belongs to it alone and is known to be valid, without any check."""
        dataset = cls.__new__(cls)
        dataset._set(users, items, csr, None if times is None else read_only(times), titles, library, name)
        return dataset

    def _with(self, **changed: Any) -> Dataset:
        """The same dataset with other values of some fields."""
        return Dataset._of(
            *({**{name: getattr(self, name) for name in self.__dataclass_fields__}, **changed}).values()
        )

    @property
    def matrix(self) -> sparse.csr_array:
        """CSR (users x items) of the weights: a read-only view."""
        parts = tuple(read_only(part) for part in (self._csr.data, self._csr.indices, self._csr.indptr))
        return sparse.csr_array(parts, shape=self._csr.shape)

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
        """Build from row numbers of users and items; repeated pairs are merged (sum of weights, latest time)."""
        check_count(len(user_codes), "rows")
        lengths = {len(each) for each in (user_codes, item_codes, weights, times) if each is not None}
        if len(lengths) > 1:
            raise DataError(f"the row numbers, weights and times have other lengths: {sorted(lengths)}")
        for codes, ids in ((user_codes, users), (item_codes, items)):
            if getattr(codes, "dtype", np.dtype(object)).kind not in "iu":
                raise DataError(f"the row numbers of {ids.what}s are no array of whole numbers")
            if len(codes) and not 0 <= codes.min() <= codes.max() < len(ids):
                raise DataError(f"the row numbers of {ids.what}s are {codes.min()} to {codes.max()} of {len(ids)}")
        order = stable_order(item_codes, len(items))
        order = order[stable_order(user_codes[order], len(users))]
        rows, columns = user_codes[order], item_codes[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
        first = np.flatnonzero(new)
        counts = np.diff(first, append=len(order))
        merged = counts if weights is None else _sums(weights[order], first)
        if times is not None:
            times = np.maximum.reduceat(times[order], first)
        counts = np.bincount(rows[first], minlength=len(users))
        indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        matrix = sparse.csr_array(
            (merged.astype(np.float32), columns[first].astype(np.int32), indptr),
            shape=(len(users), len(items)),
        )
        return cls._of(users, items, matrix, times, **rest)

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
        return int(self._csr.nnz)

    @property
    def n_rows(self) -> float:
        """The sum of all weights: without weights, the number of rows that were read."""
        return float(self._csr.data.sum(dtype=np.float64))

    @property
    def has_weights(self) -> bool:
        """Whether any pair has a weight other than 1, because it was weighted or repeated."""
        return bool((self._csr.data != 1).any())

    @property
    def sparsity(self) -> float:
        """The share of all pairs (user, item) without an interaction."""
        return 1.0 - self.n_interactions / (self.n_users * self.n_items)

    @property
    def user_of_entry(self) -> Codes:
        """For each entry of `matrix`, the row number of its user: a read-only view."""
        return read_only(self._user_of_entry)

    @cached_property
    def _user_of_entry(self) -> Codes:
        return np.repeat(np.arange(self.n_users, dtype=np.int32), self.interactions_per_user())

    def interactions_per_user(self) -> NDArray[np.int64]:
        """The number of items of each user, in the order of `users`."""
        counts: NDArray[np.int64] = np.diff(self._csr.indptr).astype(np.int64)
        return counts

    def popularity(self) -> NDArray[np.int64]:
        """The number of users of each item, in the order of `items`."""
        return np.bincount(self._csr.indices, minlength=self.n_items)

    def seen(self, user: Any) -> pl.Series:
        """The items that a user interacted with."""
        return self.items.take(self._history(int(self.users.known(user)[0]))).alias("item_id")

    def _history(self, user: int) -> Codes:
        """The items of a user, by row numbers."""
        lo, hi = self._csr.indptr[user : user + 2]
        return np.sort(self._csr.indices[lo:hi]).astype(np.int32)

    def _rows(self, users: Codes) -> tuple[Any, Codes]:
        """A CSR that has the interactions of some users, and the row of each of them."""
        return self._csr, users

    def _every(self, step: int) -> sparse.csr_array:
        """A CSR of every `step`-th user."""
        return self._csr[::step]

    def _digest_into(self, digest: Any) -> None:
        """Add all that models learn from to a digest."""
        for array in (self._csr.indptr, self._csr.indices):
            digest.update(np.ascontiguousarray(array).tobytes())
        for name, values in (("weights", self._csr.data if self.has_weights else None), ("times", self.times)):
            if values is not None:  # a model may count them
                digest.update(name.encode() + np.ascontiguousarray(values).tobytes())

    def to_frame(self) -> Any:
        """A frame with a row for each pair: user_id, item_id, weight and, if there are times, time."""
        frame = pl.DataFrame(
            [
                self.users.take(self._user_of_entry).alias("user_id"),
                self.items.take(self._csr.indices).alias("item_id"),
                pl.Series("weight", self._csr.data),
            ]
        )
        if self.times is not None:
            frame = frame.with_columns(pl.Series("time", self.times))
        return to_native(frame, self.library)

    def select(self, entries: NDArray[np.bool_]) -> Dataset:
        """The same users and items with the marked entries of `matrix` only."""
        check_mask(entries, self.n_interactions, "entries")
        counts = np.bincount(self._user_of_entry[entries], minlength=self.n_users)
        indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        data, indices = self._csr.data[entries], self._csr.indices[entries]
        matrix = sparse.csr_array((data, indices, indptr), shape=self._csr.shape)
        times = None if self.times is None else self.times[entries]
        return self._with(_csr=matrix, times=times)

    def restrict(self, users: NDArray[np.bool_], items: NDArray[np.bool_]) -> Dataset:
        """The marked users and items only, with the interactions between them."""
        check_mask(users, self.n_users, "users")
        check_mask(items, self.n_items, "items")
        kept = self.select(users[self._user_of_entry] & items[self._csr.indices])
        indptr = np.concatenate(([0], np.cumsum(kept.interactions_per_user()[users]))).astype(np.int32)
        codes = np.cumsum(items, dtype=np.int32) - 1
        matrix = sparse.csr_array(
            (kept._csr.data, codes[kept._csr.indices], indptr),
            shape=(int(users.sum()), int(items.sum())),
        )
        titles = None if self.titles is None else self.titles.filter(pl.Series(items))
        return kept._with(
            users=self.users.subset(users), items=self.items.subset(items), _csr=matrix, titles=titles
        )

    def recode(self, users: Ids, items: Ids) -> tuple[Dataset, int]:
        """The pairs of the given users and items, in their order, and the number of pairs of others."""
        if self.users == users and self.items == items:
            return self._with(users=users, items=items), 0
        user_map, item_map = users.codes(self.users.values), items.codes(self.items.values)
        if _in_order(user_map) and _in_order(item_map):
            return self._kept(users, items, user_map, item_map)
        user_codes = user_map[self._user_of_entry]  # ids are numbers in one, and text in the other
        item_codes = item_map[self._csr.indices]
        known = (user_codes >= 0) & (item_codes >= 0)
        recoded = Dataset.from_pairs(
            users,
            items,
            user_codes[known],
            item_codes[known],
            weights=self._csr.data[known],
            times=None if self.times is None else self.times[known],
            library=self.library,
            name=self.name,
        )
        return recoded, int((~known).sum())

    def _kept(self, users: Ids, items: Ids, user_map: Codes, item_map: Codes) -> tuple[Dataset, int]:
        """What `recode` returns, where users and items keep their order: without a copy of all pairs to sort."""
        known = user_map >= 0
        kept = (item_map >= 0)[self._csr.indices]
        kept &= np.repeat(known, np.diff(self._csr.indptr))
        before = np.zeros(len(kept) + 1, dtype=np.int32)
        np.cumsum(kept, out=before[1:])
        counts = np.zeros(len(users), dtype=np.int32)
        counts[user_map[known]] = np.diff(before[self._csr.indptr])[known]
        del before
        matrix = sparse.csr_array(
            (
                self._csr.data[kept],
                item_map[self._csr.indices[kept]],
                np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
            ),
            shape=(len(users), len(items)),
        )
        times = None if self.times is None else self.times[kept]
        recoded = Dataset._of(users, items, matrix, times, None, self.library, self.name)
        return recoded, int(len(kept) - matrix.nnz)

    def merge(self, other: Dataset) -> Dataset:
        """The interactions of two datasets with the same users and items (sum of weights, latest time)."""
        if self.users != other.users or self.items != other.items:
            raise DataError("the datasets to merge have other users or items; use `recode` first")
        times = None
        if self.times is not None and other.times is not None:
            times = np.concatenate([self.times, other.times])
        merged = Dataset.from_pairs(
            self.users,
            self.items,
            np.concatenate([self._user_of_entry, other._user_of_entry]),
            np.concatenate([self._csr.indices, other._csr.indices]),
            weights=np.concatenate([self._csr.data, other._csr.data]),
            times=times,
        )
        return self._with(_csr=merged._csr, times=merged.times)

    def with_titles(self, titles: Any, *, encoding: str = "utf-8") -> Dataset:
        """The same dataset with names of its items for people to read.

        Parameters
        ----------
        titles
            A mapping {item: title}; a pair of columns (items, titles); a frame, or the path of a CSV, TSV, JSONL
            or Parquet file, with a column of item ids and one of titles. An item without a title gets its id.
        encoding
            That of a text file, e.g. "latin-1".

        Examples
        --------
        >>> import truelike as tl
        >>> data = tl.read([("ann", 7), ("bob", 9)]).with_titles({7: "Green tea"})
        >>> data.titles.to_list()
        ['Green tea', '9']
        """
        return self._with(titles=titles_of(self.items, titles, encoding=encoding))

    def _repr_html_(self) -> str:
        return dataset_html(self)

    def __repr__(self) -> str:
        return (
            f"Dataset({self.n_interactions:,} interactions, {self.n_users:,} users, "
            f"{self.n_items:,} items, sparsity {self.sparsity:.4%})"
        )


def _in_order(codes: Codes) -> bool:
    """Whether the row numbers that are known increase."""
    known = codes[codes >= 0]
    return bool((known[1:] > known[:-1]).all())


def _sums(weights: NDArray[np.floating], first: NDArray[np.intp]) -> NDArray[np.floating]:
    """The sum of the weights of each pair, whose rows begin at `first`; an error if float32 cannot hold it."""
    sums: NDArray[np.floating] = np.add.reduceat(weights, first, dtype=np.float64)
    largest = float(np.finfo(np.float32).max)
    if len(sums) and not sums.max() <= largest:
        raise DataError(
            f"the weights of a pair (user, item) add up to {sums.max():.3g}; at most {largest:.3g} is possible. "
            "Divide all weights by a large number."
        )
    return sums


def stable_order(codes: Codes, n_codes: int) -> NDArray[np.int32]:
    """A stable argsort of codes below `n_codes` by counting, as SciPy transposes a sparse matrix.

    >>> stable_order(np.array([2, 0, 2, 1], dtype=np.int32), 3).tolist()
    [1, 3, 0, 2]
    """
    n = len(codes)
    one_a_row = (np.ones(n, dtype=np.int8), codes, np.arange(n + 1, dtype=np.int32))
    order: NDArray[np.int32] = sparse.csr_array(one_a_row, shape=(n, n_codes)).tocsc().indices
    return order
