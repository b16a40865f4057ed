"""The recommenders, one a file, all under one contract, and the registry that finds them by name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from truelike.errors import ParameterError

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
