"""`describe`: counts of a dataset, the long tail of its items, and the line of the paper's Table 1."""

from __future__ import annotations

import numpy as np
import polars as pl

from truelike.data.checks import check_dataset
from truelike.data.dataset import Dataset
from truelike.data.moments import time_range


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


def describe(data: Dataset) -> pl.DataFrame:
    """Properties of a dataset, as a frame of (property, value).

    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("bob", "tea"), ("bob", "milk"), ("bob", "milk")])
    >>> dict(describe(data).rows())["repeated rows"]
    '1'
    """
    check_dataset(data, "describe")
    per_user, per_item = data.interactions_per_user(), data.popularity()
    facts = {
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
    }
    return pl.DataFrame({"property": list(facts), "value": list(facts.values())})


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
