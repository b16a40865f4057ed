"""What a dataset carries beside its interactions, as Parquet files of a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from truelike.core.files import OpenDirectory
from truelike.data.dataset import Dataset
from truelike.data.entries import users_of
from truelike.data.feature_table import FeatureTable
from truelike.data.feedback import Feedback
from truelike.data.id_files import read_parquet
from truelike.data.shown import Shown

SHOWN, KINDS, FEATURES = "shown.parquet", "kinds.parquet", ("item_features", "user_features")


def write_entries(data: Dataset, place: Path, prefix: str = "") -> list[str]:
    """Write the impressions and the other feedback, and return the names of the files."""
    names = []
    if data.shown is not None:
        columns = {
            "user": data.shown.users,
            "item": data.shown.items,
            "count": data.shown.csr.data,
            **data.shown.known,
        }
        pl.DataFrame(columns).write_parquet(place / f"{prefix}{SHOWN}")
        names.append(f"{prefix}{SHOWN}")
    if data.kinds:
        tables = [
            pl.DataFrame({"user": users_of(kind.csr), "item": kind.csr.indices, "weight": kind.csr.data}).with_columns(
                pl.lit(name).alias("kind"), pl.Series("time", kind.times, dtype=pl.Int64)
                if kind.times is not None else pl.lit(None, dtype=pl.Int64).alias("time"),
            )
            for name, kind in data.kinds.items()
        ]  # fmt: skip
        pl.concat(tables).write_parquet(place / f"{prefix}{KINDS}")
        names.append(f"{prefix}{KINDS}")
    return names


def write_features(data: Any, place: Path) -> list[str]:
    """Write the features of items and users, and return the names of the files."""
    names = []
    for which in FEATURES:
        table: FeatureTable | None = getattr(data, which)
        if table is None:
            continue
        number = "row" + "_" * (1 + max(map(len, table.columns)))  # no feature has this name
        rows = np.flatnonzero(table.known).astype(np.int32)
        pl.DataFrame([pl.Series(number, rows), *table.frame[rows].get_columns()]).write_parquet(
            place / f"{which}.parquet"
        )
        names.append(f"{which}.parquet")
    return names


def read_entries(
    files: OpenDirectory, names: list[str], shape: tuple[int, int], prefix: str = ""
) -> dict[str, Any]:
    """Read what `write_entries` wrote: the arguments `shown` and `kinds` of a dataset; ValueError if it is damaged."""
    found: dict[str, Any] = {}
    if f"{prefix}{SHOWN}" in names:
        rows = _rows(files, f"{prefix}{SHOWN}", shape, {"count": pl.Int32})
        known = {
            name: rows[name].to_numpy() for name in ("positions", "times", "propensities") if name in rows.columns
        }
        counts = rows["count"].to_numpy()
        if (counts < 1).any():
            raise ValueError(f"{prefix}{SHOWN} has a count below 1")
        codes = (rows["user"].to_numpy(), rows["item"].to_numpy())
        found["shown"] = Shown.from_pairs(*codes, shape, counts, **known)
    if f"{prefix}{KINDS}" in names:
        rows = _rows(files, f"{prefix}{KINDS}", shape, {"weight": pl.Float32, "kind": pl.String})
        if not rows["weight"].is_finite().all():
            raise ValueError(f"{prefix}{KINDS} has a weight that is not finite")
        found["kinds"] = {
            str(name): Feedback.from_pairs(
                mine["user"].to_numpy(),
                mine["item"].to_numpy(),
                shape,
                mine["weight"].to_numpy(),
                None if mine["time"].null_count() else mine["time"].to_numpy(),
            )
            for (name,), mine in rows.group_by("kind")
        }
    return found


def _rows(files: OpenDirectory, name: str, shape: tuple[int, int], types: dict[str, Any]) -> pl.DataFrame:
    """The rows of a file, whose row numbers are checked, since SciPy does not."""
    rows = read_parquet(files, name)
    for column, n in (("user", shape[0]), ("item", shape[1])):
        codes = rows[column]
        if codes.dtype != pl.Int32 or codes.null_count() or not codes.is_between(0, n - 1).all():
            raise ValueError(f"{name} has numbers of {column}s outside its {n:,}")
    for column, kind in types.items():
        if rows[column].dtype != kind or rows[column].null_count():
            raise ValueError(f"{name} has values of {column} that are not {kind}")
    return rows


def read_features(files: OpenDirectory, names: list[str], shape: tuple[int, int]) -> dict[str, FeatureTable]:
    """Read what `write_features` wrote: features by the name of the part."""
    found = {}
    for which, n in zip(FEATURES, (shape[1], shape[0]), strict=True):
        if f"{which}.parquet" not in names:
            continue
        frame = read_parquet(files, f"{which}.parquet")
        rows = frame.to_series(0).to_numpy()
        if rows.dtype != np.int32 or (len(rows) and not 0 <= rows.min() <= rows.max() < n):
            raise ValueError(f"{which}.parquet has row numbers outside its {n:,}")
        places = np.full(n, -1, dtype=np.int32)
        places[rows] = np.arange(len(rows))
        table = FeatureTable(frame.drop(frame.columns[0]), np.ones(len(rows), dtype=bool))
        found[which] = table.recode(places)
    return found
