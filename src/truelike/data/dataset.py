"""`Dataset`: interactions of users with items, the ids of both, and what else is known of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypedDict, TypeVar, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data import entries as rows
from truelike.data.features import FeatureTable
from truelike.data.feedback import Feedback
from truelike.data.frames import Library, to_native
from truelike.data.html import dataset_html
from truelike.data.ids import Codes, Ids
from truelike.data.matrix import check_mask, own_csr, own_times, read_only
from truelike.data.moments import as_dates
from truelike.data.protocol import Digest
from truelike.data.schema import Schema
from truelike.data.shown import Shown
from truelike.data.titles import titles_of
from truelike.errors import DataError, ParameterError, some

M = TypeVar("M", Shown, FeatureTable)


class Carried(TypedDict, total=False):
    """What a dataset may have beside the interactions, by the names of its attributes."""

    titles: pl.Series | None
    library: Library
    name: str
    kinds: Mapping[str, Feedback]
    shown: Shown | None
    item_features: FeatureTable | None
    user_features: FeatureTable | None
    schema: Schema | None


class Parts(Carried, total=False):
    """All attributes of a dataset by their names."""

    users: Ids
    items: Ids
    csr: sparse.csr_array
    times: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Dataset:
    """Interactions of users with items: each pair (user, item) once, with a weight; and what else is known.

    `tl.read` makes one. The weight of a pair is the number of its rows, or the sum of their weights. A dataset is never
    changed: its arrays are read-only, because compiled loops trust them. Copy them to work on them. All parts have the
    row numbers of `users` and `items`, so a split, a k-core and a block directory have all of them.

    Attributes
    ----------
    users, items
        The ids, sorted: sequences, e.g. ``data.users[0]``. Users and items may have no interactions.
    matrix
        CSR (users x items) of the weights, with int32 indices that are sorted in each row: a read-only view.
    csr
        The same for compiled loops, which must not write to it.
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
    kinds
        Other feedback by its name, e.g. views or refunds: `Feedback` with weights, negative ones too, and times.
    shown
        What was shown to whom: `Shown`; None if it is not known.
    item_features, user_features
        Tables of features: `FeatureTable`; None if there are none.
    schema
        What the kinds of events mean: `tl.Schema`; None if the rows had no kinds.

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
    csr: sparse.csr_array
    times: NDArray[np.int64] | None
    titles: pl.Series | None
    library: Library
    name: str
    kinds: Mapping[str, Feedback]
    shown: Shown | None
    item_features: FeatureTable | None
    user_features: FeatureTable | None
    schema: Schema | None

    def __init__(
        self,
        users: Ids,
        items: Ids,
        matrix: sparse.csr_array,
        times: NDArray[np.int64] | None = None,
        titles: pl.Series | None = None,
        library: Library = "polars",
        name: str = "dataset",
    ) -> None:
        if not (isinstance(users, Ids) and isinstance(items, Ids)):
            raise DataError("users and items of a Dataset are Ids; pass tl.read(rows)")
        csr = own_csr(matrix, (len(users), len(items)))
        times = own_times(times, csr.nnz)
        self._assign(users=users, items=items, csr=csr, times=times, titles=titles, library=library, name=name)

    @classmethod
    def unchecked(
        cls,
        users: Ids,
        items: Ids,
        csr: sparse.csr_array,
        times: NDArray[np.int64] | None = None,
        **carried: Unpack[Carried],
    ) -> Dataset:
        """Build a dataset of parts that belong to it alone and are known to be valid, without any check."""
        dataset = cls.__new__(cls)
        dataset._assign(
            users=users, items=items, csr=csr, times=None if times is None else read_only(times), **carried
        )
        return dataset

    def _assign(self, **given: Unpack[Parts]) -> None:
        nothing: Carried = {
            "titles": None, "library": "polars", "name": "dataset", "shown": None, "item_features": None,
            "user_features": None, "schema": None,
        }  # fmt: skip
        kinds = dict(sorted(given.get("kinds", {}).items()))
        for name, value in {**nothing, **given, "kinds": kinds}.items():
            object.__setattr__(self, name, value)  # the class is frozen

    def with_parts(self, **changed: Unpack[Parts]) -> Dataset:
        """The same dataset with other values of some attributes, which are known to be valid."""
        return Dataset.unchecked(**{**{each.name: getattr(self, each.name) for each in fields(self)}, **changed})

    @property
    def matrix(self) -> sparse.csr_array:
        """CSR (users x items) of the weights: a read-only view."""
        parts = tuple(read_only(part) for part in (self.csr.data, self.csr.indices, self.csr.indptr))
        return sparse.csr_array(parts, shape=self.csr.shape)

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
        **carried: Unpack[Carried],
    ) -> Dataset:
        """Build from row numbers of users and items; repeated pairs are merged (sum of weights, latest time)."""
        lengths = {len(each) for each in (user_codes, item_codes, weights, times) if each is not None}
        if len(lengths) > 1:
            raise DataError(f"the row numbers, weights and times have other lengths: {sorted(lengths)}")
        for codes, ids in ((user_codes, users), (item_codes, items)):
            if getattr(codes, "dtype", np.dtype(object)).kind not in "iu":
                raise DataError(f"the row numbers of {ids.what}s are no array of whole numbers")
            if len(codes) and not 0 <= codes.min() <= codes.max() < len(ids):
                raise DataError(f"the row numbers of {ids.what}s are {codes.min()} to {codes.max()} of {len(ids)}")
        found = Feedback.from_pairs(user_codes, item_codes, (len(users), len(items)), weights, times)
        return cls.unchecked(users, items, found.csr, found.times, **carried)

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
        return int(self.csr.nnz)

    @property
    def n_rows(self) -> float:
        """The sum of all weights: without weights, the number of rows that were read."""
        return float(self.csr.data.sum(dtype=np.float64))

    @property
    def has_weights(self) -> bool:
        """Whether any pair has a weight other than 1, because it was weighted or repeated."""
        return bool((self.csr.data != 1).any())

    @property
    def sparsity(self) -> float:
        """The share of all pairs (user, item) without an interaction."""
        return 1.0 - self.n_interactions / (self.n_users * self.n_items)

    @property
    def carries(self) -> frozenset[str]:
        """What is known beside the interactions: of "times", "kinds", "shown", "item_features", "user_features".

        >>> import truelike as tl
        >>> sorted(tl.read([("ann", "tea", 1, 7), ("bob", "rum", 1, 9)], impressions=[("ann", "rum")]).carries)
        ['shown', 'times']
        """
        found = {
            name
            for name in ("times", "shown", "item_features", "user_features")
            if getattr(self, name) is not None
        }
        return frozenset(found | {"kinds"} if self.kinds else found)

    @property
    def user_of_entry(self) -> Codes:
        """For each entry of `matrix`, the row number of its user: a read-only view."""
        return read_only(self.entry_users)

    @cached_property
    def entry_users(self) -> Codes:
        """The same for compiled loops, which must not write to it."""
        return rows.users_of(self.csr)

    def interactions_per_user(self) -> NDArray[np.int64]:
        """The number of items of each user, in the order of `users`."""
        counts: NDArray[np.int64] = np.diff(self.csr.indptr).astype(np.int64)
        return counts

    def popularity(self) -> NDArray[np.int64]:
        """The number of users of each item, in the order of `items`."""
        return np.bincount(self.csr.indices, minlength=self.n_items)

    def seen(self, user: object) -> pl.Series:
        """The items that a user interacted with."""
        return self.items.take(self.items_of(int(self.users.known(user)[0]))).alias("item_id")

    def history(self, user: object) -> pl.Series:
        """The items that a user interacted with, in the order of time; without times, in that of their ids.

        >>> import truelike as tl
        >>> tl.read([("ann", "tea", 1, 7), ("ann", "gin", 1, 9), ("ann", "rum", 1, 3)]).history("ann").to_list()
        ['rum', 'tea', 'gin']
        """
        row = int(self.users.known(user)[0])
        items = self.items_of(row)
        if self.times is not None:
            lo, hi = self.csr.indptr[row : row + 2]
            items = items[np.argsort(self.times[lo:hi], kind="stable")]
        return self.items.take(items).alias("item_id")

    def items_of(self, user: int) -> Codes:
        """The items of a user, by row numbers."""
        lo, hi = self.csr.indptr[user : user + 2]
        return np.sort(self.csr.indices[lo:hi]).astype(np.int32)

    def history_of(self, user: int) -> tuple[sparse.csr_array, NDArray[np.int64] | None]:
        """The interactions of a user as a CSR of one row, with weights, and their times."""
        mine = slice(*self.csr.indptr[user : user + 2])
        weights, items = np.array(self.csr.data[mine]), np.array(self.csr.indices[mine])
        row = sparse.csr_array(
            (weights, items, np.array([0, len(items)], dtype=np.int32)), shape=(1, self.n_items)
        )
        return row, None if self.times is None else np.array(self.times[mine])

    def rows(self, users: Codes) -> tuple[sparse.csr_array, Codes]:
        """A CSR that has the interactions of some users, by row numbers, and the row of each of them."""
        return self.csr, users

    def every(self, step: int) -> sparse.csr_array:
        """A CSR of every `step`-th user."""
        return self.csr[::step]

    def parts(self) -> Iterator[Dataset]:
        """The dataset itself: all of it is in memory."""
        yield self

    def to_dataset(self) -> Dataset:
        """The dataset itself, as all blocks in memory are one."""
        return self

    def digest_into(self, digest: Digest) -> None:
        """Add all that models learn from to a digest."""
        for array in (self.csr.indptr, self.csr.indices):
            digest.update(np.ascontiguousarray(array).tobytes())
        for name, values in (("weights", self.csr.data if self.has_weights else None), ("times", self.times)):
            if values is not None:  # a model may count them
                digest.update(name.encode() + np.ascontiguousarray(values).tobytes())
        of_kinds = {name: {"csr": kind.csr, "times": kind.times} for name, kind in self.kinds.items()}
        of_shown = {} if self.shown is None else {"shown": {"csr": self.shown.csr, **self.shown.known}}
        for name, part in {**of_kinds, **of_shown}.items():
            matrix = part.pop("csr")
            arrays = {"indptr": matrix.indptr, "indices": matrix.indices, "weights": matrix.data, **part}
            for what, values in arrays.items():
                if values is not None:
                    digest.update(f"{name} {what}".encode() + np.ascontiguousarray(values).tobytes())
        for table in (self.item_features, self.user_features):
            if table is not None:
                digest.update(table.frame.write_ipc(None).getvalue() + table.known.tobytes())

    def to_frame(self, part: str = "interactions") -> Any:
        """A part of the dataset as a frame.

        Parameters
        ----------
        part
            "interactions": a row for each pair: user_id, item_id, weight and, if there are times, time. "shown": a row
            for each entry: user_id, item_id, count and position, time, propensity if they are known. The name of a
            kind: as interactions. "item_features", "user_features": the ids and their features. Times that are
            microseconds since 1970, as dates are read, are dates in UTC, others whole numbers.

        Examples
        --------
        >>> import truelike as tl
        >>> data = tl.read([("ann", "tea"), ("bob", "rum")], impressions=[("ann", "tea"), ("ann", "rum")])
        >>> data.to_frame("shown").rows()
        [('ann', 'rum', 1), ('ann', 'tea', 1)]
        """
        if part == "shown" and self.shown is not None:
            known = {name: self.shown.known.get(f"{name}s") for name in ("position", "time")}
            propensity = self.shown.propensities
            frame = self._pairs(self.shown.csr, count=self.shown.csr.data, **known, propensity=propensity)
        elif part == "interactions" or part in self.kinds:
            kind = Feedback(self.csr, self.times) if part == "interactions" else self.kinds[part]
            frame = self._pairs(kind.csr, weight=kind.csr.data, time=kind.times)
        elif part == "item_features" and self.item_features is not None:
            frame = self.item_features.table(self.items)
        elif part == "user_features" and self.user_features is not None:
            frame = self.user_features.table(self.users)
        else:
            there = ["interactions", *(self.carries - {"times", "kinds"}), *self.kinds]
            raise ParameterError(f"the dataset has no part {part!r}; it has {some(sorted(there))}")
        return to_native(frame, self.library)

    def _pairs(self, csr: sparse.csr_array, **columns: NDArray[Any] | None) -> pl.DataFrame:
        users, items = self.users.take(rows.users_of(csr)), self.items.take(csr.indices)
        values = [
            (as_dates(array) if name == "time" else pl.Series(array)).alias(name)
            for name, array in columns.items()
            if array is not None
        ]
        return pl.DataFrame([users.alias("user_id"), items.alias("item_id"), *values])

    def select(self, entries: NDArray[np.bool_]) -> Dataset:
        """The same dataset with the marked entries of `matrix` only."""
        check_mask(entries, self.n_interactions, "entries")
        return self.with_parts(csr=rows.select(self.csr, entries), times=rows.taken(self.times, entries))

    def restrict(self, users: NDArray[np.bool_], items: NDArray[np.bool_]) -> Dataset:
        """The marked users and items only, with all that is known of them."""
        check_mask(users, self.n_users, "users")
        check_mask(items, self.n_items, "items")
        maps = (np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32) for kept in (users, items))
        return self._recoded(self.users.subset(users), self.items.subset(items), *maps)

    def without_users(self, users: Any) -> Dataset:
        """The same dataset without some users: neither their ids nor anything that is known of them. All items stay.

        Parameters
        ----------
        users
            One id or many, all of which are in the dataset.

        Examples
        --------
        >>> import truelike as tl
        >>> data = tl.read([("ann", "tea"), ("bob", "tea"), ("bob", "rum")]).without_users("bob")
        >>> list(data.users), list(data.items), data.n_interactions
        (['ann'], ['rum', 'tea'], 1)
        """
        kept = np.ones(self.n_users, dtype=bool)
        kept[self.users.known(users)] = False
        return self.restrict(kept, np.ones(self.n_items, dtype=bool))

    def recode(self, users: Ids, items: Ids) -> tuple[Dataset, int]:
        """What is known of the given users and items, in their order, and the number of pairs of others."""
        if self.users == users and self.items == items:
            return self.with_parts(users=users, items=items), 0
        found = self._recoded(users, items, users.codes(self.users.values), items.codes(self.items.values))
        return found, self.n_interactions - found.n_interactions

    def _recoded(self, users: Ids, items: Ids, user_map: Codes, item_map: Codes) -> Dataset:
        """All parts in the row numbers of other ids; user n becomes user_map[n], or is left out where it is -1."""
        shape = (len(users), len(items))
        found = Feedback(self.csr, self.times).recode(user_map, item_map, shape)
        old_users, old_items = _inverse(user_map, len(users)), _inverse(item_map, len(items))
        return self.with_parts(
            users=users,
            items=items,
            csr=found.csr,
            times=found.times,
            kinds={name: kind.recode(user_map, item_map, shape) for name, kind in self.kinds.items()},
            shown=None if self.shown is None else self.shown.recode(user_map, item_map, shape),
            titles=None if self.titles is None else _titles(self.titles, items, old_items),
            item_features=None if self.item_features is None else self.item_features.recode(old_items),
            user_features=None if self.user_features is None else self.user_features.recode(old_users),
        )

    def without_repeated(self, known: Dataset) -> Dataset:
        """All but interactions and kinds of a pair and a time that another dataset of the same users and items has.

        >>> import truelike as tl
        >>> night = tl.read([("ann", "tea", 1, 5), ("ann", "rum", 1, 6)])
        >>> night.without_repeated(night).n_interactions
        0
        """
        found = Feedback(self.csr, self.times).without_repeated(Feedback(known.csr, known.times))
        kinds = {
            name: kind.without_repeated(known.kinds[name]) if name in known.kinds else kind
            for name, kind in self.kinds.items()
        }
        return self.with_parts(csr=found.csr, times=found.times, kinds=kinds)

    def merge(self, other: Dataset) -> Dataset:
        """What is known of two datasets with the same users and items.

        Weights are added, and the latest time of a pair is kept. The features and kinds of both are kept; where both
        have features of an id, those of `other` count.
        """
        if self.users != other.users or self.items != other.items:
            raise DataError("the datasets to merge have other users or items; use `recode` first")
        found = Feedback(self.csr, self.times).merge(Feedback(other.csr, other.times))
        kinds = {**self.kinds, **other.kinds}
        kinds |= {
            name: self.kinds[name].merge(other.kinds[name]) for name in self.kinds.keys() & other.kinds.keys()
        }
        return self.with_parts(
            csr=found.csr,
            times=found.times,
            kinds=kinds,
            shown=_merged(self.shown, other.shown),
            titles=joined(self.titles, other.titles, self.items),
            item_features=_merged(self.item_features, other.item_features),
            user_features=_merged(self.user_features, other.user_features),
            schema=other.schema if self.schema is None else self.schema,
        )

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
        return self.with_parts(titles=titles_of(self.items, titles, encoding=encoding))

    def _repr_html_(self) -> str:
        return dataset_html(self)

    def __repr__(self) -> str:
        more = sorted(self.carries - {"times"})
        return (
            f"Dataset({self.n_interactions:,} interactions, {self.n_users:,} users, "
            f"{self.n_items:,} items, sparsity {self.sparsity:.4%}{', with ' * bool(more)}{', '.join(more)})"
        )


def _inverse(codes: Codes, n: int) -> Codes:
    """For each of n new row numbers the old one; -1 for one that is new."""
    found = np.full(n, -1, dtype=np.int32)
    found[codes[codes >= 0]] = np.flatnonzero(codes >= 0)
    return found


def _titles(titles: pl.Series, items: Ids, old: Codes) -> pl.Series:
    """The titles of items that had the row numbers `old`; that of a new item is its id."""
    numbers = pl.Series(old, dtype=pl.Int64).set(pl.Series(old < 0), None)
    return titles.gather(numbers).fill_null(items.values.cast(pl.String))


def joined(one: pl.Series | None, other: pl.Series | None, items: Ids) -> pl.Series | None:
    """The titles of both: those of the first, where they are not the ids."""
    if one is None or other is None:
        return other if one is None else one
    return one.zip_with(one != items.values.cast(pl.String), other)


def _merged(one: M | None, other: M | None) -> M | None:
    return other if one is None else one if other is None else one.merge(other)
