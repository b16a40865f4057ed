"""Events as training data: the way back from the service to the next model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.core.progress import note
from truelike.data import entries
from truelike.data.dataset import Dataset
from truelike.data.feedback import Feedback
from truelike.data.ids import Ids
from truelike.data.moments import UNITS, units_per_second
from truelike.data.replay import INTERACTIONS, REMOVE, Event, Known
from truelike.data.schema import Schema, undeclared
from truelike.data.shown import Shown
from truelike.errors import DataWarning, some, warn


def with_events(data: Dataset, events: pl.DataFrame) -> Dataset:
    """A dataset in which events happened after what it has, with their users and items.

    The events follow the schema of the dataset; without one, every sign of a like is an interaction. Times are added in
    the unit of the dataset's own, which is recognised by its size: seconds, milliseconds, microseconds or nanoseconds
    since 1970; in seconds if it is none of these.

    >>> import truelike as tl
    >>> from truelike.serving import events
    >>> rows = [events.Event("ann", "tea", "click", 10**15), events.Event("bob", "rum", "refund", 10**15)]
    >>> log = tl.read([("bob", "rum"), ("bob", "tea")])
    >>> with_events(log, pl.DataFrame(rows, schema=events.SCHEMA, orient="row")).to_frame().rows()
    [('ann', 'tea', 1.0), ('bob', 'tea', 1.0)]
    """
    schema = undeclared() if data.schema is None else data.schema
    schema.check_known(dict(events.filter(pl.col("type") != REMOVE)["type"].value_counts().sort("type").rows()))
    rows = _usable(events, data)
    if not rows.height:
        return data
    times = None
    if data.times is not None:
        unit = UNITS[units_per_second(data.times) or 1]
        times = rows["time"].dt.epoch(unit)
    rows = rows.with_columns(pl.lit(None, pl.Int64).alias("time") if times is None else times.alias("time"))
    users = _union(data.users, rows["user_id"])
    items = _union(data.items, rows["item_id"])
    whole = data.recode(users, items)[0].with_parts(schema=schema)
    coded = rows.select(
        pl.Series("user", users.codes(rows["user_id"])), pl.Series("item", items.codes(rows["item_id"])),
        "type", "time", "quantity",
    )  # fmt: skip
    changed = _with_shown(_followed(whole, coded, schema), coded, schema)
    kept = _known(changed, data)
    return changed if all(each.all() for each in kept) else changed.restrict(*kept)


def _union(ids: Ids, texts: pl.Series) -> Ids:
    """The ids of a dataset and of events, in the type of the dataset's."""
    return ids.union(Ids(texts.cast(ids.values.dtype).unique().sort(), ids.kind, ids.what))


def _known(changed: Dataset, before: Dataset) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The users and items that the dataset had, or of which something is known now."""
    matrices = [changed.csr, *(kind.csr for kind in changed.kinds.values())]
    users, items = (
        each.codes(old.values) for each, old in ((changed.users, before.users), (changed.items, before.items))
    )
    kept = np.zeros(changed.n_users, dtype=bool), np.zeros(changed.n_items, dtype=bool)
    kept[0][users], kept[1][items] = True, True
    for matrix in matrices:
        kept[0][np.diff(matrix.indptr) > 0] = True
        kept[1][matrix.indices] = True
    return kept


def _followed(data: Dataset, events: pl.DataFrame, schema: Schema) -> Dataset:
    """A dataset after the events of some users."""
    parts = {INTERACTIONS: Feedback(data.csr, data.times), **data.kinds}
    found: dict[str, list[_Entry]] = {}
    unmatched, touched = 0, np.zeros(data.n_users, dtype=bool)
    for (user,), mine in events.group_by("user", maintain_order=True):
        known: Known[int] = Known(schema)
        row = int(user)
        touched[row] = True
        for name, part in parts.items():
            for item, weight, time in _entries_of(part, row):
                known.add(name, item, weight, time)
        known.follow(Event(*each) for each in mine.select("item", "type", "time", "quantity").iter_rows())
        unmatched += known.unmatched
        for name in known.names:
            entries_of_user = (_Entry(row, item, *value) for item, value in known.pairs(name).items())
            found.setdefault(name, []).extend(entries_of_user)
    if unmatched:
        warn(f"{unmatched:,} events have nothing to take back; they change nothing", DataWarning)
    changed = {
        name: _replaced(parts.get(name), touched, found.get(name, []), data)
        for name in dict.fromkeys([*parts, *found])
    }
    interactions = changed.pop(INTERACTIONS)
    return data.with_parts(csr=interactions.csr, times=interactions.times, kinds=changed)


class _Entry(NamedTuple):
    user: int
    item: int
    weight: float
    time: int | None


def _entries_of(part: Feedback, user: int) -> Iterator[tuple[int, float, int | None]]:
    mine = slice(*part.csr.indptr[user : user + 2])
    items, weights = part.csr.indices[mine].tolist(), part.csr.data[mine].tolist()
    times = [None] * len(items) if part.times is None else part.times[mine].tolist()
    return zip(items, weights, times, strict=True)


def _replaced(part: Feedback | None, touched: NDArray[np.bool_], found: list[_Entry], data: Dataset) -> Feedback:
    """The entries of a kind, where those of some users are others."""
    shape = (data.n_users, data.n_items)
    users, items = (np.array([each[n] for each in found], dtype=np.int32) for n in (0, 1))
    weights = np.array([each.weight for each in found])
    times = None if data.times is None else np.array([each.time or 0 for each in found], dtype=np.int64)
    new = Feedback.from_pairs(users, items, shape, weights, times)
    if part is None:
        return new
    return part.select(~touched[entries.users_of(part.csr)]).merge(new)


def _with_shown(data: Dataset, events: pl.DataFrame, schema: Schema) -> Dataset:
    """A dataset with the events that were impressions, where impressions are a part of it."""
    rows = events.filter(pl.col("type").is_in(schema.names("shown")))
    if not rows.height or (data.shown is None and data.schema is undeclared()):
        return data
    if data.shown is not None and not data.shown.known.keys() <= {"times"}:
        note(f"{rows.height:,} impressions of the events are left out, because their positions are not known")
        return data
    times: dict[str, Any] = {} if data.times is None else {"times": rows["time"].to_numpy()}
    new = Shown.from_pairs(rows["user"].to_numpy(), rows["item"].to_numpy(), (data.n_users, data.n_items), **times)
    return data.with_parts(shown=new if data.shown is None else data.shown.merge(new))


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
