"""A model as a directory: model.json, arrays.safetensors, users.parquet, items.parquet. No pickle.

This file knows files and arrays. `models/registry.py` turns them into a model: the class comes from the registry, the
parameters go through its constructor and its checks, and the arrays are numbers. No code runs from a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from truelike._version import __version__
from truelike.data.dataset import Dataset
from truelike.data.id_files import known_library, read_ids, write_ids
from truelike.data.matrix import checked_csr
from truelike.errors import StorageError
from truelike.files import check_place, has_file, reading, replacing_directory, settled

FORMAT = 2
FILES = ("model.json", "arrays.safetensors", "users.parquet", "items.parquet")
PREFIX = "model."  # of the arrays of the model, beside those of the training data


def check_model_place(directory: Path) -> None:
    """Fail before training if the model could not be saved after it."""
    check_place(directory, FILES)


def write_model(
    directory: Path,
    about: Mapping[str, Any],
    arrays: Mapping[str, Any],
    train: Dataset,
    metrics: Mapping[str, Any],
) -> None:
    """Write a model. An older one in the same place is replaced only when everything is written.

    Parameters
    ----------
    directory
        Where to write.
    about
        What `read_model` returns: the class, the parameters and the choice of an `AutoRecommender`.
    arrays
        The learned arrays by name.
    train
        The training data.
    metrics
        Figures to keep with the model, by name.
    """
    from safetensors.numpy import save_file

    text = {
        "format": FORMAT,
        **about,
        "metrics": {name: float(value) for name, value in metrics.items()},
        "library_version": __version__,
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
        "train.indptr": train.matrix.indptr,
        "train.indices": train.matrix.indices,
        "train.weights": train.matrix.data,
        **{f"{PREFIX}{name}": array for name, array in arrays.items()},
    }
    _check_finite(numbers)
    with replacing_directory(directory) as place:
        save_file({name: np.ascontiguousarray(array) for name, array in numbers.items()}, place / FILES[1])
        write_ids(train, place)
        (place / "model.json").write_text(json.dumps(text, indent=2) + "\n")


def read_model(directory: str | Path) -> tuple[dict[str, Any], dict[str, Any], Dataset]:
    """Read what `write_model` wrote: model.json, the learned arrays and the training data."""
    from safetensors.numpy import load_file

    place = settled(Path(directory))
    if not has_file(place, "model.json"):
        raise StorageError(f"there is no model in {str(directory)!r}: model.json is missing")
    with reading(place, "model"):
        about = json.loads((place / "model.json").read_text())
        if about["format"] != FORMAT:
            raise StorageError(
                f"the model in {str(place)!r} has format {about['format']}, written by truelike "
                f"{about.get('library_version')}; truelike {__version__} reads format {FORMAT}. Train it again."
            )
        arrays = load_file(place / "arrays.safetensors")
        _check_finite(arrays)
        train = _read_train(place, about["data"], arrays)
        own = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
        return about, own, train


def _check_finite(arrays: dict[str, Any]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise StorageError(f"the array {name!r} holds values that are not finite")


def _read_train(place: Path, about: dict[str, Any], arrays: dict[str, Any]) -> Dataset:
    users, items, titles = read_ids(place, about["ids"])
    parts = (arrays["train.weights"], arrays["train.indices"], arrays["train.indptr"])
    matrix = checked_csr(parts, (len(users), len(items)))
    found = {"users": len(users), "items": len(items), "interactions": int(matrix.nnz)}
    if any(about[what] != count for what, count in found.items()):
        raise ValueError(f"model.json names other numbers than the {found} in the files")
    return Dataset(users, items, matrix, None, titles, known_library(about["library"]), str(about["name"]))
