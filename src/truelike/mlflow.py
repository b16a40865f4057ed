"""Models in MLflow: logged, registered and loaded, without pickle. Needs the extra `truelike[mlflow]`.

The model is a truelike directory beside MLflow's own file `MLmodel`, which names this module as its loader. So nothing
is pickled, and `load_model` runs no code of the files.

>>> import tempfile, truelike as tl
>>> model = tl.ItemPop().fit(tl.synthetic.World(n_users=50, n_items=40).dataset())
>>> with tempfile.TemporaryDirectory() as place:                          # doctest: +SKIP
...     tl.mlflow.save_model(model, place + "/model")
...     tl.mlflow.load_model(place + "/model")
ItemPop()
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from truelike._version import __version__
from truelike.core.forks import check_not_forked
from truelike.errors import DataError, MissingExtraError, NotFoundError, ParameterError, StorageError, quoted

if TYPE_CHECKING:
    from mlflow.models import Model, ModelSignature
    from mlflow.models.model import ModelInfo

    from truelike.models.base import Recommender
    from truelike.models.lists import Frame

__all__ = ["load_model", "log_model", "save_model"]

FLAVOR = "truelike"
DATA = "truelike"  # the name of the model's directory
COLUMN = "user_id"


def __dir__() -> list[str]:
    return sorted(__all__)


def log_model(model: Recommender, name: str = "model", **more: Any) -> ModelInfo:
    """Log a fitted model to the active run of MLflow, and return MLflow's description of it.

    Parameters
    ----------
    model
        A fitted model. Of an `AutoRecommender`, the model that it chose.
    name
        The name in MLflow.
    **more
        Options of `mlflow.models.Model.log`, such as `registered_model_name=`, `tags=` or `metadata=`, and those of
        `save_model`.
    """
    _check_model(model)
    from mlflow.models import Model

    return Model.log(artifact_path=None, name=name, flavor=sys.modules[__name__], model=model, **more)


def save_model(model: Recommender, path: str | Path, *, mlflow_model: Model | None = None, **more: Any) -> None:
    """Write a fitted model as a directory of MLflow.

    Parameters
    ----------
    model
        A fitted model.
    path
        The directory. It must not exist.
    mlflow_model
        A description to add to; MLflow passes it.
    **more
        Options of `mlflow.pyfunc.save_model`, such as `metadata=`. By default, `signature` is user ids of the type of
        the training data, with the parameters `k`, `exclude_seen`, `on_unknown` and `titles`, and lists as in
        `recommend`; `input_example` is the first user; `pip_requirements` is this version of truelike.
    """
    _check_model(model)
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import Model

    described = Model() if mlflow_model is None else mlflow_model
    written = getattr(model, "model_", model)  # of an AutoRecommender, what it chose is saved
    described.add_flavor(
        FLAVOR, truelike_version=__version__, model_class=type(written).__name__, data=f"data/{DATA}"
    )
    defaults = {
        "signature": _signature(model),
        "input_example": pd.DataFrame({COLUMN: model.train_.users.stored(np.zeros(1, dtype=np.int32)).to_list()}),
        "pip_requirements": [f"truelike[mlflow]=={__version__}"],
    }
    with TemporaryDirectory() as place:
        model.save(Path(place) / DATA)
        mlflow.pyfunc.save_model(
            path=str(path),
            loader_module=__name__,
            data_path=str(Path(place) / DATA),
            mlflow_model=described,
            **{**defaults, **more},
        )


def load_model(model_uri: str | Path, **own: Any) -> Recommender:
    """The model of truelike that `log_model` or `save_model` wrote.

    Parameters
    ----------
    model_uri
        A directory, or an address of MLflow: `models:/name/3`, `models:/name@alias`, `runs:/id/model`.
    **own
        Options of `tl.load`: `model_class=` and other code that no file holds.
    """
    check_not_forked()
    _check_installed()
    if Path(model_uri).is_dir():
        return _load(Path(model_uri), own)
    from mlflow.artifacts import download_artifacts

    with TemporaryDirectory() as place:
        return _load(Path(download_artifacts(artifact_uri=str(model_uri), dst_path=place)), own)


def _load(directory: Path, own: Mapping[str, Any]) -> Recommender:
    from mlflow.models import Model

    from truelike.models.registry import load

    if not (directory / "MLmodel").is_file():
        raise NotFoundError(f"there is no model of MLflow in {str(directory)!r}: MLmodel is missing")
    flavors = Model.load(str(directory)).flavors
    if FLAVOR not in flavors:
        raise StorageError(
            f"the model in {str(directory)!r} was not written by truelike.mlflow: its flavors are "
            f"{', '.join(sorted(flavors)) or 'none'}"
        )
    return load(directory / "data" / DATA, **own)


def _load_pyfunc(path: str) -> _Predictor:
    """What MLflow calls for `mlflow.pyfunc.load_model`; `path` is the directory of truelike."""
    from truelike.models.registry import load

    return _Predictor(load(path))


class _Predictor:
    """A model as a function of MLflow: user ids in, lists out as a frame of pandas."""

    def __init__(self, model: Recommender) -> None:
        self.model = model

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Frame:
        """Recommend to users: a frame user_id, item_id, score, rank, and title with the parameter titles.

        Parameters
        ----------
        model_input
            A frame with a column `user_id`, or a dict of a list, {"user_id": [...]}.
        params
            `k`, `exclude_seen`, `on_unknown` and `titles` of `Recommender.recommend`.
        """
        import pandas as pd

        options = dict(params or {})
        unknown = sorted(set(options) - set(DEFAULTS))
        if unknown:
            raise ParameterError(f"params has {', '.join(unknown)}; known are {', '.join(DEFAULTS)}")
        return self.model.recommend(pd.Series(_users(model_input)), **{**DEFAULTS, **options})


DEFAULTS: dict[str, Any] = {"k": 10, "exclude_seen": True, "on_unknown": "raise", "titles": False}


def _users(given: Any) -> list[Any]:
    """The ids of a frame, or of a dict."""
    if COLUMN not in given:
        names = ", ".join(map(str, getattr(given, "columns", given)))
        raise DataError(f"the columns are {quoted(names)}; expected one with the name {COLUMN}")
    found = list(given[COLUMN])
    if len(found) == 1 and isinstance(found[0], (list, np.ndarray)):  # MLflow puts a list into one row
        return list(found[0])
    return found


def _signature(model: Recommender) -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    users, items = ("long" if ids.kind == "int" else "string" for ids in (model.train_.users, model.train_.items))
    lists = {COLUMN: users, "item_id": items, "score": "float", "rank": "integer"}
    types = {"k": "long", "exclude_seen": "boolean", "on_unknown": "string", "titles": "boolean"}
    return ModelSignature(
        # by name: MLflow would take the first column of a frame for a column without one
        inputs=Schema([ColSpec(users, COLUMN)]),
        outputs=Schema(
            [*(ColSpec(kind, name) for name, kind in lists.items()), ColSpec("string", "title", required=False)]
        ),
        params=ParamSchema([ParamSpec(name, types[name], default) for name, default in DEFAULTS.items()]),
    )


def _check_model(model: object) -> None:
    from truelike.models.base import Recommender

    check_not_forked()
    _check_installed()
    if not isinstance(model, Recommender):
        raise ParameterError(f"a fitted model of truelike is expected; {type(model).__name__} was given")
    _ = model.train_


def _check_installed() -> None:
    try:
        import mlflow  # noqa: F401
        import pandas  # noqa: F401
    except ImportError as error:
        raise MissingExtraError('truelike.mlflow needs MLflow: pip install "truelike[mlflow]"') from error
