"""The parts of a dataset as Parquet files of a directory, for splits, models and blocks."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import polars as pl

from truelike.core.files import OpenDirectory
from truelike.data.dataset import Carried, Dataset
from truelike.data.features import FeatureTable
from truelike.data.feedback import Feedback
from truelike.data.frames import Library
from truelike.data.ids import Ids, Kind, check_kind
from truelike.data.parquet_check import damage
from truelike.data.protocol import Interactions
from truelike.data.schema import Schema
from truelike.data.shown import Shown
from truelike.errors import ParameterError, some

ID_FILES = ("users.parquet", "items.parquet")
SHOWN, KINDS, FEATURES = "shown.parquet", "kinds.parquet", ("item_features", "user_features")
SCHEMA = "schema.json"


def write_ids(data: Interactions, place: Path) -> None:
    """Write users.parquet and items.parquet (with titles, if there are any). The users of blocks stay there."""
    users = data.users.values if isinstance(data, Dataset) else pl.Series([], dtype=data.users.dtype)
    pl.DataFrame({"user_id": users}).write_parquet(place / "users.parquet")
    items = pl.DataFrame({"item_id": data.items.values})
    if data.titles is not None:
        items = items.with_columns(data.titles.alias("title"))
    items.write_parquet(place / "items.parquet")


def read_ids(files: OpenDirectory, kinds: dict[str, Kind]) -> tuple[Ids, Ids, pl.Series | None]:
    """Read the users, the items and the titles that `write_ids` wrote."""
    users = read_parquet(files, "users.parquet")["user_id"]
    items = read_parquet(files, "items.parquet")["item_id"]
    check_kind(users, kinds["users"], "user")
    check_kind(items, kinds["items"], "item")
    return Ids(users, kinds["users"], "user"), Ids(items, kinds["items"], "item"), read_titles(files)


def read_titles(files: OpenDirectory) -> pl.Series | None:
    """Read the titles that `write_ids` wrote; None if there are none."""
    items = read_parquet(files, "items.parquet")
    return items["title"] if "title" in items.columns else None


def read_parquet(files: OpenDirectory, name: str) -> pl.DataFrame:
    """Read a Parquet file of an open directory; a panic of polars on a damaged one is an error like others."""
    content = files.read(name)
    if wrong := damage(io.BytesIO(content)):
        raise ValueError(f"{name} is damaged: {wrong}")
    try:
        return pl.read_parquet(content)
    except pl.exceptions.PanicException as error:
        raise ValueError(f"{name} is damaged: {some([error], longest=300)}") from error


def known_library(name: str) -> Library:
    """The frame library that a file names; an error if it is not a known one."""
    for library in get_args(Library):
        if library == name:
            return cast(Library, library)
    raise ValueError(f"the library is {name!r}; expected one of {', '.join(get_args(Library))}")


def write_entries(data: Dataset, place: Path, prefix: str = "") -> list[str]:
    """Write the impressions and the other feedback, and return the names of the files."""
    tables: dict[str, pl.DataFrame] = {}
    if data.shown is not None:
        tables[SHOWN] = pl.DataFrame(
            {"user": data.shown.users, "item": data.shown.items, "count": data.shown.csr.data, **data.shown.known}
        )
    if data.kinds:
        tables[KINDS] = pl.concat(
            kind.table().with_columns(pl.lit(name).alias("kind")) for name, kind in data.kinds.items()
        )
    for name, table in tables.items():
        table.write_parquet(place / f"{prefix}{name}")
    return [f"{prefix}{name}" for name in tables]


def write_features(data: Interactions, place: Path) -> list[str]:
    """Write the features of items and users and the schema of events, and return the names of the files."""
    names = []
    if data.schema is not None:
        (place / SCHEMA).write_text(json.dumps(data.schema.to_dict(), indent=1), encoding="utf-8")
        names.append(SCHEMA)
    for which in FEATURES:
        table: FeatureTable | None = getattr(data, which)
        if table is None:
            continue
        number = "row" + "_" * (1 + max(map(len, table.columns)))  # no feature has this name
        rows = np.flatnonzero(table.known).astype(np.int32)
        frame = pl.DataFrame([pl.Series(number, rows), *table.frame[rows].get_columns()])
        frame.write_parquet(place / f"{which}.parquet")
        names.append(f"{which}.parquet")
    return names


def read_entries(files: OpenDirectory, names: list[str], shape: tuple[int, int], prefix: str = "") -> Carried:
    """Read what `write_entries` wrote; ValueError if it is damaged."""
    found: Carried = {}
    if (name := f"{prefix}{SHOWN}") in names:
        rows = entry_rows(files, name, shape, {"count": pl.Int32()})
        known = {each: rows[each].to_numpy() for each in rows.columns[3:]}
        counts = rows["count"].to_numpy()
        if (counts < 1).any():
            raise ValueError(f"{name} has a count below 1")
        codes = (rows["user"].to_numpy(), rows["item"].to_numpy())
        found["shown"] = Shown.from_pairs(*codes, shape, counts, **known)
    if (name := f"{prefix}{KINDS}") in names:
        rows = entry_rows(files, name, shape, {"weight": pl.Float32(), "kind": pl.String()})
        if not rows["weight"].is_finite().all():
            raise ValueError(f"{name} has a weight that is not finite")
        found["kinds"] = {
            str(kind): Feedback.from_pairs(
                mine["user"].to_numpy(),
                mine["item"].to_numpy(),
                shape,
                mine["weight"].to_numpy(),
                None if mine["time"].null_count() else mine["time"].to_numpy(),
            )
            for (kind,), mine in rows.group_by("kind")
        }
    return found


def entry_rows(
    files: OpenDirectory, name: str, shape: tuple[int, int], types: dict[str, pl.DataType]
) -> pl.DataFrame:
    """The rows of a file, whose row numbers and types are checked, since SciPy does not."""
    rows = read_parquet(files, name)
    for column, n in (("user", shape[0]), ("item", shape[1])):
        codes = rows[column]
        if codes.dtype != pl.Int32 or codes.null_count() or not codes.is_between(0, n - 1).all():
            raise ValueError(f"{name} has numbers of {column}s outside its {n:,}")
    for column, kind in types.items():
        if rows[column].dtype != kind or rows[column].null_count():
            raise ValueError(f"{name} has values of {column} that are not {kind}")
    return rows


def read_schema(content: Any) -> Schema:
    """The schema of a file; ValueError if it is none."""
    try:
        return Schema.from_dict(content)
    except (ParameterError, TypeError, AttributeError) as error:
        raise ValueError(f"the schema of events is damaged: {error}") from error


def read_features(files: OpenDirectory, names: list[str], shape: tuple[int, int]) -> Carried:
    """Read what `write_features` wrote."""
    found: dict[str, FeatureTable | Schema] = {}
    if SCHEMA in names:
        found["schema"] = read_schema(json.loads(files.read(SCHEMA)))
    for which, n in zip(FEATURES, (shape[1], shape[0]), strict=True):
        if f"{which}.parquet" not in names:
            continue
        frame = read_parquet(files, f"{which}.parquet")
        rows = frame.to_series(0).to_numpy()
        if rows.dtype != np.int32 or (len(rows) and not 0 <= rows.min() <= rows.max() < n):
            raise ValueError(f"{which}.parquet has row numbers outside its {n:,}")
        places = np.full(n, -1, dtype=np.int32)
        places[rows] = np.arange(len(rows))
        table = FeatureTable(frame.drop(frame.columns[0]), np.ones(len(rows), dtype=bool))
        found[which] = table.recode(places)
    return cast(Carried, found)
