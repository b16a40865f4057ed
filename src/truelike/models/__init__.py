"""The recommenders, one a file, all under one contract, and the registry that finds them by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from truelike.errors import ParameterError
from truelike.parameters import parse

if TYPE_CHECKING:
    from truelike.models.recommender import Recommender

REGISTRY = {
    "ItemPop": "truelike.models.popularity",
    "ItemKNN": "truelike.models.item_knn",
    "MatrixFactorization": "truelike.models.factorization",
    "BPR": "truelike.models.presets",
    "WBPR": "truelike.models.presets",
    "ShiftMC": "truelike.models.presets",
    "NBPR": "truelike.models.presets",
    "BPO": "truelike.models.presets",
    "NBPO": "truelike.models.presets",
    "SoftmaxMF": "truelike.models.presets",
    "ExactBPO": "truelike.models.presets",
    "ExactNBPO": "truelike.models.presets",
    "EASE": "truelike.models.ease",
    "EDLAE": "truelike.models.ease",
    "IALS": "truelike.models.ials",
    "FM": "truelike.models.deep.fm",
    "NeuMF": "truelike.models.deep.neumf",
    "ACF": "truelike.models.deep.acf",
    "LightGCN": "truelike.models.deep.lightgcn",
    "DeepRecommender": "truelike.models.deep.custom",
}


def model_class(name: str) -> type[Recommender]:
    """A model's class by its name; case, dashes and underscores do not matter.

    >>> model_class("item-knn").__name__
    'ItemKNN'
    """

    def plain(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "")

    for known, home in REGISTRY.items():
        if plain(known) == plain(name):
            found: type[Recommender] = getattr(importlib.import_module(home), known)
            return found
    raise ParameterError(f"there is no model {name!r}; there are {', '.join(REGISTRY)}")


def variant(name: str) -> tuple[type[Recommender], dict[str, Any]]:
    """A model's class, and the parameters that stand in its name after colons.

    >>> kind, own = variant("bpr:negatives=hard:10:factors=64")
    >>> kind.__name__, own
    ('BPR', {'negatives': 'hard:10', 'factors': 64})
    """
    model, *parts = name.split(":")
    kind = model_class(model.strip())
    settings = {}
    given: list[str] = []
    for part in parts:  # a value may have a colon in it: negatives=hard:10
        if "=" in part or not given:
            given.append(part)
        else:
            given[-1] += f":{part}"
    for each in given:
        parameter, equals, value = each.partition("=")
        if not equals:
            raise ParameterError(
                f"{name!r} is no model: after a colon comes name=value, as in 'NeuMF:objective=NBPO'"
            )
        settings[parameter.strip()] = value.strip()
    return kind, parse(kind, settings)


def build(name: str, parameters: Mapping[str, Any]) -> Recommender:
    """A model by its name, with those parameters in it and others that are stronger, all of them checked.

    >>> build("SoftmaxMF:factors=512", {"seed": "3"})
    SoftmaxMF(factors=512, seed=3)
    """
    kind, own = variant(name)
    return kind(**{**own, **parse(kind, dict(parameters))})


def variant_name(name: str) -> str:
    """The name of a model or of a variant of it, as it is spelled here.

    >>> variant_name("item-knn:neighbors=20")
    'ItemKNN:neighbors=20'
    """
    kind, own = variant(name)
    return ":".join([kind.__name__, *(f"{parameter}={value}" for parameter, value in own.items())])


def usual_models() -> list[str]:
    """Those that are run where none is named: not networks, which take long, nor what the presets are made of."""
    return [name for name, home in REGISTRY.items() if name != "MatrixFactorization" and ".deep." not in home]
