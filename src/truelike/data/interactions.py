"""`read`: rows of any kind become a Dataset, or an error that says which rows are wrong."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.columns import Columns, choose
from truelike.data.dataset import Dataset, check_usable
from truelike.data.files import read_file, refuse_address
from truelike.data.frames import Library, library_of, missing, to_polars, to_series
from truelike.data.ids import Codes, Ids, Kind, encode, normalise
from truelike.errors import DataError, DataWarning, ParameterError, some

POSITIONS = ("user", "item", "rating", "time")
TIME, WEIGHT = "__time__", "__weight__"
Column = str | int | None


def read(
    source: Any,
    *,
    user: Column = None,
    item: Column = None,
    rating: Column = None,
    time: Column = None,
    weight: Column = None,
    min_rating: float | None = None,
    on_bad_rows: Literal["raise", "drop"] = "raise",
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None,
    separator: str | None = None,
    header: bool = True,
    name: str | None = None,
) -> Dataset:
    """Read a log of (user, item) rows.

    Parameters
    ----------
    source
        A path to a CSV, TSV, JSONL or Parquet file (also with .gz); a pandas, polars or pyarrow frame;
        a SciPy sparse matrix (users x items; its values are weights, or ratings where `min_rating` is
        given); a NumPy array with two to four columns; a tuple of arrays, series or lists, one a column;
        a list or a tuple of tuples (user, item[, rating[, time]]) or of dicts, one a row.
    user, item, rating, time
        The name (or position) of the column; guessed from the common names where None.
    weight
        A column whose values add up over repeated rows; a row of weight 0 is no vote. Without it, each
        row counts one.
    min_rating
        Only rows rated at least this are votes. None: a row is a vote, whatever its rating.
    on_bad_rows
        What to do about a row without an id, or one that cannot be read: "raise" an error that names
        the rows, or "drop" them and warn how many there were.
    format, separator, header
        For files: the kind where the name does not tell; the separator where it is not one of comma,
        tab, semicolon or bar; False where the first line is not a header (columns are then 0, 1, ...).
    name
        What to call the log in tables; the file's name where None.

    Examples
    --------
    >>> import truelike as tl
    >>> tl.read([("ann", "tea", 5), ("bob", "tea", 4), ("bob", "milk", 1)])
    Dataset(3 interactions, 2 users, 2 items, sparsity 25.0000%)
    >>> import numpy as np
    >>> tl.read(np.array([[7, 1], [7, 2], [9, 1]])).users.values.to_list()
    [7, 9]
    """
    if on_bad_rows not in ("raise", "drop"):
        raise ParameterError(f'on_bad_rows is "raise" or "drop", not {on_bad_rows!r}')
    asked: dict[str, Any] = {
        "user": user,
        "item": item,
        "rating": rating,
        "time": time,
        "weight": weight,
    }
    if sparse.issparse(source):
        return check_usable(_from_matrix(source, min_rating, name or "matrix"))

    if not header:
        asked.update(user=0 if user is None else user, item=1 if item is None else item)

    def settle(names: list[str]) -> Columns:
        return choose(names, **asked, needs_rating=min_rating is not None)

    refuse_address(source)
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        table = read_file(path, settle, format=format, separator=separator, header=header)
        rows = _Rows(table.frame, table.columns, table.unit, table.numbers, table.bad)
        log = _build(rows, min_rating, on_bad_rows, "polars", name or path.name.split(".")[0], table.text)
    else:
        frame, library, bad = _as_frame(source)
        columns = settle(_names(frame))
        positions = np.setdiff1d(np.arange(len(frame) + len(bad)), list(bad)) if bad else None
        rows = _Rows(
            to_polars(frame, columns.needed()),
            columns,
            "row",
            lambda: np.arange(len(frame)) if positions is None else positions,
            bad,
        )
        log = _build(rows, min_rating, on_bad_rows, library, name or "log", text=False)
    return check_usable(log)


@dataclass
class _Rows:
    """A table on its way to a Dataset: which rows are good so far, and what is wrong with the others."""

    frame: pl.DataFrame
    columns: Columns
    unit: str
    numbers: Callable[[], NDArray[np.int64]]
    bad: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.good = np.ones(len(self.frame), dtype=bool)

    def mark(self, wrong: pl.Series, reason: str) -> None:
        """Remember the wrong rows by their number."""
        at = wrong.to_numpy() & self.good
        if at.any():
            self.bad.update({int(number): reason for number in self.numbers()[at]})
            self.good &= ~at

    def pop(self, column: str) -> pl.Series:
        """The good rows of a column, which the table then forgets: a long log is large."""
        series = self.frame[column]
        self.frame = self.frame.drop(column)
        return series if self.good.all() else series.filter(pl.Series(self.good))


def _build(
    rows: _Rows, min_rating: float | None, on_bad_rows: str, library: Library, name: str, text: bool
) -> Dataset:
    columns = rows.columns
    for role, column in (("user", columns.user), ("item", columns.item)):
        rows.mark(missing(rows.frame[column]), f"has no {role} (column {column!r})")
    # the columns of numbers replace what was read, so that all of them are filtered alike
    if columns.time is not None:
        rows.frame = rows.frame.with_columns(_times(rows, columns.time).alias(TIME))
    if columns.weight is not None:
        rows.frame = rows.frame.with_columns(_numbers(rows, columns.weight, "weight").alias(WEIGHT))
    ratings = None if min_rating is None else _numbers(rows, str(columns.rating), "rating")
    if rows.bad:
        _complain(rows, on_bad_rows)
    if ratings is not None:
        rows.good &= (ratings >= min_rating).fill_null(False).to_numpy()
    if columns.weight is not None:
        rows.good &= (rows.frame[WEIGHT] > 0).fill_null(False).to_numpy()

    weights = None if columns.weight is None else rows.pop(WEIGHT).to_numpy()
    times = None if columns.time is None else rows.pop(TIME)
    user_ids, user_codes = _encode(rows.pop(columns.user), "user", text)
    item_ids, item_codes = _encode(rows.pop(columns.item), "item", text)
    return Dataset.from_pairs(
        user_ids,
        item_ids,
        user_codes,
        item_codes,
        weights=weights,
        times=None if times is None or times.null_count() else times.to_numpy(),
        library=library,
        name=name,
    )


def _encode(series: pl.Series, role: str, text: bool) -> tuple[Ids, Codes]:
    """The id map of a column and the code of each row."""
    series, kind = normalise(series, role)
    values, codes = encode(series)
    if text and kind == "str":
        values, codes, kind = _as_integers(values, codes)
    return Ids(values, kind, role), codes


def _numbers(rows: _Rows, column: str, role: Literal["weight", "rating"]) -> pl.Series:
    """A column as numbers; a row where it is none, or an impossible one, is bad."""
    series = _cast(rows.frame[column], pl.Float64()).fill_nan(None)
    wrong = series.is_infinite() | (series < 0 if role == "weight" else False)
    series = series.set(wrong.fill_null(False), None)
    rows.mark(series.is_null(), f"has no usable {role} (column {column!r})")
    return series


def _cast(series: pl.Series, kind: pl.DataType) -> pl.Series:
    """A series as another type; null where a value, or the whole series, cannot be."""
    try:
        return series.cast(kind, strict=False)
    except pl.exceptions.PolarsError:
        return pl.Series(series.name, [None] * len(series), dtype=kind)


def _times(rows: _Rows, column: str) -> pl.Series:
    """The time column as whole numbers: its own, or microseconds since 1970."""
    times = _parse_times(rows.frame[column])
    wrong = times.filter(pl.Series(rows.good)).null_count()
    if not wrong:
        return times
    if not rows.columns.time_guessed:
        rows.mark(times.is_null(), f"has no usable time (column {column!r})")
        return times
    warnings.warn(
        f"the column {column!r} looks like a time, but {wrong:,} of its values cannot be read as one: "
        "times are not used. Name the right column with time=...",
        DataWarning,
        stacklevel=4,
    )
    return pl.Series(TIME, [None] * len(times), dtype=pl.Int64)


def _parse_times(series: pl.Series) -> pl.Series:
    if series.dtype.is_temporal():
        return _cast(_cast(series, pl.Datetime("us")), pl.Int64())
    if series.dtype == pl.String:
        whole = series.cast(pl.Int64, strict=False)
        if whole.null_count() == 0:
            return whole
        seconds = _microseconds(series.cast(pl.Float64, strict=False))
        # the reading that makes sense of most values; the others are bad rows
        numbers = min((whole, seconds), key=pl.Series.null_count)
        if 2 * numbers.null_count() < len(series):  # trying dates is slow where most are none
            return numbers
        return min((numbers, _dates(series)), key=pl.Series.null_count)
    if series.dtype.is_float():
        return _microseconds(series)
    return _cast(series, pl.Int64())


def _dates(series: pl.Series) -> pl.Series:
    try:
        return series.str.to_datetime(time_unit="us", strict=False, time_zone=None).cast(pl.Int64)
    except pl.exceptions.PolarsError:
        return pl.Series(series.name, [None] * len(series), dtype=pl.Int64)


def _microseconds(seconds: pl.Series) -> pl.Series:
    """Times with a fraction keep it: whole numbers of a millionth."""
    return (seconds.fill_nan(None) * 1e6).round().cast(pl.Int64, strict=False)


def _complain(rows: _Rows, on_bad_rows: str) -> None:
    """Name the bad rows and the remedy; as a warning where they are to be dropped."""
    reasons: dict[str, list[int]] = {}
    for number, reason in sorted(rows.bad.items()):
        reasons.setdefault(reason, []).append(number)
    found = "; ".join(_where(rows.unit, numbers, reason) for reason, numbers in reasons.items())
    total = len(rows.bad)
    if on_bad_rows == "drop":
        warnings.warn(f"dropped {total:,} bad row{'s' * (total > 1)}: {found}.", DataWarning, stacklevel=4)
        return
    are, them = ("row is", "it") if total == 1 else ("rows are", "them")
    raise DataError(
        f'{total:,} {are} bad: {found}. Mend {them}, or say on_bad_rows="drop" to go on without {them}.'
    )


def _where(unit: str, numbers: list[int], reason: str) -> str:
    """Such as "line 3 has no user", "lines 3, 5 have no user"."""
    counted = "" if unit == "line" else " (counted from 0)"
    verb, rest = reason.split(" ", 1)
    if len(numbers) > 1:
        unit, verb = f"{unit}s", {"has": "have", "is": "are", "holds": "hold"}.get(verb, verb)
    return f"{unit} {some(numbers)}{counted} {verb} {rest}"


def _as_integers(values: pl.Series, codes: Codes) -> tuple[pl.Series, Codes, Kind]:
    """Text ids that are all whole numbers, written the plain way ("7", never "007"), become numbers."""
    numbers = values.cast(pl.Int64, strict=False)
    if numbers.null_count() or not bool((numbers.cast(pl.String) == values).all()):
        return values, codes, "str"
    order = numbers.arg_sort().to_numpy()
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return numbers.gather(order), rank[codes], "int"


def _from_matrix(matrix: Any, min_rating: float | None, name: str) -> Dataset:
    """A sparse matrix (users x items): ids are its row and column numbers."""
    if matrix.ndim != 2:
        raise DataError(f"the sparse array has {matrix.ndim} dimension; users x items are two")
    coo = sparse.coo_array(matrix)
    values = np.asarray(coo.data, dtype=np.float64)
    wrong = ~np.isfinite(values) | ((values < 0) & (min_rating is None))
    if wrong.any():
        where = [f"({coo.row[n]}, {coo.col[n]})" for n in np.flatnonzero(wrong)[:6]]
        raise DataError(
            f"{int(wrong.sum()):,} values of the matrix are negative or not finite, at {some(where)}. "
            "The values are weights; say min_rating=... if they are ratings."
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
    """Frames as they are; arrays and lists as a polars frame by position, and which rows are left out."""
    if isinstance(source, pl.LazyFrame):
        source = source.collect()
    library = library_of(source)
    if library is not None and hasattr(source, "columns"):
        return source, library, {}
    bad: dict[int, str] = {}
    if isinstance(source, np.ndarray) and source.ndim == 2:
        if source.shape[1] not in (2, 3, 4):
            raise DataError(
                f"the array has {source.shape[1]} columns; two to four are read ({', '.join(POSITIONS)})"
            )
        source = tuple(source.T)
    if isinstance(source, tuple) and not _are_columns(source):
        source = list(source)  # of rows, then
    if isinstance(source, tuple):
        columns = list(source)
    elif isinstance(source, list) and source and isinstance(source[0], Mapping):
        frame, bad = _by_name(source)
        return frame, "polars", bad
    elif isinstance(source, list) and (not source or isinstance(source[0], (tuple, list))):
        columns, bad = _by_position(source)
    else:
        raise DataError(
            f"cannot read rows from {type(source).__name__}: give a path, a pandas, polars or pyarrow "
            "frame, a SciPy sparse matrix, an array with two columns, or a list of (user, item)."
        )
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise DataError(f"users and items are not of one length: {sorted(lengths)}")
    series = [to_series(column, name) for name, column in zip(POSITIONS, columns, strict=False)]
    return pl.DataFrame(series), "polars", bad


def _are_columns(values: tuple[Any, ...]) -> bool:
    """A tuple of lists, arrays or series holds columns; a tuple of tuples or dicts holds rows."""
    return 2 <= len(values) <= len(POSITIONS) and all(
        isinstance(each, (list, np.ndarray)) or library_of(each) is not None for each in values
    )


def _by_position(rows: list[Any]) -> tuple[list[list[Any]], dict[int, str]]:
    if not rows:
        raise DataError("the log is empty: there is no row in it")
    width = len(rows[0])
    if not 2 <= width <= len(POSITIONS):
        raise DataError(f"a row has two to four values ({', '.join(POSITIONS)}); the first has {width}")
    bad = {}
    for number, row in enumerate(rows):
        if not isinstance(row, (tuple, list)):
            bad[number] = "is not a tuple"
        elif len(row) != width:
            bad[number] = f"has {len(row)} value{'s' * (len(row) != 1)} where the first row has {width}"
    good = rows if not bad else [row for number, row in enumerate(rows) if number not in bad]
    return [list(column) for column in zip(*good, strict=True)], bad


def _by_name(rows: list[Any]) -> tuple[pl.DataFrame, dict[int, str]]:
    bad = {number: "is not a dict" for number, row in enumerate(rows) if not isinstance(row, Mapping)}
    good = [row for row in rows if isinstance(row, Mapping)]
    names = list(dict.fromkeys(name for row in good for name in row))
    return pl.DataFrame([to_series([row.get(name) for row in good], str(name)) for name in names]), bad


def _names(frame: Any) -> list[str]:
    names = [str(name) for name in (frame.column_names if hasattr(frame, "column_names") else frame.columns)]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"the table has more than one column named {', '.join(repeated)}")
    return names
