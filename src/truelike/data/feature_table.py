"""`FeatureTable`: what is known of users or items, as a table with a row for each of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.features import _frame, _ids, ids_of_kind
from truelike.data.ids import Codes, Ids

TITLES = ("title", "name")  # of a column of items


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features of the users or the items of a dataset: categories, lists, numbers, vectors and texts.

    The columns are kept as they were given. A model turns them into numbers in its own way (`Features`).

    Attributes
    ----------
    frame
        A polars frame with a row for each user or item, in their order; null where nothing is known.
    known
        Which of them have a row in the table that was read.

    Examples
    --------
    >>> import truelike as tl
    >>> products = pl.DataFrame({"item": ["gin", "tea"], "name": ["Dry gin", "Green tea"], "price": [12.0, 3.0]})
    >>> data = tl.read([("ann", "tea"), ("bob", "rum")], items=products)
    >>> list(data.items), data.item_features.frame["price"].to_list(), data.titles.to_list()
    (['gin', 'rum', 'tea'], [12.0, None, 3.0], ['Dry gin', 'rum', 'Green tea'])
    """

    frame: pl.DataFrame
    known: NDArray[np.bool_]

    @property
    def columns(self) -> list[str]:
        """The names of the features."""
        return self.frame.columns

    def recode(self, codes: Codes) -> FeatureTable:
        """The rows at some row numbers; -1 is one of which nothing is known."""
        there = codes >= 0
        numbers = pl.Series(codes, dtype=pl.Int64).set(pl.Series(~there), None)
        known = np.zeros(len(codes), dtype=bool)
        known[there] = self.known[codes[there]]
        return FeatureTable(self.frame.select(pl.all().gather(numbers)), known)

    def merge(self, other: FeatureTable) -> FeatureTable:
        """The rows of both, of the same ids; the row of `other` counts where both have one."""
        chosen = pl.Series("known", other.known)
        columns = []
        for name in dict.fromkeys([*self.columns, *other.columns]):
            old = self.frame[name] if name in self.columns else pl.Series(name, [None] * len(chosen))
            new = other.frame[name] if name in other.columns else pl.Series(name, [None] * len(chosen))
            both = pl.DataFrame({"old": old, "new": new, "known": chosen})
            columns.append(both.select(pl.when("known").then("new").otherwise("old").alias(name)).to_series())
        return FeatureTable(pl.DataFrame(columns), self.known | other.known)

    def table(self, ids: Ids) -> pl.DataFrame:
        """The ids of the dataset that have a row, and their features."""
        named = pl.DataFrame([ids.values.alias(f"{ids.what}_id"), *self.frame.get_columns()])
        return named.filter(pl.Series(self.known))


@dataclass(frozen=True, eq=False)
class ReadFeatures:
    """A table as it was read: ids, features of these, and titles if there is a column of them."""

    ids: Ids
    table: FeatureTable | None
    titles: pl.Series | None


def read_features(source: Any, like: Ids) -> ReadFeatures:
    """Read a frame, or a CSV or Parquet file, with a row for each user or item and a column of ids of the kind `like`.

    A column `title` or `name` of items has their titles, and is no feature.
    """
    frame = _frame(source, like.what)
    found, places = _ids(frame, like.what)
    ids, order = ids_of_kind(found, like)
    rows = frame.drop(frame.columns[0])[np.argsort(places)[order]]
    lower = {name.strip().lower(): name for name in reversed(rows.columns)}
    titled = next((lower[name] for name in TITLES if name in lower), None)
    titles = None
    if like.what == "item" and titled is not None:
        titles = rows[titled].cast(pl.String)
        rows = rows.drop(titled)
    table = FeatureTable(rows, np.ones(len(ids), dtype=bool)) if rows.width else None
    return ReadFeatures(ids, table, titles)
