"""Datasets and splits as small HTML tables, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from truelike.data.moments import time_range

if TYPE_CHECKING:
    from truelike.data.dataset import Dataset
    from truelike.data.splits import Split

FIRST_ROWS = 5


def table(rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """An HTML table of escaped cells.

    >>> table([("a<b", 1)], header=("what", "count"))
    '<table><thead><tr><th>what</th><th>count</th></tr></thead><tbody><tr><td>a&lt;b</td><td>1</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(str(name))}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def dataset_html(data: Dataset) -> str:
    """Counts of a dataset and its first rows."""
    facts = [
        ("interactions", f"{data.n_interactions:,}"),
        ("users", f"{data.n_users:,}"),
        ("items", f"{data.n_items:,}"),
        ("density", f"{1 - data.sparsity:.4%}"),
    ]
    if data.times is not None and data.n_interactions:
        facts.append(("time", time_range(data.times)))
    rows = _first_rows(data)
    return f"<div><b>Dataset</b> {escape(data.name)}{table(facts)}{table(rows.iter_rows(), rows.columns)}</div>"


def _first_rows(data: Dataset) -> pl.DataFrame:
    users, items = data.user_of_entry[:FIRST_ROWS], data.csr.indices[:FIRST_ROWS]
    columns = [data.users.take(users).alias("user_id"), data.items.take(items).alias("item_id")]
    if data.titles is not None:
        columns.append(data.titles.gather(items).alias("title"))
    if data.has_weights:
        columns.append(pl.Series("weight", data.csr.data[:FIRST_ROWS]))
    if data.times is not None:
        columns.append(pl.Series("time", data.times[:FIRST_ROWS]))
    return pl.DataFrame(columns)


def split_html(split: Split) -> str:
    """Counts of each part of a split, and how it was made."""
    header = ("part", "interactions", "users with interactions", "items with interactions")
    rows = [
        (name, f"{part.n_interactions:,}", f"{np.count_nonzero(np.diff(part.csr.indptr)):,}",
         f"{np.count_nonzero(part.popularity()):,}")
        for name, part in zip(("train", "validation", "test"), split.parts, strict=True)
    ]  # fmt: skip
    size = f"{split.train.n_users:,} users, {split.train.n_items:,} items"
    info = table(split.info.items())
    return f"<div><b>Split</b> {escape(split.train.name)}: {size}{table(rows, header)}{info}</div>"
