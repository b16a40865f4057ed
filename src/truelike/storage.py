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
from numpy.typing import NDArray
from scipy import sparse

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
from truelike.data.feedback import Feedback
from truelike.data.ids import Codes
from truelike.data.matrix import checked_csr
from truelike.data.part_files import ID_FILES, known_library, read_ids, read_schema, read_titles, write_ids
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
    if train.schema is not None:
        text["data"] |= {"schema": train.schema.to_dict(), "kinds": _kept_kinds(train)}
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
    found = {"train": Feedback(train.csr, train.times)}
    found |= {f"train.kind{number}": train.kinds[name] for number, name in enumerate(_kept_kinds(train))}
    return {f"{name}.{what}": array for name, part in found.items() for what, array in part.arrays().items()}


def _kept_kinds(train: Dataset | Blocks) -> list[str]:
    """The kinds that a model keeps: those that make an item seen."""
    if isinstance(train, Blocks) or train.schema is None:
        return []
    known = train.schema.kinds
    return [name for name in train.kinds if name in known and known[name].seen]


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
    shape = (len(users), len(items))
    matrix, times = _read_feedback(arrays, "train", shape)
    if not matrix.data.min(initial=1) > 0:
        raise ValueError("the training data has weights that are not positive")
    found = {"users": len(users), "items": len(items), "interactions": int(matrix.nnz)}
    if any(about[what] != count for what, count in found.items()):
        raise ValueError(f"model.json names other numbers than the {found} in the files")
    schema = about.get("schema")
    names: list[str] = [] if schema is None else [str(name) for name in about["kinds"]]
    kinds = {name: Feedback(*_read_feedback(arrays, f"train.kind{n}", shape)) for n, name in enumerate(names)}
    return Dataset.unchecked(
        users,
        items,
        matrix,
        times,
        titles=titles,
        library=known_library(about["library"]),
        name=str(about["name"]),
        kinds=kinds,
        schema=None if schema is None else read_schema(schema),
    )


def _read_feedback(
    arrays: dict[str, Any], name: str, shape: tuple[int, int]
) -> tuple[sparse.csr_array, NDArray[np.int64] | None]:
    parts = (arrays[f"{name}.weights"], arrays[f"{name}.indices"], arrays[f"{name}.indptr"])
    if [part.dtype for part in parts] != [np.float32, np.int32, np.int32]:
        raise ValueError("the training data is not a matrix of float32 with int32 indices")
    matrix, times = checked_csr(parts, shape), arrays.get(f"{name}.times")
    if times is not None and (times.dtype != np.int64 or times.shape != (matrix.nnz,)):
        raise ValueError("the times of the training data are not one int64 for each interaction")
    return matrix, times
