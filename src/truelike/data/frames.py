"""Conversion of frames of any library to polars, which is used inside truelike, and back."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, TypeVar, cast

import narwhals as nw
import numpy as np
import polars as pl

from truelike.errors import DataError, quoted, some

Library = Literal["polars", "pandas", "pyarrow"]
T = TypeVar("T", pl.DataFrame, pl.Series)
# a panic of polars is a BaseException; on data from outside it is an error like any other
POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
CONVERSION_FAILS = (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError)


def repeated(names: Iterable[str]) -> list[str]:
    """The names that occur more than once, sorted.

    >>> repeated(["b", "a", "b"])
    ['b']
    """
    return sorted(name for name, times in Counter(names).items() if times > 1)


PLAIN = {int, str, type(None)}  # types of values that polars takes as they are


def library_of(table: object) -> Library | None:
    """The library of a frame or a series; None if it is neither.

    >>> library_of(pl.DataFrame({"a": [1]})), library_of([1, 2])
    ('polars', None)
    """
    if not (nw.dependencies.is_into_dataframe(table) or nw.dependencies.is_into_series(table)):
        return None
    try:
        name = nw.from_native(table, allow_series=True).implementation.value
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"two columns of the table have the same name: {error}. Rename one.") from error
    if name not in ("polars", "pandas", "pyarrow"):
        raise DataError(
            f"a table of the library {name!r} was given; expected pandas, polars or pyarrow. Convert it to one of "
            "them first."
        )
    return cast(Library, name)


def is_frame(table: object) -> bool:
    """Whether a value is a frame of a known library."""
    return library_of(table) is not None and hasattr(table, "columns")


def names_of(frame: Any) -> list[str]:
    """The names of the columns of any frame; an error if one is repeated."""
    names = [str(name) for name in (frame.column_names if hasattr(frame, "column_names") else frame.columns)]
    if twice := repeated(names):
        raise DataError(f"the table has more than one column named {some(twice)}. Rename all but one of them.")
    return names


def to_polars(frame: Any, columns: Iterable[str]) -> pl.DataFrame:
    """The named columns of any frame, as polars."""
    native = nw.from_native(frame, eager_only=True)
    own = {str(name): name for name in native.columns}  # pandas may name its columns 0, 1, ...
    return pl.DataFrame({name: to_series(native.get_column(own[name]).to_native(), name) for name in columns})


def text_for_uuids(table: T) -> T:
    """A polars frame or series with UUIDs as text, which files and terminals can hold."""
    if isinstance(table, pl.Series):
        return pl.Series(table.name, [str(v) for v in table]) if table.dtype == pl.Object else table
    objects = [name for name, dtype in table.schema.items() if dtype == pl.Object]
    return table.with_columns([text_for_uuids(table[name]) for name in objects])


def to_series(values: Any, name: str = "") -> pl.Series:
    """Values of any kind (ids, ratings, times) as a polars series.

    >>> to_series(np.array([3, 1])).to_list(), to_series(["b", None]).to_list()
    ([3, 1], ['b', None])
    """
    if isinstance(values, pl.Series):
        return values.alias(name)
    if isinstance(values, np.ma.MaskedArray):
        return _unmasked(values, name)
    try:
        return _to_series(values, name)
    except UnicodeEncodeError as error:
        raise DataError(
            f"{quoted(error.object)} contains half of a character (a lone surrogate), so it is not text. Read its "
            "source in the right encoding, or leave it out."
        ) from error
    except (*POLARS_ERRORS, *CONVERSION_FAILS) as error:
        column = f"the column {quoted(name)}" if name else f"a {type(values).__name__}"
        raise DataError(
            f"{column} cannot be read as a column of values: {some([error], longest=300)}. Pass text, numbers, times, "
            "or UUIDs."
        ) from error


def _to_series(values: Any, name: str) -> pl.Series:
    if isinstance(values, Sequence):
        values = list(values)
    if library_of(values) == "pyarrow":
        return cast(pl.Series, pl.from_arrow(values)).alias(name)
    array = values
    if library_of(values) == "pandas":
        kind = values.dtype.kind
        if kind == "M" and values.dt.tz is not None:  # as polars and pyarrow do: the same instant, in UTC
            values = values.dt.tz_convert("UTC").dt.tz_localize(None)
        if kind == "M":
            values = values.to_numpy()
        array = values if kind == "M" or (kind in "biuf" and not values.hasnans) else values.to_numpy(object)
    array = np.atleast_1d(np.asarray(array)) if not isinstance(array, list) else array
    if isinstance(array, np.ndarray) and array.dtype.kind == "M":
        array = array.astype("datetime64[us]")
    if isinstance(array, np.ndarray) and array.dtype.kind in "biufM":
        return pl.Series(name, array)
    plain = isinstance(array, list) and set(map(type, array)) <= PLAIN
    return pl.Series(name, array if plain else [_plain(value) for value in array], strict=False)


def _unmasked(values: Any, name: str) -> pl.Series:
    """A masked array as a series, in which masked values are missing."""
    mask = np.atleast_1d(np.ma.getmaskarray(values))
    array = np.atleast_1d(values.data)
    if array.ndim > 1 or mask.dtype != bool:
        raise DataError(
            f"a masked array with the shape {values.shape} and the type {values.dtype} was given; expected one "
            "dimension and one value in each place. Pass each column by itself."
        )
    if array.dtype.kind not in "biufM":
        return to_series([None if hidden else value for value, hidden in zip(array, mask, strict=True)], name)
    series = to_series(array, name)
    return series.set(pl.Series(mask), None)


def _plain(value: Any) -> Any:
    """A scalar that polars accepts: NumPy scalars unwrapped, every kind of "missing" as None."""
    if value is np.ma.masked:
        return None
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if value is None or type(value).__name__ in ("NAType", "NaTType") or _is_nan(value):
        return None
    if isinstance(value, datetime):  # also a Timestamp of pandas: the same instant, in UTC
        value = value.to_pydatetime() if hasattr(value, "to_pydatetime") else value
        return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return value


def _is_nan(value: object) -> bool:
    """Whether a value differs from itself; not so for one that cannot tell, such as an array."""
    return isinstance(value, (float, complex, Decimal)) and value != value


def missing(series: pl.Series) -> pl.Series:
    """Whether each value is missing: null, empty text or NaN.

    >>> missing(pl.Series(["a", "", None])).to_list()
    [False, True, True]
    """
    empty = series.is_null()
    if series.dtype == pl.String:
        return empty | (series == "").fill_null(False)
    if series.dtype.is_float():
        return empty | series.is_nan().fill_null(False)
    return empty


def is_uuid(series: pl.Series) -> bool:
    """Whether a series contains `uuid.UUID` objects, for which polars has no type."""
    if series.dtype != pl.Object:
        return False
    return all(value is None or isinstance(value, uuid.UUID) for value in series)


def to_native(frame: pl.DataFrame, library: Library) -> Any:
    """A polars frame as one of the given library; unchanged if the library is not installed.

    >>> to_native(pl.DataFrame({"a": [1]}), "pandas")
       a
    0  1
    """
    if library == "polars":
        return frame
    columns = {
        column.name: column.to_numpy()
        if column.dtype.is_numeric() or column.dtype == pl.Datetime
        else column.to_list()
        for column in frame
    }
    try:
        if library == "pandas":
            import pandas as pd

            return pd.DataFrame(columns)
        import pyarrow as pa

        return pa.table({name: pa.array(_texts(values)) for name, values in columns.items()})
    except ImportError:
        return frame


def _texts(values: Any) -> Any:
    """UUID objects as text, because pyarrow has no type for them."""
    if isinstance(values, list) and values and isinstance(values[0], uuid.UUID):
        return [str(value) for value in values]
    return values
