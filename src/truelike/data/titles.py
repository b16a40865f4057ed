"""Titles of items: names that people can read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from truelike.data.columns import id_column, recognised
from truelike.data.files import Picked, as_path, read_picked, refuse_address
from truelike.data.frames import POLARS_ERRORS, is_frame, missing, names_of, to_polars, to_series
from truelike.data.ids import Ids
from truelike.errors import DataError, some


def titles_of(items: Ids, titles: Any, *, encoding: str = "utf-8") -> pl.Series:
    """A title for each item; its id where none is given. The titles are as in `Dataset.with_titles`.

    >>> items = Ids(pl.Series([7, 9]), "int", "item")
    >>> titles_of(items, {7: "Green tea"}).to_list()
    ['Green tea', '9']
    """
    ids, texts = _columns(titles, encoding)
    if len(ids) != len(texts):
        raise DataError(
            f"{len(ids):,} items and {len(texts):,} titles were given; there must be one title per item"
        )
    codes = items.codes(ids)
    if len(codes) and not (codes >= 0).any():
        raise DataError(
            f"none of the {len(codes):,} titles is of an item of this dataset: they are of items such as "
            f"{some(map(repr, ids.to_list()), 3)}, the dataset has items such as {some(map(repr, items[:3]))}. "
            "Check which column has the item ids."
        )
    given = ~missing(texts).to_numpy() & (codes >= 0)
    found = items.values.cast(pl.String).to_list()
    for code, text in zip(codes[given].tolist(), texts.filter(pl.Series(given)).to_list(), strict=True):
        found[code] = text
    return pl.Series("title", found, dtype=pl.String)


def _columns(titles: Any, encoding: str) -> tuple[pl.Series, pl.Series]:
    """The items and their titles, whatever form they come in."""
    refuse_address(titles)
    if isinstance(titles, (str, os.PathLike)):
        table = read_picked(as_path(titles), _choose, "titles", encoding=encoding)
        item, title = table.columns.names
        return table.frame[item], _texts(table.frame[title])
    if isinstance(titles, Mapping):
        return pl.Series([_key(key) for key in titles], dtype=pl.String), _texts(list(titles.values()))
    if is_frame(titles):
        item, title = _choose(names_of(titles)).names
        frame = to_polars(titles, [item, title])
        return frame[item], _texts(frame[title])
    if isinstance(titles, tuple) and len(titles) == 2 and not any(isinstance(each, str) for each in titles):
        return to_series(titles[0]), _texts(titles[1])
    raise DataError(
        f"titles are {type(titles).__name__}; expected a mapping {{item: title}}, a pair of columns (items, "
        "titles), a frame, or the path of a file with a column of item ids and one of titles"
    )


def _choose(names: Sequence[str]) -> Picked:
    """The column of ids and the column of titles, by their common names, or because there are only two."""
    item, title = id_column(names, "item"), recognised(names, "title")
    if len(names) == 2:
        if item is None:
            item = names[1] if title == names[0] else names[0]
        if title is None or title == item:
            title = names[1] if item == names[0] else names[0]
    if item is None or title is None or item == title:
        lacking = "title" if item is not None else "item id"
        raise DataError(
            f"no column of the titles looks like the {lacking}: the table has {some(map(repr, names), 20)}. Name "
            "the columns 'item_id' and 'title', or pass a table that has only these two."
        )
    return Picked([item, title])


def _key(key: object) -> str:
    """A key of a mapping as the text of an id, so that keys may be of several types."""
    return str(int(key)) if isinstance(key, float) and key.is_integer() else str(key)


def _texts(values: Any) -> pl.Series:
    series = to_series(values)
    try:
        return series.cast(pl.String)
    except POLARS_ERRORS as error:
        raise DataError(f"the titles are of the type {series.dtype}; expected text") from error
