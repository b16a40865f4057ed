"""The ids of users and items as files, for splits and models."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, get_args

import polars as pl

from truelike.core.files import OpenDirectory
from truelike.data.dataset import Dataset
from truelike.data.frames import Library
from truelike.data.ids import Ids, Kind, check_kind
from truelike.data.parquet_check import damage
from truelike.errors import some

ID_FILES = ("users.parquet", "items.parquet")


def write_ids(data: Any, place: Path) -> None:
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
    items = read_parquet(files, "items.parquet")
    titles = items["title"] if "title" in items.columns else None
    check_kind(users, kinds["users"], "user")
    check_kind(items["item_id"], kinds["items"], "item")
    return Ids(users, kinds["users"], "user"), Ids(items["item_id"], kinds["items"], "item"), titles


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


def known_library(name: Any) -> Library:
    """The frame library that a file names; an error if it is not a known one."""
    if name not in get_args(Library):
        raise ValueError(f"the library is {name!r}; expected one of {', '.join(get_args(Library))}")
    library: Library = name
    return library
