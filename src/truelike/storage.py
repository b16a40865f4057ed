"""A model as a directory: model.json, arrays.safetensors, users.parquet, items.parquet. No pickle.

This file knows files and arrays. `models/registry.py` turns them into a model: the class comes from the registry, the
parameters go through its constructor and its checks, and the arrays are numbers. No code runs from a file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from numbers import Real
from pathlib import Path
from typing import Any, cast

import numpy as np

from truelike._version import __version__
from truelike.core.array_files import write_arrays
from truelike.core.files import (
    OpenDirectory,
    as_place,
    check_place,
    describe_files,
    has_file,
    reading,
    replacing_directory,
    write_description,
)
from truelike.data.blocks.blocks import Blocks
from truelike.data.blocks.format import DESCRIPTION
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.data.matrix import checked_csr
from truelike.data.part_files import ID_FILES, known_library, read_ids, read_titles, write_ids
from truelike.errors import ParameterError, StorageError, some

FORMAT = 4
FILES = ("model.json", "arrays.safetensors", *ID_FILES)
TIES = "ties"
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
    ties: Codes | None = None,
) -> None:
    """Write a model. An older one in the same place is replaced only when everything is written.

    `about` has the class, the parameters, the choice of an `AutoRecommender` and the history of the training, and
    `metrics` are figures to keep with the model. `ties` are the places of items with equal scores, where the training
    data does not tell them. Of training data in blocks only the place is written, and a digest.
    """
    if not isinstance(metrics, Mapping) or not all(map(_is_metric, metrics.items())):
        raise ParameterError(f"metrics is {some([repr(metrics)])}; it must be numbers by name")
    text: dict[str, Any] = {
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
    numbers = {**_train_arrays(train), **{f"{PREFIX}{name}": array for name, array in arrays.items()}}
    if ties is not None:
        numbers[TIES] = ties
    _check_finite(numbers)
    with replacing_directory(directory) as place:
        if isinstance(train, Blocks):
            beside = os.path.relpath(train.directory, as_place(directory).parent)
            text["data"]["blocks"] = {"directory": str(train.directory), "beside": beside, "digest": train.digest}
        text["arrays"] = write_arrays(place / "arrays.safetensors", numbers)
        write_ids(train, place)
        text["files"] = describe_files(place, ID_FILES)
        write_description(place / "model.json", text)


def _train_arrays(train: Dataset | Blocks) -> dict[str, Any]:
    """The arrays of the training data. Blocks stay where they are."""
    if isinstance(train, Blocks):
        return {}
    matrix = {"indptr": train.csr.indptr, "indices": train.csr.indices, "weights": train.csr.data}
    times = {} if train.times is None else {"times": train.times}
    return {f"train.{name}": array for name, array in {**matrix, **times}.items()}


def read_model(
    directory: str | Path, *, mapped: bool = False
) -> tuple[dict[str, Any], dict[str, Any], Any, Codes | None]:
    """Read what `write_model` wrote: model.json, the learned arrays, the training data and the ties.

    With `mapped` the arrays are memory-mapped, for a directory that nobody changes: several processes share them.
    """
    with OpenDirectory(directory, "model", FILES[0], FILES[1:]) as files, reading(files.place, "model"):
        about = files.about(FORMAT)
        blocks = _open_blocks(files, about["data"]) if "blocks" in about["data"] else None
        empty = np.empty if blocks is None else blocks.empty
        arrays = files.read_arrays("arrays.safetensors", mapped=mapped, empty=empty)
        _check_finite(arrays)
        train: Any = _read_train(files, about["data"], arrays) if blocks is None else blocks
        own = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
        return about, own, train, _checked_ties(arrays.get(TIES), train.n_items)


def _checked_ties(ties: Any, n_items: int) -> Codes | None:
    if ties is not None and (ties.dtype != np.int32 or not np.array_equal(np.sort(ties), np.arange(n_items))):
        raise ValueError("the places of equal items are not a permutation of the items")
    return cast("Codes | None", ties)


def model_version(about: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that stand for the content of a model: its class, parameters, arrays and ids.

    A model that is saved again, or trained again with the same result, has the same version.
    """
    content = {name: about.get(name) for name in ("class", "parameters", "data", "files")}
    if isinstance(content["data"], dict) and "blocks" in content["data"]:  # wherever they are
        content["data"] = {**content["data"], "blocks": content["data"]["blocks"]["digest"]}
    content["arrays"] = about.get("arrays", {}).get("checksums")
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _is_metric(named: tuple[Any, Any]) -> bool:
    name, value = named
    return isinstance(name, str) and isinstance(value, Real) and math.isfinite(value)


def _check_finite(arrays: dict[str, Any]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and array.size and not np.isfinite([array.min(), array.max()]).all():
            raise StorageError(f"the array {name!r} holds values that are not finite")


def _open_blocks(files: OpenDirectory, about: dict[str, Any]) -> Blocks:
    """The blocks that a model was trained on: where they were, or where they are relative to the model."""
    named = about["blocks"]
    places = [Path(named["directory"]), Path(os.path.normpath(files.place.parent / named["beside"]))]
    for place in places:
        if has_file(place, DESCRIPTION):
            blocks = Blocks(place)
            if blocks.digest == named["digest"]:
                blocks.titles = read_titles(files)
                return blocks
    raise StorageError(
        f"the model in {str(files.place)!r} was trained on the block directory {named['directory']!r}, which is not "
        "there, or was built again. Put it there, or at the same place relative to the model."
    )


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
    return Dataset.unchecked(
        users,
        items,
        matrix,
        times,
        titles=titles,
        library=known_library(about["library"]),
        name=str(about["name"]),
    )
