"""The attributes of items, for filters and boosts: a table with a row for each item of a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from truelike.data.columns import COMMON
from truelike.data.files import as_path, check_file
from truelike.data.frames import POLARS_ERRORS
from truelike.data.ids import Ids
from truelike.errors import DataError, quoted, some

KNOWN = "\0 is in the table"  # no column of a file has this name
READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": lambda path: pl.read_csv(path, infer_schema_length=None, try_parse_dates=True),
    ".tsv": lambda path: pl.read_csv(path, separator="\t", infer_schema_length=None, try_parse_dates=True),
    ".jsonl": lambda path: pl.read_ndjson(path, infer_schema_length=None),
    ".ndjson": lambda path: pl.read_ndjson(path, infer_schema_length=None),
    ".parquet": pl.read_parquet,
}


def read_items_table(path: str | Path) -> pl.DataFrame:
    """Read a file of items: the column of ids, as text, is the first and is named item_id.

    The ids are in a column with a common name such as item_id or id; otherwise in the first one.
    """
    place = as_path(path)
    check_file(place)
    reader = READERS.get(place.suffix.lower())
    if reader is None:
        raise DataError(f"{quoted(place)} is no table of items: expected a file {', '.join(READERS)}")
    try:
        table = reader(place)
    except (*POLARS_ERRORS, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{quoted(place)} cannot be read: {some([error], longest=300)}") from error
    lower = {name.strip().lower(): name for name in reversed(table.columns)}
    named = next((lower[name] for name in (*COMMON["item"].split(), "id") if name in lower), table.columns[0])
    ids = table[named].cast(pl.String).alias("item_id")
    rest = [_plain(table[name], place) for name in table.columns if name != named]
    found = pl.DataFrame([ids, *(column for column in rest if column.name != "item_id")])
    repeated = found["item_id"].drop_nulls().is_duplicated()
    if repeated.any():
        twice = found["item_id"].drop_nulls().filter(repeated).unique(maintain_order=True)
        raise DataError(f"{quoted(place)} has some items twice: {some(twice.to_list())}. Keep one row for each.")
    return found.filter(pl.col("item_id").is_not_null())


def aligned(table: pl.DataFrame, items: Ids) -> tuple[pl.DataFrame, int]:
    """The attributes in the order of the items of a model, and how many items have none."""
    ids = pl.DataFrame({"item_id": items.values.cast(pl.String)})
    joined = ids.join(
        table.with_columns(pl.lit(True).alias(KNOWN)), on="item_id", how="left", maintain_order="left"
    )
    lacking = int(joined[KNOWN].is_null().sum())
    if lacking == len(items):
        raise DataError(
            f"none of the {table.height:,} items of the table is an item of the model: it has the ids "
            f"{some(table['item_id'].to_list(), 3) or '(none)'}, the model {some(ids['item_id'].to_list(), 3)}"
        )
    return joined.drop("item_id", KNOWN), lacking


def _number(dtype: Any) -> Any:
    """64-bit integers or floats, so that every number of a filter can be compared with it, and be written as JSON."""
    return pl.Int64 if dtype.is_integer() and dtype not in (pl.UInt64, pl.Int128) else pl.Float64


def _plain(column: pl.Series, place: Path) -> pl.Series:
    """A column of numbers, texts, times, true and false, or lists of texts."""
    dtype = column.dtype
    if dtype in (pl.Categorical, pl.Enum, pl.Null, pl.Time):
        return column.cast(pl.String)
    if dtype.is_numeric():
        return column.cast(_number(dtype))
    if isinstance(dtype, pl.Array):
        column, dtype = column.arr.to_list(), pl.List(dtype.inner)
    if isinstance(dtype, pl.List):
        inner: Any = dtype.inner
        if inner.is_numeric():
            return column.cast(pl.List(_number(inner)))
        if inner in (pl.Categorical, pl.Enum, pl.Null):
            return column.cast(pl.List(pl.String))
        if inner in (pl.String, pl.Boolean, pl.Date, pl.Datetime):
            return column
    if dtype.is_nested() or dtype in (pl.Object, pl.Binary, pl.Duration):
        raise DataError(
            f"the column {column.name!r} of {quoted(place)} is {dtype}; expected numbers, texts, times, true and "
            "false, or lists of texts"
        )
    return column
