"""Rows of any kind, with ids as row numbers, or an error that says which rows are bad."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.forks import check_not_forked
from truelike.data.columns import Columns
from truelike.data.dataset import Dataset
from truelike.data.files import Form, Table, W, as_path, name_of, read_file, refuse_address
from truelike.data.frames import (
    POLARS_ERRORS,
    Library,
    is_frame,
    library_of,
    missing,
    names_of,
    to_polars,
    to_series,
)
from truelike.data.ids import Codes, Ids, Kind, check_count, encode, normalise
from truelike.data.written_dates import DateOrder, beginnings, check_order, in_iso, order_of
from truelike.errors import DataError, DataWarning, quoted, some, warn

POSITIONS = ("user", "item", "rating", "time")
LARGEST, SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).smallest_subnormal)  # of weights
MOST_REASONS = 5  # in one message
MOST_KINDS = 50  # in a column that nobody named


@dataclass(frozen=True)
class EncodedRows:
    """Rows of a table with ids as row numbers: what each row has, or None if there is no such column.

    Positions are as they were given, and `columns` names those that were read. `quantities` are the columns of
    weights of some kinds, by name; nan where there is none.
    """

    users: Ids
    items: Ids
    user_codes: Codes
    item_codes: Codes
    columns: Columns
    weights: NDArray[np.float64] | None = None
    times: NDArray[np.int64] | None = None
    positions: NDArray[np.float64] | None = None
    library: Library = "polars"
    name: str = "dataset"
    kinds: pl.Series | None = None
    quantities: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def taken(self, mask: NDArray[np.bool_]) -> EncodedRows:
        """The users, items, times and positions of the marked rows."""
        times = None if self.times is None else self.times[mask]
        positions = None if self.positions is None else self.positions[mask]
        columns = Columns(self.columns.user, self.columns.item, time=self.columns.time)
        codes = (self.user_codes[mask], self.item_codes[mask])
        if positions is not None and np.isnan(positions).all():
            positions = None
        return EncodedRows(self.users, self.items, *codes, columns, times=times, positions=positions)

    def to_dataset(self) -> Dataset:
        """The pairs of the rows."""
        return Dataset.from_pairs(
            self.users,
            self.items,
            self.user_codes,
            self.item_codes,
            weights=self.weights,
            times=self.times,
            library=self.library,
            name=self.name,
        )


def read_rows(
    source: Any,
    settle: Callable[[list[str]], Columns],
    *,
    on_bad_rows: str = "refuse",
    any_weight: bool = True,
    min_rating: float | None = None,
    name: str | None = None,
    dates: DateOrder | None = None,
    **form: Unpack[Form],
) -> EncodedRows:
    """Read the rows of a frame, a file, an array or a list, without merging those of the same pair.

    `settle` names the columns. Positions, and with `any_weight` weights, are any finite numbers.
    """
    check_not_forked()
    check_order(dates)
    refuse_address(source)
    rows = read_table(source, settle, name, **form)
    return _encoded(rows, min_rating, on_bad_rows, dates, any_weight=any_weight)


def read_table(
    source: Any, settle: Callable[[list[str]], W], name: str | None = None, **form: Unpack[Form]
) -> Rows[W]:
    """The rows of a file, a frame, an array or a list."""
    if isinstance(source, (str, os.PathLike)):
        path = as_path(source)
        return Rows(**vars(read_file(path, settle, **form)), name=name or name_of(path))
    frame, library, bad = _as_frame(source)
    columns = settle(names_of(frame))
    if isinstance(frame, _ByName):
        frame = frame.select(columns.needed())
    kept, left_out = to_polars(frame, columns.needed()), list(bad)

    def numbers() -> NDArray[np.int64]:
        return np.setdiff1d(np.arange(len(kept) + len(left_out)), left_out)

    return Rows(kept, columns, numbers, bad, text=False, unit="row", library=library, name=name or "dataset")


@dataclass
class Rows(Table[W]):
    """A table that is being read: which rows are good so far, and why the others are bad."""

    library: Library = "polars"
    name: str = "dataset"

    def __post_init__(self) -> None:
        self.good = np.ones(len(self.frame), dtype=bool)

    def mark(self, wrong: pl.Series, reason: str) -> None:
        """Mark rows as bad, with the reason."""
        at = wrong.to_numpy() & self.good
        if at.any():
            self.bad.update({int(number): reason for number in self.numbers()[at]})
            self.good &= ~at

    def of_good(self, series: pl.Series) -> pl.Series:
        """The values of the good rows."""
        return series if self.good.all() else series.filter(pl.Series(self.good))

    def pop(self, column: str) -> pl.Series:
        """The good rows of a column, which is removed from the table to free memory."""
        series = self.frame[column]
        self.frame = self.frame.drop(column)
        return self.of_good(series)


def _encoded(
    rows: Rows[Columns], min_rating: float | None, on_bad_rows: str, dates: DateOrder | None, *, any_weight: bool
) -> EncodedRows:
    columns = rows.columns
    check_count(len(rows.frame), "rows")
    for role, column in (("user", columns.user), ("item", columns.item)):
        rows.mark(missing(rows.frame[column]), f"has no {role} (column {quoted(column)})")
    found: dict[str, pl.Series] = {}
    if columns.time is not None:
        found["times"] = _times(rows, columns.time, dates)
    if columns.weight is not None:
        role = columns.weight if any_weight else "weight"
        found["weights"] = _numbers(rows, columns.weight, role, bounded=not any_weight)
    if columns.position is not None:
        if columns.kind is None:
            found["positions"] = _numbers(rows, columns.position, "position")
        else:  # only impressions have one
            found["positions"] = cast(rows.frame[columns.position], pl.Float64()).fill_null(np.nan)
    ratings = None if min_rating is None else _numbers(rows, str(columns.rating), "rating")
    if columns.kind is not None and not (columns.kind_guessed and not _are_kinds(rows.frame[columns.kind])):
        found["kinds"] = cast(rows.frame[columns.kind], pl.String())
        rows.mark(missing(found["kinds"]), f"has no kind (column {quoted(columns.kind)})")
    quantities = {name: cast(rows.frame[name], pl.Float64()).fill_null(np.nan) for name in columns.quantities}
    if rows.bad:
        report_bad_rows(rows, on_bad_rows)
    if ratings is not None:
        rows.good &= (ratings >= min_rating).fill_null(False).to_numpy()
    if columns.weight is not None and not any_weight:
        _leave_out_zeros(rows, found["weights"])
    found = {name: rows.of_good(values) for name, values in found.items()}
    kinds = found.pop("kinds", None)
    of_kinds = {name: rows.of_good(values).to_numpy() for name, values in quantities.items()}
    # only the ids are left, and one column is freed after the other
    rows.frame = rows.frame.select(columns.user, columns.item)
    user_ids, user_codes = encode_column(rows.pop(columns.user), "user", rows.text)
    item_ids, item_codes = encode_column(rows.pop(columns.item), "item", rows.text)
    arrays = {name: values.to_numpy() for name, values in found.items() if not values.null_count()}
    return EncodedRows(
        user_ids,
        item_ids,
        user_codes,
        item_codes,
        columns,
        **arrays,
        library=rows.library,
        name=rows.name,
        kinds=kinds,
        quantities=of_kinds,
    )


def _are_kinds(series: pl.Series) -> bool:
    """Whether a column whose name looks like that of kinds has a few words."""
    if series.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return False
    words = series.drop_nulls().cast(pl.String).unique()
    return 0 < len(words) <= MOST_KINDS and words.cast(pl.Float64, strict=False).null_count() == len(words)


def _leave_out_zeros(rows: Rows[Columns], weights: pl.Series) -> None:
    """Leave out the rows of weight 0, and say how many users and items are lost with them."""
    zero = (weights == 0).fill_null(False).to_numpy() & rows.good
    rows.good &= ~zero
    if not zero.any():
        return

    def lost(column: str, role: str) -> int:
        ids, kept = (
            {str(each) for each in normalise(rows.frame[column].filter(mask), role)[0].unique()}
            for mask in (zero, rows.good)
        )
        return len(ids - kept)

    n, columns = int(zero.sum()), rows.columns
    warn_of_zeros(n, str(columns.weight), users=lost(columns.user, "user"), items=lost(columns.item, "item"))


def warn_of_zeros(n: int, column: str, *, users: int, items: int) -> None:
    """Warn of rows of weight 0, and of the users and items that have no others."""
    lost = " and ".join(
        f"{count:,} {what if count == 1 else what + 's'}" for what, count in (("user", users), ("item", items))
    )
    warn(
        f"left out {n:,} row{'s' * (n > 1)} of weight 0 (column {quoted(column)}), and so {lost} without another row. "
        "Give them a weight above 0 if they count.",
        DataWarning,
    )


def encode_column(series: pl.Series, role: str, text: bool) -> tuple[Ids, Codes]:
    """The id map of a column and the code of each row."""
    series, kind = normalise(series, role)
    values, codes = encode(series)
    if text and kind == "str":
        values, codes, kind = as_integers(values, codes)
    return Ids(values, kind, role), codes


def _numbers(rows: Rows[Columns], column: str, role: str, *, bounded: bool = False) -> pl.Series:
    """A column as numbers; a row without a usable number is bad."""
    series = cast(rows.frame[column], pl.Float64()).fill_nan(None)
    wrong = series.is_infinite()
    if bounded:  # weights are stored as float32; 0 is allowed, and negative ones take others back
        size = series.abs()
        wrong |= (size > LARGEST) | ((size > 0) & (size < SMALLEST))
    series = series.set(wrong.fill_null(False), None)
    rows.mark(series.is_null(), f"has no usable {role} (column {quoted(column)})")
    return series


def cast(series: pl.Series, kind: pl.DataType) -> pl.Series:
    """A series as another type; null where a value, or the whole series, cannot be converted."""
    try:
        found = series.cast(kind, strict=False)
    except POLARS_ERRORS:
        found = None
    # lists and structs are converted inside
    return found if found is not None and found.dtype == kind else _nulls(series, kind)


def _nulls(series: pl.Series, kind: pl.DataType) -> pl.Series:
    return pl.Series(series.name, [None] * len(series), dtype=kind)


def _times(rows: Rows[Columns], column: str, order: DateOrder | None) -> pl.Series:
    """The time column as whole numbers: its own, or microseconds since 1970."""
    times = parse_times(rows.frame[column], order)
    wrong = times.filter(pl.Series(rows.good)).null_count()
    if not wrong:
        return times
    if not rows.columns.time_guessed:
        rows.mark(times.is_null(), f"has no usable time (column {quoted(column)})")
        return times
    warn(
        f"the column {quoted(column)} looks like a time, but {wrong:,} of its values cannot be read as one, so times "
        "are not used. Name the right column with time=...",
        DataWarning,
    )
    return _nulls(times, pl.Int64())


def parse_times(series: pl.Series, order: DateOrder | None = None) -> pl.Series:
    """Times as whole numbers: their own, or microseconds since 1970; null where there is none."""
    if series.dtype.is_temporal():
        return cast(cast(series, pl.Datetime("us")), pl.Int64())
    if series.dtype == pl.String:
        whole = series.cast(pl.Int64, strict=False)
        if whole.null_count() == 0:
            return whole
        seconds = microseconds(series.cast(pl.Float64, strict=False))
        # the interpretation that fits most values; the others are bad rows
        numbers = min((whole, seconds), key=pl.Series.null_count)
        if 2 * numbers.null_count() < len(series):  # parsing dates is slow
            return numbers
        order = order_of(beginnings(series), order, series.name)
        return min((numbers, dates(series, order)), key=pl.Series.null_count)
    if series.dtype.is_float():
        return microseconds(series)
    return cast(series, pl.Int64())


def dates(series: pl.Series, order: DateOrder | None = None) -> pl.Series:
    """Dates in text as microseconds since 1970; null where there is none."""
    try:
        texts = in_iso(series, order)
        return texts.str.to_datetime(time_unit="us", strict=False, time_zone=None).cast(pl.Int64)
    except POLARS_ERRORS:
        return _nulls(series, pl.Int64())


def microseconds(seconds: pl.Series) -> pl.Series:
    """Seconds with a fraction as whole microseconds."""
    return (seconds.fill_nan(None) * 1e6).round().cast(pl.Int64, strict=False)


def report_bad_rows(rows: Rows[W], on_bad_rows: str) -> None:
    """An error that names the bad rows and what to do; a warning where they are to be dropped."""
    reasons: dict[str, list[int]] = {}
    for number, reason in sorted(rows.bad.items()):
        reasons.setdefault(reason, []).append(number)
    shown = [_where(rows.unit, numbers, reason) for reason, numbers in islice(reasons.items(), MOST_REASONS)]
    rest = len(reasons) - len(shown)
    found = "; ".join([*shown, *[f"and {rest:,} other reasons"] * (rest > 0)])
    total = len(rows.bad)
    if on_bad_rows == "drop":
        warn(f"dropped {total:,} bad row{'s' * (total > 1)}: {found}.", DataWarning)
        return
    are, them = ("row is", "it") if total == 1 else ("rows are", "them")
    dropping = ', or pass on_bad_rows="drop" to read the others' if on_bad_rows == "raise" else ""
    raise DataError(f"{total:,} {are} bad: {found}. Fix {them}{dropping}.")


def _where(unit: str, numbers: list[int], reason: str) -> str:
    """E.g. "line 3 has no user", "lines 3, 5 have no user"."""
    counted = "" if unit == "line" else " (counted from 0)"
    verb, rest = reason.split(" ", 1)
    if len(numbers) > 1:
        unit, verb = f"{unit}s", {"has": "have", "is": "are", "holds": "hold"}.get(verb, verb)
    return f"{unit} {some(numbers)}{counted} {verb} {rest}"


def as_integers(values: pl.Series, codes: Codes) -> tuple[pl.Series, Codes, Kind]:
    """Text ids become integers if all of them are plain integers ("7", not "007")."""
    numbers = values.cast(pl.Int64, strict=False)
    if numbers.null_count() or not bool((numbers.cast(pl.String) == values).all()):
        return values, codes, "str"
    order = numbers.arg_sort().to_numpy()
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return numbers.gather(order), rank[codes], "int"


def from_matrix(matrix: Any, min_rating: float | None, name: str) -> Dataset:
    """The interactions of a sparse matrix (users x items); ids are row and column numbers."""
    if matrix.ndim != 2:
        raise DataError(f"the sparse array has {matrix.ndim} dimension; expected two, users x items")
    coo = sparse.coo_array(matrix)
    if coo.data.dtype.kind not in "biuf":
        raise DataError(f"the values of the matrix are of the type {coo.data.dtype}; expected real numbers")
    values = coo.data.astype(np.float64)
    wrong = ~np.isfinite(values)
    if min_rating is None:
        wrong |= (values < 0) | (values > LARGEST) | ((values > 0) & (values < SMALLEST))
    if wrong.any():
        where = [f"({coo.row[n]}, {coo.col[n]})" for n in np.flatnonzero(wrong)[:6]]
        raise DataError(
            f"{int(wrong.sum()):,} values of the matrix are negative, not finite, or beyond float32, at "
            f"{some(where)}. The values are read as weights; pass min_rating=... if they are ratings."
        )
    keep = values != 0 if min_rating is None else values >= min_rating
    return Dataset.from_pairs(
        Ids.range(coo.shape[0], "user"),
        Ids.range(coo.shape[1], "item"),
        coo.row[keep].astype(np.int32),
        coo.col[keep].astype(np.int32),
        weights=values[keep] if min_rating is None else None,
        name=name,
    )


def _as_frame(source: Any) -> tuple[Any, Library, dict[int, str]]:
    """The frame itself, or a polars frame of an array or list; its library; and why rows are left out."""
    if isinstance(source, pl.LazyFrame):
        source = _collect(source)
    if (library := library_of(source)) is not None and is_frame(source):
        return source, library, {}
    bad: dict[int, str] = {}
    if isinstance(source, np.ndarray) and source.ndim == 2:
        if source.shape[1] not in (2, 3, 4):
            raise DataError(
                f"the array has {source.shape[1]} columns; expected two to four ({', '.join(POSITIONS)})"
            )
        source = tuple(source.T)
    if isinstance(source, tuple) and not _are_columns(source):
        source = list(source)  # a tuple of rows
    if isinstance(source, tuple):
        columns = list(source)
    elif isinstance(source, list) and source and isinstance(source[0], Mapping):
        rows, bad = _by_name(source)
        return rows, "polars", bad
    elif isinstance(source, list) and (not source or isinstance(source[0], (tuple, list))):
        columns, bad = _by_position(source)
    else:
        raise DataError(
            f"cannot read rows from {type(source).__name__}. Pass a path, a pandas, polars or pyarrow frame, a "
            "SciPy sparse matrix, an array with two columns, or a list of (user, item)."
        )
    series = [to_series(column, name) for name, column in zip(POSITIONS, columns, strict=False)]
    lengths = {len(column) for column in series}
    if len(lengths) > 1:
        raise DataError(f"the columns of users and items differ in length: {sorted(lengths)}")
    return pl.DataFrame(series), "polars", bad


def _collect(frame: pl.LazyFrame) -> pl.DataFrame:
    try:
        return frame.collect()
    except POLARS_ERRORS as error:
        raise DataError(f"the LazyFrame cannot be collected: {some([error], longest=300)}") from error


def _are_columns(values: tuple[Any, ...]) -> bool:
    """Whether a tuple has columns (lists, arrays or series) rather than rows (tuples or dicts)."""
    return 2 <= len(values) <= len(POSITIONS) and all(
        isinstance(each, (list, np.ndarray)) or library_of(each) is not None for each in values
    )


def _by_position(rows: list[Any]) -> tuple[list[list[Any]], dict[int, str]]:
    if not rows:
        raise DataError("the dataset is empty: there is no row in the list")
    width = len(rows[0])
    if not 2 <= width <= len(POSITIONS):
        raise DataError(f"the first row has {width} values; expected two to four values ({', '.join(POSITIONS)})")
    bad = {}
    for number, row in enumerate(rows):
        if not isinstance(row, (tuple, list)):
            bad[number] = "is not a tuple"
        elif len(row) != width:
            bad[number] = f"has {len(row)} value{'s' * (len(row) != 1)} where the first row has {width}"
    good = rows if not bad else [row for number, row in enumerate(rows) if number not in bad]
    return [list(column) for column in zip(*good, strict=True)], bad


@dataclass(frozen=True)
class _ByName:
    """Rows that are dicts. Only the columns that are read are gathered."""

    rows: list[Mapping[Any, Any]]
    keys: dict[Any, None]

    @property
    def columns(self) -> list[str]:
        return [str(key) for key in self.keys]

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, names: list[str]) -> pl.DataFrame:
        keys = {str(key): key for key in self.keys}
        return pl.DataFrame({name: to_series([row.get(keys[name]) for row in self.rows], name) for name in names})


def _by_name(rows: list[Any]) -> tuple[_ByName, dict[int, str]]:
    bad = {number: "is not a dict" for number, row in enumerate(rows) if not isinstance(row, Mapping)}
    good = [row for row in rows if isinstance(row, Mapping)]
    return _ByName(good, dict.fromkeys(key for row in good for key in row)), bad
