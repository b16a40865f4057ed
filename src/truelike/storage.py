"""A model as a directory: model.json, arrays.safetensors, users.parquet, items.parquet. No pickle.

Loading runs no code from the file: the class comes from the registry, the parameters go through its
constructor and its checks, and the arrays are numbers.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from truelike._version import __version__
from truelike.data.dataset import Dataset
from truelike.data.id_files import known_library, read_ids, write_ids
from truelike.errors import StorageError
from truelike.files import check_place, has_file, reading, replacing_directory, settled
from truelike.models import REGISTRY, model_class

if TYPE_CHECKING:
    from truelike.models.recommender import Recommender

FORMAT = 1
FILES = ("model.json", "arrays.safetensors", "users.parquet", "items.parquet")


def check_model_place(directory: Path) -> None:
    """Fail before the training where the model could not be saved after it."""
    check_place(directory, FILES)


def save(model: Recommender, directory: Path, *, metrics: dict[str, float] | None = None) -> None:
    """Write a fitted model; an older one in the same place is replaced only when all is written."""
    from safetensors.numpy import save_file

    if type(model).__name__ not in REGISTRY:
        raise StorageError(
            f"{type(model).__name__} is not one of truelike's own models ({', '.join(REGISTRY)}): "
            "it could not be loaded again"
        )
    train = model.train_
    about = {
        "format": FORMAT,
        "class": type(model).__name__,
        "parameters": model._saved_parameters(),
        "metrics": {name: float(value) for name, value in (metrics or {}).items()},
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
    arrays = {
        "train.indptr": train.matrix.indptr,
        "train.indices": train.matrix.indices,
        "train.weights": train.matrix.data,
        **{f"model.{name}": array for name, array in model._arrays().items()},
    }
    _check_finite(arrays)
    with replacing_directory(directory) as place:
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        save_file(contiguous, place / "arrays.safetensors")
        write_ids(train, place)
        (place / "model.json").write_text(json.dumps(about, indent=2) + "\n")


def _check_finite(arrays: dict[str, Any]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise StorageError(f"{name} holds values that are not finite: such a model is of no use")


def load(directory: str | Path, **own: Any) -> Any:
    """Read a model that `save` wrote.

    Parameters
    ----------
    directory
        Where it is.
    **own
        Parameters that no file carries, since they are code of your own: `objective=`, or, of a model of networks,
        `preference=` and `flips=`; or another `device=`.

    Examples
    --------
    >>> import tempfile, truelike as tl
    >>> model = tl.ItemPop().fit(tl.synthetic.World(n_users=50, n_items=40).log())
    >>> with tempfile.TemporaryDirectory() as place:
    ...     model.save(place + "/model")
    ...     again = tl.load(place + "/model")
    >>> again.recommend(3).equals(model.recommend(3))
    True
    """
    from safetensors.numpy import load_file

    place = settled(Path(directory))
    if not has_file(place, "model.json"):
        raise StorageError(f"there is no model in {str(directory)!r}: model.json is not there")
    with reading(place, "model"):
        about = json.loads((place / "model.json").read_text())
        if about["format"] != FORMAT:
            raise StorageError(
                f"the model in {str(place)!r} has format {about['format']}, written by truelike "
                f"{about.get('library_version')}; this is truelike {__version__}, which reads format {FORMAT}"
            )
        if about["class"] not in REGISTRY:
            raise StorageError(f"the model in {str(place)!r} is a {about['class']!r}, which is not known here")
        kind = model_class(about["class"])
        unknown = set(own) - {parameter.name for parameter in fields(kind)}
        if unknown:
            raise StorageError(f"the model in {str(place)!r} is a {kind.__name__}, which has no {min(unknown)!r}")
        model = kind(**{**about["parameters"], **own})
        arrays = load_file(place / "arrays.safetensors")
        _check_finite(arrays)
        model.__dict__["train_"] = _load_train(place, about["data"], arrays)
        prefix = "model."
        model._restore({n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)})
    return model


def checked_csr(parts: tuple[Any, Any, Any], shape: tuple[int, int]) -> Any:
    """A CSR from stored (data, indices, indptr): compiled loops trust what a file may have wrong."""
    matrix = sparse.csr_array(parts, shape=shape)
    matrix.check_format(full_check=True)
    if not matrix.has_canonical_format:
        raise ValueError("the columns of a sparse matrix are not sorted")
    return matrix


def _load_train(place: Path, about: dict[str, Any], arrays: dict[str, Any]) -> Dataset:
    users, items, titles = read_ids(place, about["ids"])
    parts = (arrays["train.weights"], arrays["train.indices"], arrays["train.indptr"])
    matrix = checked_csr(parts, (len(users), len(items)))
    found = {"users": len(users), "items": len(items), "interactions": int(matrix.nnz)}
    if any(about[what] != count for what, count in found.items()):
        raise ValueError(f"model.json tells of other numbers than the {found} that are there")
    return Dataset(users, items, matrix, None, titles, known_library(about["library"]), str(about["name"]))
