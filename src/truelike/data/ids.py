"""`Ids`: the ids of users and items, and the row numbers that stand for them.

Ids are sorted. So the order of the rows that were read does not change the row numbers, and an id is found by
binary search, without a hash table.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.core.forks import check_not_forked
from truelike.data.frames import POLARS_ERRORS, is_frame, is_uuid, library_of, names_of, to_series
from truelike.errors import DataError, ParameterError, UnknownIdError, some

Codes = NDArray[np.int32]
Kind = Literal["int", "str", "uuid"]

MOST = 2**31 - 1  # int32 row numbers


def check_count(n: int, what: str) -> None:
    """Raise an error if there are more users, items or rows than int32 can count."""
    if n > MOST:
        raise DataError(f"{n:,} {what} were given; at most {MOST:,} are possible. Read fewer of them.")


def normalise(series: pl.Series, what: str) -> tuple[pl.Series, Kind]:
    """Ids as 64-bit integers or as text, and their kind.

    Whole numbers in a float column (pandas makes one of integers with missing values) become integers again.
    """
    if is_uuid(series):
        return pl.Series(series.name, [None if v is None else str(v) for v in series]), "uuid"
    if series.dtype in (pl.Object, pl.Binary, pl.Duration) or series.dtype.is_nested():
        kinds = sorted({type(value).__name__ for value in series if value is not None})
        raise DataError(
            f"the {what} ids are of type {' and '.join(kinds[:5]) or series.dtype}; all must be strings, or "
            "integers, or UUIDs. Turn them into strings first."
        )
    if series.dtype.is_float():
        series = series.fill_nan(None)
        whole = series.cast(pl.Int64, strict=False)
        wrong = series.filter(whole.cast(pl.Float64).ne_missing(series.cast(pl.Float64)))
        if len(wrong):
            raise DataError(
                f"the {what} ids are numbers with a fraction, or too large, such as "
                f"{some(wrong.to_list(), 3)}. Ids are strings, integers or UUIDs. Name another column, or turn "
                "them into strings."
            )
        return whole, "int"
    if series.dtype.is_integer():
        whole = series.cast(pl.Int64, strict=False)
        return (whole, "int") if whole.null_count() == series.null_count() else (series.cast(pl.String), "str")
    try:
        return series.cast(pl.String), "str"
    except POLARS_ERRORS as error:
        raise DataError(
            f"the {what} ids are of the type {series.dtype}, which cannot be turned into text. Ids are strings, "
            "integers or UUIDs. Turn them into strings first."
        ) from error


def check_kind(values: pl.Series, kind: str, what: str) -> None:
    """Raise an error where ids from a file are not of the kind that the file states."""
    expected = {"int": pl.Int64, "str": pl.String, "uuid": pl.String}
    if kind not in expected or values.dtype != expected[kind] or values.null_count():
        raise ValueError(f"the {what} ids are {values.dtype}, which does not fit the kind {kind!r}")
    if len(values) > 1 and not bool((values[1:] > values[:-1]).all()):
        raise ValueError(f"the {what} ids are not sorted, or some are repeated")
    if kind == "uuid" and not values.str.contains(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$").all():
        raise ValueError(f"the {what} ids are not UUIDs, as the kind {kind!r} states")


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


@dataclass(frozen=True, eq=False, repr=False)
class Ids(Sequence[Any]):
    """The ids of users or items as the caller gave them, sorted: a sequence.

    Inside truelike, users and items are row numbers: `take` turns row numbers into ids and `codes` ids into row
    numbers.

    Attributes
    ----------
    values
        The ids as 64-bit integers or text (UUIDs are text here).
    kind
        "int", "str" or "uuid".
    what
        "user" or "item", for messages.

    Examples
    --------
    >>> ids = Ids(pl.Series(["ann", "bob"]), "str", "user")
    >>> ids[0], ids[:5], len(ids), "eve" in ids
    ('ann', ['ann', 'bob'], 2, False)
    >>> ids.codes(["bob", "eve"]).tolist()
    [1, -1]
    """

    values: pl.Series
    kind: Kind
    what: str

    def __post_init__(self) -> None:
        check_count(len(self.values), f"{self.what}s")

    @classmethod
    def range(cls, n: int, what: str) -> Ids:
        """Row or column numbers of a matrix as ids."""
        check_count(n, f"{what}s")
        return cls(pl.Series("id", np.arange(n, dtype=np.int64)), "int", what)

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return self._given(self.values[place]).to_list()
        if not -len(self) <= place < len(self):
            raise IndexError(f"there are {len(self):,} {self.what}s, and number {place} was asked for")
        value = self.stored(np.array([place % len(self)]))[0]
        return uuid.UUID(value) if self.kind == "uuid" else value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._given(self.values))

    def __contains__(self, value: object) -> bool:
        try:
            return bool(self.codes([value])[0] >= 0)
        except DataError:  # of a type that ids do not have
            return False

    def __repr__(self) -> str:
        return f"Ids({len(self):,} {self.what}s: {some(self)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ids):
            return NotImplemented
        if self is other:
            return True
        if self.dtype != other.dtype or len(self) != len(other):  # without reading those that are in files
            return False
        return self.values is other.values or bool((self.values == other.values).all())

    __hash__ = None  # type: ignore[assignment]

    def codes(self, ids: Any) -> Codes:
        """The row number of each id; -1 for one that is not known."""
        check_not_forked()
        asked, _ = normalise(to_series(one_or_many(ids)), self.what)
        wanted = asked.cast(self.dtype, strict=False)
        if asked.dtype == pl.String and self.kind == "int":  # "7" is 7, "007" is not
            wanted = wanted.set((wanted.cast(pl.String) != asked).fill_null(False), None)
        return self._find(wanted)

    def _find(self, wanted: pl.Series) -> Codes:
        """The row number of each stored value; -1 for one that is not known, or missing."""
        return find_sorted(self.values, wanted)

    def stored(self, codes: NDArray[np.integer]) -> pl.Series:
        """The ids at the given row numbers, as they are stored: UUIDs are text."""
        return self.values.gather(codes)

    @property
    def dtype(self) -> pl.DataType:
        """The type of the stored ids."""
        return pl.Int64() if self.kind == "int" else pl.String()

    def known(self, ids: Any) -> Codes:
        """The row number of each id; an error that names the ids that are not known."""
        codes = self.codes(ids)
        if (codes < 0).any():
            unknown = to_series(one_or_many(ids)).gather(np.flatnonzero(codes < 0)).to_list()
            subject, verb = (self.what, "is") if len(unknown) == 1 else (f"{self.what}s", "are")
            raise UnknownIdError(
                f"the {subject} {some(map(repr, unknown))} {verb} not among the {len(self):,} "
                f"{self.what}s of the training data (they look like {some([repr(self[0])])}). "
                'Where the method has it, pass on_unknown="popular" or on_unknown="skip".'
            )
        return codes

    def take(self, codes: Codes) -> pl.Series:
        """The ids at the given row numbers, as the caller gave them."""
        check_not_forked()
        return self._given(self.stored(codes))

    def to_series(self) -> pl.Series:
        """All ids, as the caller gave them."""
        check_not_forked()
        return self._given(self.values)

    def _given(self, values: pl.Series) -> pl.Series:
        """Stored values as the caller gave them."""
        if self.kind == "uuid":
            return pl.Series([uuid.UUID(text) for text in values], dtype=pl.Object)
        return values

    def union(self, other: Ids) -> Ids:
        """The ids of both, sorted.

        >>> Ids.range(2, "user").union(Ids(pl.Series([7]), "int", "user")).values.to_list()
        [0, 1, 7]
        """
        check_not_forked()
        if self.kind != other.kind:
            raise DataError(
                f"the {self.what} ids are of the kind {self.kind!r} here and {other.kind!r} there "
                f"({self.values[0]!r} and {other.values[0]!r}). Read both with ids of the same type."
            )
        both = pl.concat([self.values.alias("id"), other.values.alias("id")]).unique().sort()
        return Ids(both, self.kind, self.what)

    def subset(self, keep: NDArray[np.bool_]) -> Ids:
        """Only the marked ids."""
        check_not_forked()
        return Ids(self.values.filter(pl.Series(keep)), self.kind, self.what)


def find_sorted(values: pl.Series, wanted: pl.Series) -> Codes:
    """The place of each wanted value among sorted values; -1 for one that is not there, or missing.

    >>> find_sorted(pl.Series([2, 5, 7]), pl.Series([5, None, 6])).tolist()
    [1, -1, -1]
    """
    if not len(values):
        return np.full(len(wanted), -1, dtype=np.int32)
    at = values.search_sorted(wanted.fill_null(values[0])).to_numpy().clip(0, len(values) - 1)
    found = (values.gather(at) == wanted).fill_null(False).to_numpy()
    return np.where(found, at, -1).astype(np.int32)


def one_or_many(ids: Any) -> Any:
    """Ids as a list, an array or a series; a single id as a list of one."""
    if isinstance(ids, Ids):
        return ids.to_series()
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        return [ids]
    if is_frame(ids):
        raise ParameterError(
            f"ids are expected, and a table with the columns {some(names_of(ids))} was given. Pass one of its "
            f"columns, e.g. frame[{next(iter(names_of(ids)), 'user')!r}]"
        )
    if library_of(ids) is not None or isinstance(ids, (list, np.ndarray)):
        return ids
    try:
        return list(ids)
    except TypeError as error:
        raise ParameterError(
            f"ids are expected, and {type(ids).__name__} was given: {error}. Pass a list."
        ) from error
