"""Vectors of users and items for vector databases, as a Parquet file.

The score is U_u . V_i + b_i. A database that compares by inner products needs the bias inside of the vectors: items
are [V_i, b_i] and users [U_u, 1]. One that compares by the cosine or by Euclidean distance needs vectors of one length,
or it ranks otherwise: with M the greatest length of an item, items are [V_i, b_i, sqrt(M^2 - |V_i|^2 - b_i^2)] / M and
users [U_u, 1, 0] / |[U_u, 1]| (Bachrach et al., RecSys 2014). Cosine, inner product and distance of these rank as the
score.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike._version import __version__
from truelike.core.files import check_file, replacing_file
from truelike.core.forks import check_not_forked
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.ids import Ids
from truelike.errors import ParameterError, some
from truelike.models.scorer import DotProduct, Floats

What = Literal["items", "users"]
Metric = Literal["dot", "cosine"]


def write_vectors(
    train: Dataset | Blocks, found: DotProduct, path: str | Path, what: What, metric: Metric, *, model: str
) -> None:
    """Write vectors whose dot product is the score of a model; see `export_vectors`."""
    check_not_forked()
    for name, value, allowed in (("what", what, ("items", "users")), ("metric", metric, ("dot", "cosine"))):
        if value not in allowed:
            expected = " or ".join(f'"{each}"' for each in allowed)
            raise ParameterError(f"{name} is {some([repr(value)])}; it must be {expected}")
    place = check_file(path, (".parquet",))
    scale = None
    if metric == "cosine":  # the greatest length of an item
        squares = np.square(_with_bias(found.items, found.bias)).sum(axis=1)
        scale = float(np.sqrt(squares.max(initial=0.0))) or 1.0
    ids: Ids = train.items if what == "items" else train.users
    wide = _of_items(found, scale) if what == "items" else _of_users(found, scale)
    vectors = np.ascontiguousarray(wide, dtype=np.float32)
    columns = [
        ids.values.alias("item_id" if what == "items" else "user_id"),  # UUIDs are text here
        pl.Series("vector", vectors, dtype=pl.Array(pl.Float32, vectors.shape[1])),
    ]
    if what == "items" and train.titles is not None:
        columns.append(train.titles.alias("title"))
    about: dict[str, Any] = {
        "model": model,
        "what": what,
        "metric": metric,
        "factors": found.items.shape[1],
        "bias": found.bias is not None,
        "dimensions": vectors.shape[1],
        "length": scale,
        "library_version": __version__,
    }
    with replacing_file(place) as fresh:
        pl.DataFrame(columns).write_parquet(fresh, metadata={"truelike": json.dumps(about)})


def _of_items(found: DotProduct, scale: float | None) -> NDArray[np.float64]:
    wide = _with_bias(found.items, found.bias)
    if scale is None:
        return wide
    return np.column_stack([wide, np.sqrt(np.maximum(0.0, scale**2 - np.square(wide).sum(axis=1)))]) / scale


def _of_users(found: DotProduct, scale: float | None) -> NDArray[np.float64]:
    wide = _with_bias(found.users, None if found.bias is None else np.ones(len(found.users)))
    if scale is None:
        return wide
    length = np.linalg.norm(wide, axis=1)
    return np.column_stack([wide, np.zeros(len(wide))]) / np.where(length > 0, length, 1.0)[:, None]


def _with_bias(vectors: Floats, last: NDArray[np.floating] | None) -> NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    return wide if last is None else np.column_stack([wide, last])
