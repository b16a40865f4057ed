"""The attributes of items, for filters and boosts: a table with a row for each item of a model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from truelike.data.blocks.blocks import Blocks
from truelike.data.columns import id_column
from truelike.data.dataset import Dataset
from truelike.data.files import GUESSED_SEPARATORS, as_path, check_file, refuse_address
from truelike.data.frames import POLARS_ERRORS, is_frame, names_of, to_polars
from truelike.data.ids import Ids, normalise
from truelike.errors import DataError, quoted, some

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

_lines = partial(pl.read_ndjson, infer_schema_length=None)
_table = partial(pl.read_csv, infer_schema_length=None, try_parse_dates=True)


def _guessed(place: Path) -> pl.DataFrame:
    with place.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    return _table(place, separator=max(GUESSED_SEPARATORS, key=first.count))


READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": _guessed,
    ".tsv": partial(_table, separator="\t"),
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".parquet": pl.read_parquet,
}
TEXTS = (pl.Categorical, pl.Enum, pl.Null)  # types of columns that become texts


def read_items_table(source: Any) -> pl.DataFrame:
    """Read a frame or a file of items: the column of ids, as text, is the first and is named item_id.

    The ids are in a column with a common name such as item_id or id; otherwise in the first one.
    """
    refuse_address(source)
    if is_frame(source):
        table, name = to_polars(source, names_of(source)), "the table"
    else:
        place = as_path(source)
        table, name = _read(place), quoted(place)
    if not table.width:
        raise DataError(f"{name} of items has no columns; expected a column of ids, and others")
    named = id_column(table.columns, "item") or table.columns[0]
    ids = normalise(table[named], "item")[0].cast(pl.String).alias("item_id")
    rest = [_plain(table[column], name) for column in table.columns if column != named]
    found = pl.DataFrame([ids, *(column for column in rest if column.name != "item_id")])
    repeated = found["item_id"].drop_nulls().is_duplicated()
    if repeated.any():
        twice = found["item_id"].drop_nulls().filter(repeated).unique(maintain_order=True)
        raise DataError(f"{name} has some items twice: {some(twice.to_list())}. Keep one row for each.")
    return found.filter(pl.col("item_id").is_not_null())


def _read(place: Path) -> pl.DataFrame:
    check_file(place)
    reader = READERS.get(place.suffix.lower())
    if reader is None:
        raise DataError(f"{quoted(place)} is no table of items: expected a file {', '.join(READERS)}")
    try:
        return reader(place)
    except (*POLARS_ERRORS, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{quoted(place)} cannot be read: {some([error], longest=300)}") from error


def carried_table(train: Dataset | Blocks) -> pl.DataFrame:
    """The features and the titles that training data carries, with a row for each item; vectors are left out."""
    columns = [] if train.item_features is None else train.item_features.frame.get_columns()
    found = [_plain(column, "the dataset") for column in columns if not isinstance(column.dtype, pl.Array)]
    if train.titles is not None:
        found = [*(column for column in found if column.name != "title"), train.titles.alias("title")]
    return pl.DataFrame(found)


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


def _plain(column: pl.Series, where: str) -> pl.Series:
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
            f"the column {column.name!r} of {where} is {dtype}; expected numbers, texts, times, true and "
            "false, or lists of texts"
        )
    return column.cast(pl.List(plain) if inner is not dtype else plain)
