"""Models by name, and models from files.

The names are those of the stub `truelike/__init__.pyi`, where each public name is declared once.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from truelike.core.files import reading
from truelike.core.parameters import parse
from truelike.data.frames import to_native
from truelike.errors import ParameterError, StorageError
from truelike.models.base import Recommender, clone
from truelike.storage import read_model

# what other models are made of, and classes for any objective
GENERAL = ("AutoRecommender", "Blend", "WeightedKinds", "SampledMF", "ExactMF", "SampledListMF", "DeepRecommender")
# for impressions, for research (of interactions others rank better), and for data with times
SPECIAL = ("ImpressionMF", "ExposureMF", "Trending")
NOT_MODELS = ("Recommender", "EpochRecommender", "Scorer", "DotProductScorer", "clone", "load")


def _public_models() -> dict[str, str]:
    """The module of each public model, in the order of the stub."""
    stub = ast.parse(Path(__file__).parents[1].joinpath("__init__.pyi").read_text())
    return {
        alias.name: f"truelike.{node.module}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("models.", "selection.auto"))
        for alias in node.names
        if alias.name not in NOT_MODELS
    }


REGISTRY = _public_models()


def model_class(model: str | type[Recommender]) -> type[Recommender]:
    """The class of a model by its name, or the class itself. Case, dashes and underscores do not matter.

    >>> model_class("item-knn").__name__
    'ItemKNN'
    """
    if isinstance(model, type) and issubclass(model, Recommender):
        return model

    def plain(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "")

    for known, home in REGISTRY.items():
        if isinstance(model, str) and plain(known) == plain(model):
            found: type[Recommender] = getattr(importlib.import_module(home), known)
            return found
    raise ParameterError(
        f"there is no model {model!r}; there are {', '.join(REGISTRY)}. A model of your own is given as its class."
    )


def variant(model: str | type[Recommender]) -> tuple[type[Recommender], dict[str, Any]]:
    """The class of a model, and the parameters that follow its name after colons.

    >>> kind, own = variant("bpr:negatives=hard:10:factors=64")
    >>> kind.__name__, own
    ('BPR', {'negatives': 'hard:10', 'factors': 64})
    """
    if not isinstance(model, str):
        return model_class(model), {}
    name, *parts = model.split(":")
    kind = model_class(name.strip())
    given: list[str] = []
    for part in parts:  # a value may hold a colon: negatives=hard:10
        if "=" in part or not given:
            given.append(part)
        else:
            given[-1] += f":{part}"
    settings = {}
    for each in given:
        parameter, equals, value = each.partition("=")
        if not equals:
            raise ParameterError(
                f"{model!r} is no model: after a colon comes name=value, as in 'NeuMF:objective=NBPO'"
            )
        settings[parameter.strip()] = value.strip()
    return kind, parse(kind, settings)


def build(model: str | type[Recommender], parameters: Mapping[str, Any]) -> Recommender:
    """A model by its name or class; `parameters` go before those in the name. All of them are checked.

    >>> build("SoftmaxMF:factors=512", {"seed": "3"})
    SoftmaxMF(factors=512, seed=3)
    """
    kind, own = variant(model)
    return kind(**{**own, **parse(kind, dict(parameters))})


def variant_name(model: str) -> str:
    """The name of a model, as the class is spelled here, with the parameters as they were typed.

    >>> variant_name("item-knn:neighbors=020")
    'ItemKNN:neighbors=020'
    """
    kind, _ = variant(model)
    return ":".join([kind.__name__, *(part.strip() for part in model.split(":")[1:])])


def usual_models() -> list[str]:
    """The models of a comparison in which none is named: no networks, which take long, and no general classes."""
    return [
        name for name, home in REGISTRY.items() if name not in (*GENERAL, *SPECIAL) and ".networks." not in home
    ]


def load(directory: str | Path, *, model_class: type[Recommender] | None = None, **own: Any) -> Recommender:
    """Read a model that `save` wrote.

    Parameters
    ----------
    directory
        Where it is.
    model_class
        The class, for a model of your own. No file holds code.
    **own
        Parameters that no file holds because they are code: `objective=`, or, of a `DeepRecommender`,
        `preference=` and `flips=`; or another `device=` or `n_jobs=`.

    Examples
    --------
    >>> import tempfile, truelike as tl
    >>> model = tl.ItemPop().fit(tl.synthetic.World(n_users=50, n_items=40).dataset())
    >>> with tempfile.TemporaryDirectory() as place:
    ...     model.save(place + "/model")
    ...     again = tl.load(place + "/model")
    >>> again.recommend(3).equals(model.recommend(3))
    True
    """
    return load_described(directory, model_class=model_class, **own)[0]


def load_described(
    directory: str | Path,
    *,
    model_class: type[Recommender] | None = None,
    mapped: bool = False,
    in_memory: bool = False,
    **own: Any,
) -> tuple[Recommender, dict[str, Any]]:
    """Read a model as `load` does, and return it with its description, the content of model.json.

    With `mapped` the arrays are memory-mapped, for a directory that nobody changes: several processes share them. With
    `in_memory` the training data is a Dataset, also of a model that was trained on blocks.
    """
    about, arrays, train, ties = read_model(directory, mapped=mapped)
    kind = _class_of(str(about.get("class")), str(directory), model_class)
    with reading(Path(directory), "model"):
        saved = kind(**about["parameters"])
    model: Recommender = clone(saved, **own)
    with reading(Path(directory), "model"):
        learned = dict(model._restore(arrays, train))
        if "choice" in about:
            chooser: Any = _class_of("AutoRecommender", str(directory), None)
            learned["choice_"] = chooser.choice_from(about["choice"])
        if "history" in about:
            learned["history_"] = to_native(_history(about["history"]), train.library)
        model._assign(train, learned, ties)
        if in_memory:
            model = model.with_train(train.to_dataset())
        return model, about


def _history(columns: Any) -> pl.DataFrame:
    """The history of a training as it was saved; ValueError if it cannot be one."""
    values = [value for column in columns.values() for value in column]
    if not all(value is None or type(value) in (int, float) for value in values):
        raise ValueError("the history of the training is not numbers")
    return pl.DataFrame(columns, strict=False)


def _class_of(name: str, place: str, given: type[Recommender] | None) -> type[Recommender]:
    if given is not None:
        if not (isinstance(given, type) and issubclass(given, Recommender)):
            raise ParameterError(f"model_class is {given!r}; it must be a subclass of Recommender")
        if given.__name__ != name:
            raise StorageError(f"the model in {place!r} is a {name}; model_class is {given.__name__}")
        return given
    if name not in REGISTRY:
        raise StorageError(
            f"the model in {place!r} is a {name!r}, which is not one of truelike's own. If it is a class of yours, "
            f"load it with tl.load(directory, model_class={name})."
        )
    return model_class(name)
