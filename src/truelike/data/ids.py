"""The one place where a caller's own ids meet row numbers.

Ids are kept sorted. So the same rows in any order give the same numbers, and looking an id up is a
binary search that needs no hash table beside it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.frames import is_uuid, library_of, to_series
from truelike.errors import DataError, ParameterError, UnknownIdError, some

Codes = NDArray[np.int32]
Kind = Literal["int", "str", "uuid"]

MOST = 2**31 - 1  # int32 row numbers


def normalise(series: pl.Series, what: str) -> tuple[pl.Series, Kind]:
    """Ids as 64-bit integers or as text, and which kind they were.

    Whole numbers in a float column (what pandas makes of integers with a gap) are integers again.
    """
    if is_uuid(series):
        return pl.Series(series.name, [None if v is None else str(v) for v in series]), "uuid"
    if series.dtype in (pl.Object, pl.Binary) or series.dtype.is_nested():
        kinds = sorted({type(value).__name__ for value in series if value is not None})
        raise DataError(
            f"the {what} ids are of type {' and '.join(kinds)}; all must be strings, or integers, or UUIDs. "
            "Turn them into strings first."
        )
    if series.dtype.is_float():
        series = series.fill_nan(None)
        whole = series.cast(pl.Int64, strict=False)
        wrong = series.filter(whole.cast(pl.Float64).ne_missing(series.cast(pl.Float64)))
        if len(wrong):
            raise DataError(
                f"the {what} ids are numbers with a fraction, or too large, such as "
                f"{some(wrong.to_list(), 3)}. Ids are strings, integers or UUIDs: was another column meant?"
            )
        return whole, "int"
    if series.dtype.is_integer():
        if series.dtype in (pl.UInt64, pl.Int128) and series.cast(pl.Int64, strict=False).null_count():
            return series.cast(pl.String), "str"
        return series.cast(pl.Int64), "int"
    return series.cast(pl.String), "str"


def check_kind(values: pl.Series, kind: Any, what: str) -> None:
    """Ids from a file must be of the kind that it says: what is asked of them later depends on it."""
    expected = {"int": pl.Int64, "str": pl.String, "uuid": pl.String}
    if kind not in expected or values.dtype != expected[kind] or values.null_count():
        raise ValueError(f"the {what} ids are {values.dtype}, which the kind {kind!r} does not fit")
    if kind == "uuid" and not values.str.contains(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$").all():
        raise ValueError(f"the {what} ids are not UUIDs, which the kind {kind!r} says")


def encode(series: pl.Series) -> tuple[pl.Series, Codes]:
    """Sorted distinct values, and for each row the number of its value among them.

    >>> values, codes = encode(pl.Series(["b", "a", "b"]))
    >>> values.to_list(), codes.tolist()
    (['a', 'b'], [1, 0, 1])
    """
    name = "id"
    groups = (
        series.alias(name).to_frame().lazy().with_row_index("row").group_by(name).agg("row").sort(name)
    ).collect()
    codes = np.empty(len(series), dtype=np.int32)
    sizes = groups["row"].list.len().to_numpy()
    rows = groups["row"].explode().to_numpy()
    codes[rows] = np.repeat(np.arange(len(groups), dtype=np.int32), sizes)
    return groups[name], codes


@dataclass(frozen=True, eq=False)
class Ids:
    """A caller's ids, sorted: row number to id by `take`, id to row number by `codes`.

    >>> ids = Ids(pl.Series(["ann", "bob"]), "str", "user")
    >>> ids.codes(["bob", "eve"]).tolist()
    [1, -1]
    """

    values: pl.Series
    kind: Kind
    what: str

    def __post_init__(self) -> None:
        if len(self.values) > MOST:
            raise DataError(f"{len(self.values):,} {self.what}s are more than {MOST:,}")

    @classmethod
    def range(cls, n: int, what: str) -> Ids:
        """The ids of a matrix: its row or column numbers."""
        return cls(pl.Series("id", np.arange(n, dtype=np.int64)), "int", what)

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ids):
            return NotImplemented
        if self.values.dtype != other.values.dtype or len(self) != len(other):
            return False
        return self.values is other.values or bool((self.values == other.values).all())

    __hash__ = None  # type: ignore[assignment]

    def codes(self, ids: Any) -> Codes:
        """The row number of each id; -1 for one that is not known."""
        asked, _ = normalise(to_series(one_or_many(ids)), self.what)
        wanted = asked.cast(self.values.dtype, strict=False)
        if asked.dtype == pl.String and self.kind == "int":  # "7" is 7, "007" is not
            wanted = wanted.set((wanted.cast(pl.String) != asked).fill_null(False), None)
        at = self.values.search_sorted(wanted.fill_null(self.values[0])).to_numpy().clip(0, len(self) - 1)
        found = (self.values.gather(at) == wanted).fill_null(False).to_numpy()
        return np.where(found, at, -1).astype(np.int32)

    def known(self, ids: Any) -> Codes:
        """The row number of each id, or an error that names those that are not known."""
        codes = self.codes(ids)
        if (codes < 0).any():
            strangers = to_series(one_or_many(ids)).gather(np.flatnonzero(codes < 0)).to_list()
            subject, verb = (self.what, "is") if len(strangers) == 1 else (f"{self.what}s", "are")
            raise UnknownIdError(
                f"the {subject} {some(map(repr, strangers))} {verb} not among the {len(self):,} "
                f"{self.what}s of the training data (they look like {some([repr(self.values[0])])}). "
                'Where the call takes it, on_unknown="popular" or "skip" goes on without.'
            )
        return codes

    def take(self, codes: Codes) -> pl.Series:
        """The ids at the given row numbers, as the caller gave them."""
        texts = self.values.gather(codes)
        if self.kind == "uuid":
            return pl.Series([uuid.UUID(text) for text in texts], dtype=pl.Object)
        return texts

    def union(self, other: Ids) -> Ids:
        """These ids and those of another map, sorted.

        >>> Ids.range(2, "user").union(Ids(pl.Series([7]), "int", "user")).values.to_list()
        [0, 1, 7]
        """
        if self.kind != other.kind:
            raise DataError(
                f"the {self.what} ids are of the kind {self.kind!r} here and {other.kind!r} there "
                f"({self.values[0]!r} and {other.values[0]!r}): read both logs alike"
            )
        both = pl.concat([self.values.alias("id"), other.values.alias("id")]).unique().sort()
        return Ids(both, self.kind, self.what)

    def subset(self, keep: NDArray[np.bool_]) -> Ids:
        """Only the ids marked in a mask, still sorted."""
        return Ids(self.values.filter(pl.Series(keep)), self.kind, self.what)


def one_or_many(ids: Any) -> Any:
    """A single id as a list of one."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        return [ids]
    if library_of(ids) is not None and hasattr(ids, "columns"):
        raise ParameterError(
            f"ids were asked for, and a table with the columns {some(ids.columns)} was given: name one of them, "
            f"e.g. frame[{str(next(iter(ids.columns), 'user'))!r}]"
        )
    if library_of(ids) is not None or isinstance(ids, (list, np.ndarray)):
        return ids
    return list(ids)
