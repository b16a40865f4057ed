"""The attributes of items, for filters and boosts: a table with a row for each item of a model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from truelike.data.columns import COMMON
from truelike.data.files import as_path, check_file
from truelike.data.frames import POLARS_ERRORS
from truelike.data.ids import Ids
from truelike.errors import DataError, quoted, some

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

_lines = partial(pl.read_ndjson, infer_schema_length=None)
_table = partial(pl.read_csv, infer_schema_length=None, try_parse_dates=True)
READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": _table,
    ".tsv": partial(_table, separator="\t"),
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".parquet": pl.read_parquet,
}
TEXTS = (pl.Categorical, pl.Enum, pl.Null)  # types of columns that become texts


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
    lacking = int((~ids["item_id"].is_in(table["item_id"].implode())).sum())
    if lacking == len(items):
        raise DataError(
            f"none of the {table.height:,} items of the table is an item of the model: it has the ids "
            f"{some(table['item_id'].to_list(), 3) or '(none)'}, the model {some(ids['item_id'].to_list(), 3)}"
        )
    return ids.join(table, on="item_id", how="left", maintain_order="left").drop("item_id"), lacking


def _plain(column: pl.Series, place: Path) -> pl.Series:
    """A column of numbers, texts, times, true and false, or lists of them, which filters compare and JSON can hold."""
    dtype = column.dtype
    if isinstance(dtype, pl.Array):
        dtype = pl.List(dtype.inner)
    inner = dtype.inner if isinstance(dtype, pl.List) else dtype
    plain: PolarsDataType = inner
    if inner.is_numeric():
        plain = pl.Int64 if inner.is_integer() and inner not in (pl.UInt64, pl.Int128) else pl.Float64
    elif inner in TEXTS or dtype == pl.Time:
        plain = pl.String
    elif inner.is_nested() or inner in (pl.Object, pl.Binary, pl.Duration, pl.Time):
        raise DataError(
            f"the column {column.name!r} of {quoted(place)} is {dtype}; expected numbers, texts, times, true and "
            "false, or lists of texts"
        )
    return column.cast(pl.List(plain) if inner is not dtype else plain)
