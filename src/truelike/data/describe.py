"""`describe`: counts of a dataset, the tail of its items, what looks wrong, and the line of the paper's Table 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from scipy import sparse

from truelike.data.checks import check_dataset
from truelike.data.columns import chooser
from truelike.data.dataset import Dataset
from truelike.data.interactions import EncodedRows, read_rows
from truelike.data.moments import as_dates, time_range
from truelike.data.protocol import has_interactions
from truelike.data.read import read
from truelike.data.suspects import Activity, of_an_hour, of_items
from truelike.errors import muted

EXAMPLES = 3
OF_ROWS = ("on_bad_rows", "format", "separator", "encoding", "dates", "min_rating")  # arguments of `tl.read`
OF_COLUMNS = ("header", "min_rating", "user", "item", "rating", "time", "weight", "kind")


def table_1(data: Dataset) -> dict[str, str]:
    """The line of the paper's Table 1: interactions, users, items, sparsity to four decimals.

    >>> import truelike as tl
    >>> table_1(tl.read([("ann", "tea"), ("bob", "tea"), ("bob", "milk")], name="shop"))
    {'Dataset': 'shop', 'Interactions': '3', 'Users': '2', 'Items': '2', 'Sparsity': '25.0000%'}
    """
    return {
        "Dataset": data.name,
        "Interactions": f"{data.n_interactions:,}",
        "Users": f"{data.n_users:,}",
        "Items": f"{data.n_items:,}",
        "Sparsity": f"{data.sparsity:.4%}",
    }


def describe(data: Any, **how: Any) -> pl.DataFrame:
    """Properties of a dataset, or of rows that `tl.read` takes, as a frame of (property, value).

    Rows tell more: how many are duplicated, that is, have the user, the item and the time of another one (and its kind
    and weight, if there are any). In a dataset they are merged. Duplicated rows mostly come of a log that was exported
    or sent twice. Nothing is removed: read ``frame.unique()`` of a polars frame, or ``frame.drop_duplicates()`` of a
    pandas one.

    Users who are far more active than all others may be no people: see `tl.suspicious_users`, which has all of them.

    Parameters
    ----------
    data
        A Dataset, or anything that `tl.read` takes.
    **how
        Arguments of `tl.read`, for rows.

    Examples
    --------
    >>> import truelike as tl
    >>> rows = [("ann", "tea", 1, 5), ("bob", "tea", 1, 6), ("bob", "milk", 1, 7), ("bob", "milk", 1, 7)]
    >>> dict(tl.describe(rows).rows())["duplicated rows"]
    '1 (25.0%): bob, milk, 7 (2 rows)'
    >>> dict(tl.describe(tl.read(rows)).rows())["repeated rows"]
    '1'
    """
    found = {}
    if not has_interactions(data):
        source, data = data, read(data, **how)
        found = {"duplicated rows": duplicated_rows(source, how)}
    check_dataset(data, "describe")
    per_user, per_item = data.interactions_per_user(), data.popularity()
    facts = {
        **found,
        "repeated rows": f"{data.n_rows - data.n_interactions:,.0f}",
        "items per user (least, median, mean, most)": _spread(per_user),
        "users per item (least, median, mean, most)": _spread(per_item),
        "users with one item": _share(per_user == 1),
        "items with one user": _share(per_item == 1),
        "items that make up half of the interactions": _half(per_item),
        "share of interactions of the top 1% of items": f"{_top_share(per_item, 0.01):.1%}",
        "share of interactions of the top 20% of items": f"{_top_share(per_item, 0.2):.1%}",
        "Gini index of item popularity": f"{_gini(per_item):.3f}",
        "times": "none" if data.times is None else time_range(data.times),
        "users with far more items than others": _beyond(data, of_items(data)),
        "users with far more items in an hour": _beyond(data, of_an_hour(data)),
    }
    return pl.DataFrame({"property": list(facts), "value": list(facts.values())})


def duplicated_rows(source: Any, how: Mapping[str, Any]) -> str:
    """How many rows are duplicated, and examples, of what `tl.read` takes and was read already."""
    if sparse.issparse(source):
        return "not known of a matrix"
    with muted():  # `read` warned of the same rows
        rows = read_rows(
            source,
            chooser(**{name: how[name] for name in OF_COLUMNS if name in how}),
            **{name: how[name] for name in OF_ROWS if name in how},
        )
    if rows.times is None:
        return "not known without times"
    columns = {"user": rows.user_codes, "item": rows.item_codes, "time": rows.times, "weight": rows.weights}
    table = pl.DataFrame({name: values for name, values in columns.items() if values is not None})
    if rows.kinds is not None:
        table = table.with_columns(rows.kinds.alias("kind"))
    counts = table.group_by(table.columns).len("n").filter(pl.col("n") > 1)
    counts = counts.sort("n", *table.columns, descending=True)
    n = int((counts["n"] - 1).sum())
    return f"{n:,} ({n / max(len(table), 1):.1%})" + _examples(rows, counts.head(EXAMPLES)) * bool(n)


def _examples(rows: EncodedRows, first: pl.DataFrame) -> str:
    users, items = (ids.stored(first[ids.what].to_numpy()).cast(pl.String) for ids in (rows.users, rows.items))
    times = as_dates(first["time"].to_numpy()).cast(pl.String).str.strip_suffix(".000000")
    found = zip(users, items, times, first["n"], strict=True)
    return ": " + "; ".join(f"{user}, {item}, {time} ({n:,} rows)" for user, item, time, n in found)


def _beyond(data: Dataset, activity: Activity | None) -> str:
    """How many users are more active than a limit, and examples."""
    if activity is None:
        return "not known without times since 1970"
    found = np.flatnonzero(activity.beyond).astype(np.int32)
    most = found[np.argsort(-activity.counts[found], kind="stable")][:EXAMPLES]
    each = [f"{user} ({activity.counts[row]:,})" for user, row in zip(data.users.take(most), most, strict=True)]
    return f"{len(found):,} above {activity.limit:,}" + f": {', '.join(each)}" * bool(each)


def _spread(counts: np.ndarray) -> str:
    return f"{counts.min():,}, {np.median(counts):,.0f}, {counts.mean():,.1f}, {counts.max():,}"


def _share(mask: np.ndarray) -> str:
    return f"{int(mask.sum()):,} ({mask.mean():.1%})"


def _half(counts: np.ndarray) -> str:
    running = np.cumsum(np.sort(counts)[::-1])
    n = int(np.searchsorted(running, running[-1] / 2)) + 1
    return f"{n:,} ({n / len(counts):.1%})"


def _top_share(counts: np.ndarray, share: float) -> float:
    top = max(1, round(share * len(counts)))
    return float(np.sort(counts)[::-1][:top].sum() / max(counts.sum(), 1))


def _gini(counts: np.ndarray) -> float:
    n = len(counts)
    ranks = np.arange(1, n + 1)
    return float((2 * ranks - n - 1) @ np.sort(counts) / max(n * counts.sum(), 1))
