"""Events as training data: the way back from the service to the next model."""

from __future__ import annotations

import numpy as np
import polars as pl

from truelike.data.dataset import Dataset
from truelike.data.ids import Ids
from truelike.data.moments import UNITS, units_per_second
from truelike.errors import DataWarning, some, warn
from truelike.serving.events import ONLY_KEPT, REMOVE


def interactions(events: pl.DataFrame) -> pl.DataFrame:
    """The events that count as interactions: user_id, item_id and time of all that were not taken back later."""
    numbered = events.with_row_index("row")
    removed = (
        numbered.filter(pl.col("type") == REMOVE)
        .group_by("user_id", "item_id")
        .agg(pl.col("row").max().alias("removed"))
    )
    return (
        numbered.join(removed, on=["user_id", "item_id"], how="left", maintain_order="left")
        .filter(~pl.col("type").is_in([REMOVE, *ONLY_KEPT]) & (pl.col("row") > pl.col("removed").fill_null(-1)))
        .select("user_id", "item_id", "time")
    )


def with_events(data: Dataset, events: pl.DataFrame) -> Dataset:
    """A dataset with the interactions of events added, and their users and items.

    Times are added in the unit of the dataset's own, which is recognised by its size: seconds, milliseconds,
    microseconds or nanoseconds since 1970; in seconds if it is none of these.

    >>> import truelike as tl
    >>> from truelike.serving.events import SCHEMA, Event
    >>> events = pl.DataFrame([Event("ann", "tea", "click", 10**15)], schema=SCHEMA, orient="row")
    >>> with_events(tl.read([("bob", "rum")]), events)
    Dataset(2 interactions, 2 users, 2 items, sparsity 50.0000%)
    """
    rows = _usable(interactions(events), data)
    if not rows.height:
        return data
    users, items = (_like(rows[f"{ids.what}_id"], ids) for ids in (data.users, data.items))
    times = None
    if data.times is not None:
        unit = UNITS[units_per_second(data.times) or 1]
        times = rows["time"].dt.epoch(unit).to_numpy().astype(np.int64)
    more = Dataset.from_pairs(
        users, items, users.codes(rows["user_id"]), items.codes(rows["item_id"]),
        times=times, library=data.library, name=data.name,
    )  # fmt: skip
    all_users, all_items = data.users.union(users), data.items.union(items)
    merged = data.recode(all_users, all_items)[0].merge(more.recode(all_users, all_items)[0])
    if data.titles is not None:
        merged = merged.with_titles(dict(zip(data.items.values, data.titles, strict=True)))
    return merged


def _usable(rows: pl.DataFrame, data: Dataset) -> pl.DataFrame:
    """The events whose ids are of the type of the dataset's; a warning counts the others."""
    fits = pl.Series([True] * rows.height, dtype=pl.Boolean)
    for ids in (data.users, data.items):
        texts = rows[f"{ids.what}_id"]
        fits &= (texts.cast(ids.values.dtype, strict=False).cast(pl.String) == texts).fill_null(False)
    if not fits.all():
        wrong = rows.filter(~fits).select("user_id", "item_id").unique(maintain_order=True).rows()
        warn(
            f"{(~fits).sum():,} of {rows.height:,} events are skipped, because the ids of the log are whole numbers "
            f"and theirs are not: {some(wrong, 3)}",
            DataWarning,
        )
    return rows.filter(fits)


def _like(texts: pl.Series, ids: Ids) -> Ids:
    """The ids of events, in the type of a dataset's."""
    return Ids(texts.cast(ids.values.dtype).unique().sort(), ids.kind, ids.what)
