"""A snapshot: a model as it is served, in a directory that only truelike writes to.

It has the model, its ids and titles as arrays of bytes, the item factors in the layout of the ranking, the attributes
of the items, and maybe an approximate index. Workers map all arrays into memory, so that one copy serves all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.core.array_files import Arrays, read_arrays, write_arrays
from truelike.models.base import Recommender
from truelike.models.registry import load_described
from truelike.ranking.factor_ranker import FactorRanker
from truelike.serving.items_table import aligned
from truelike.serving.schemas import Answer
from truelike.storage import model_version

ABOUT, ARRAYS, ITEMS, INDEX = "snapshot.json", "serving.safetensors", "items.parquet", "index.faiss"
KEPT = ("class", "parameters", "metrics", "saved", "library_version", "choice", "history")  # of the model's own
FEW = 5  # users with fewer interactions count as such in the card


def write_snapshot(
    directory: Path, source: Path, name: str, table: pl.DataFrame | None = None, titles: str | None = None
) -> Recommender:
    """Read a model from the directory `source`, and write its snapshot. Returns the model.

    The table has attributes of items, as `read_items_table` returns them. Its column `title` has titles for a model
    that has none; those of the file `titles` come first.
    """
    model, about = load_described(source, in_memory=True)  # the workers need all histories, and share them
    if titles is not None:
        model.set_titles(titles)
    train = model.train_
    attributes, lacking = (None, 0) if table is None else aligned(table, train.items)
    if attributes is not None and "title" in attributes.columns and train.titles is None:
        texts = attributes["title"].cast(pl.String).fill_null(train.items.values.cast(pl.String))
        model.set_titles((train.items.values, texts))
    directory.mkdir(parents=True)
    model.save(directory / "model", metrics=about["metrics"])
    write_arrays(directory / ARRAYS, _arrays(model))
    if attributes is not None:
        attributes.write_parquet(directory / ITEMS)
    description = {
        **{key: about.get(key) for key in KEPT},
        "name": name,
        "version": _version(model_version(about), model, attributes),
        "loaded": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": {**about["data"], **_statistics(model)},
        "warnings": [f"{lacking:,} of {train.n_items:,} items are not in the table of items"] if lacking else [],
    }
    write_json(directory / ABOUT, description)
    return model


def _version(version: str, model: Recommender, attributes: pl.DataFrame | None) -> str:
    """The version of a model, which titles and attributes from other files change, too: lists and answers do."""
    columns = [
        column
        for column in (model.train_.titles, *(() if attributes is None else attributes))
        if column is not None
    ]
    if attributes is None and not columns:
        return version
    content = hashlib.sha256(version.encode())
    for column in columns:
        content.update(f"{column.name} {column.dtype}".encode())
        content.update(column.hash(seed=0).to_numpy().tobytes())
    return content.hexdigest()[: len(version)]


def _statistics(model: Recommender) -> Answer:
    train = model.train_
    counts, popularity = train.interactions_per_user(), train.popularity()
    most = np.sort(popularity)[::-1][: max(1, train.n_items // 100)]
    return {
        "sparsity": train.sparsity,
        "interactions_per_user": {"median": float(np.median(counts)), "most": int(counts.max())},
        f"users_with_fewer_than_{FEW}": float((counts < FEW).mean()),
        "share_of_the_most_popular_1_percent": float(most.sum() / max(1, popularity.sum())),
    }


def _arrays(model: Recommender) -> Arrays:
    train = model.train_
    found: Arrays = {
        "popularity": train.popularity().astype(np.int64),
        "examples": _examples(train.interactions_per_user()),
    }
    vectors, unit = model.scorer.vectors, model.scorer.similarity_vectors
    if vectors is not None:
        found["by_factor"] = vectors.ranker().by_factor
    if unit is not None:
        found["unit_by_factor"] = FactorRanker(unit).by_factor
    return found


def _examples(counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Some users to look at first: with more interactions than most, but not the extremes."""
    usual = np.quantile(counts, 0.75)
    return np.argsort(np.abs(counts - usual), kind="stable")[:20].astype(np.int32)


def open_arrays(directory: Path) -> Arrays:
    """Map the arrays of a snapshot into memory."""
    descriptor = os.open(directory / ARRAYS, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        return read_arrays(descriptor, mapped=True)[1]
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Answer:
    """The content of a JSON file."""
    found: Answer = json.loads(path.read_text(encoding="utf-8"))
    return found


def write_json(path: Path, content: Answer) -> None:
    """Write a JSON file, whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(content), encoding="utf-8")
    fresh.replace(path)
