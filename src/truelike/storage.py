"""A model as a directory: model.json, arrays.safetensors, users.parquet, items.parquet. No pickle.

This file knows files and arrays. `models/registry.py` turns them into a model: the class comes from the registry, the
parameters go through its constructor and its checks, and the arrays are numbers. No code runs from a file.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from truelike._version import __version__
from truelike.array_files import write_arrays
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.id_files import ID_FILES, known_library, read_ids, write_ids
from truelike.data.matrix import checked_csr
from truelike.errors import ParameterError, StorageError, some
from truelike.files import (
    OpenDirectory,
    check_place,
    describe_files,
    reading,
    replacing_directory,
    write_description,
)

FORMAT = 3
FILES = ("model.json", "arrays.safetensors", *ID_FILES)
PREFIX = "model."  # of the arrays of the model, beside those of the training data


def check_model_place(directory: Path) -> None:
    """Fail before training if the model could not be saved after it."""
    check_place(directory, FILES)


def write_model(
    directory: str | Path,
    about: Mapping[str, Any],
    arrays: Mapping[str, Any],
    train: Dataset | Blocks,
    metrics: Mapping[str, Any],
) -> None:
    """Write a model. An older one in the same place is replaced only when everything is written.

    Parameters
    ----------
    directory
        Where to write.
    about
        What `read_model` returns: the class, the parameters, the choice of an `AutoRecommender` and the history of
        the training.
    arrays
        The learned arrays by name.
    train
        The training data. Blocks are read into memory, if they fit.
    metrics
        Figures to keep with the model, by name.
    """
    if not isinstance(metrics, Mapping) or not all(map(_is_metric, metrics.items())):
        raise ParameterError(f"metrics is {some([repr(metrics)])}; it must be numbers by name")
    if isinstance(train, Blocks):
        train = train.to_dataset()
    text = {
        "format": FORMAT,
        **about,
        "metrics": {name: float(value) for name, value in metrics.items()},
        "library_version": __version__,
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": {
            "name": train.name,
            "library": train.library,
            "ids": {"users": train.users.kind, "items": train.items.kind},
            "users": train.n_users,
            "items": train.n_items,
            "interactions": train.n_interactions,
        },
    }
    numbers = {
        "train.indptr": train._csr.indptr,
        "train.indices": train._csr.indices,
        "train.weights": train._csr.data,
        **({} if train.times is None else {"train.times": train.times}),
        **{f"{PREFIX}{name}": array for name, array in arrays.items()},
    }
    _check_finite(numbers)
    with replacing_directory(directory) as place:
        text["arrays"] = write_arrays(place / "arrays.safetensors", numbers)
        write_ids(train, place)
        text["files"] = describe_files(place, ID_FILES)
        write_description(place / "model.json", text)


def read_model(directory: str | Path, *, mapped: bool = False) -> tuple[dict[str, Any], dict[str, Any], Dataset]:
    """Read what `write_model` wrote: model.json, the learned arrays and the training data.

    With `mapped` the arrays are memory-mapped, for a directory that nobody changes: several processes share them.
    """
    with OpenDirectory(directory, "model", FILES[0], FILES[1:]) as files, reading(files.place, "model"):
        about = files.about(FORMAT)
        arrays = files.read_arrays("arrays.safetensors", mapped=mapped)
        _check_finite(arrays)
        train = _read_train(files, about["data"], arrays)
        own = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
        return about, own, train


def model_version(about: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that stand for the content of a model: its class, parameters, arrays and ids.

    A model that is saved again, or trained again with the same result, has the same version.
    """
    content = {name: about.get(name) for name in ("class", "parameters", "data", "files")}
    content["arrays"] = about.get("arrays", {}).get("checksums")
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _is_metric(named: tuple[Any, Any]) -> bool:
    name, value = named
    return isinstance(name, str) and isinstance(value, Real) and math.isfinite(value)


def _check_finite(arrays: dict[str, Any]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise StorageError(f"the array {name!r} holds values that are not finite")


def _read_train(files: OpenDirectory, about: dict[str, Any], arrays: dict[str, Any]) -> Dataset:
    users, items, titles = read_ids(files, about["ids"])
    parts = (arrays["train.weights"], arrays["train.indices"], arrays["train.indptr"])
    if [part.dtype for part in parts] != [np.float32, np.int32, np.int32] or not parts[0].min(initial=1) > 0:
        raise ValueError("the training data is not a matrix of positive float32 with int32 indices")
    matrix = checked_csr(parts, (len(users), len(items)))
    found = {"users": len(users), "items": len(items), "interactions": int(matrix.nnz)}
    if any(about[what] != count for what, count in found.items()):
        raise ValueError(f"model.json names other numbers than the {found} in the files")
    times = arrays.get("train.times")
    if times is not None and (times.dtype != np.int64 or times.shape != (matrix.nnz,)):
        raise ValueError("the times of the training data are not one int64 for each interaction")
    return Dataset._of(users, items, matrix, times, titles, known_library(about["library"]), str(about["name"]))
