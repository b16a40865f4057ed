"""truelike: top-N recommendation that tells a dislike from a like that never got its chance.

    >>> import truelike as tl
    >>> log = tl.synthetic.World(n_users=200, n_items=100).log()
    >>> split = tl.split.by_user(log, validation=0.1, test=0.1, seed=0)
    >>> model = tl.ItemKNN(neighbors=50).fit(split.train)
    >>> model.recommend([0, 1], k=2).columns
    ['user_id', 'item_id', 'score', 'rank']

The public names stand here and nothing else; each is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from truelike._version import __version__

if TYPE_CHECKING:
    from truelike import errors, negatives, objectives
    from truelike.comparison.compare import compare
    from truelike.comparison.result import Comparison
    from truelike.data import sources as datasets
    from truelike.data import splits as split
    from truelike.data import synthetic
    from truelike.data.dataset import Dataset
    from truelike.data.describe import describe
    from truelike.data.filters import k_core
    from truelike.data.interactions import read
    from truelike.data.splits import Split
    from truelike.data.truth import Truth
    from truelike.evaluation.evaluate import Evaluation, evaluate
    from truelike.evaluation.significance import compare_means
    from truelike.models.deep.acf import ACF
    from truelike.models.deep.custom import DeepRecommender
    from truelike.models.deep.fm import FM
    from truelike.models.deep.lightgcn import LightGCN
    from truelike.models.deep.networks import Inputs
    from truelike.models.deep.neumf import NeuMF
    from truelike.models.default import recommender
    from truelike.models.ease import EASE, EDLAE
    from truelike.models.factorization import MatrixFactorization
    from truelike.models.ials import IALS
    from truelike.models.item_knn import ItemKNN
    from truelike.models.popularity import ItemPop
    from truelike.models.presets import BPO, BPR, NBPO, NBPR, WBPR, ExactBPO, ExactNBPO, ShiftMC, SoftmaxMF
    from truelike.models.recommender import Recommender
    from truelike.storage import load
    from truelike.tuning.search import tune

_HOME = {
    "ACF": "truelike.models.deep.acf",
    "BPO": "truelike.models.presets",
    "BPR": "truelike.models.presets",
    "EASE": "truelike.models.ease",
    "EDLAE": "truelike.models.ease",
    "Comparison": "truelike.comparison.result",
    "Dataset": "truelike.data.dataset",
    "DeepRecommender": "truelike.models.deep.custom",
    "Evaluation": "truelike.evaluation.evaluate",
    "ExactBPO": "truelike.models.presets",
    "ExactNBPO": "truelike.models.presets",
    "FM": "truelike.models.deep.fm",
    "IALS": "truelike.models.ials",
    "Inputs": "truelike.models.deep.networks",
    "ItemKNN": "truelike.models.item_knn",
    "ItemPop": "truelike.models.popularity",
    "LightGCN": "truelike.models.deep.lightgcn",
    "MatrixFactorization": "truelike.models.factorization",
    "NBPO": "truelike.models.presets",
    "NBPR": "truelike.models.presets",
    "NeuMF": "truelike.models.deep.neumf",
    "Recommender": "truelike.models.recommender",
    "ShiftMC": "truelike.models.presets",
    "SoftmaxMF": "truelike.models.presets",
    "Split": "truelike.data.splits",
    "Truth": "truelike.data.truth",
    "WBPR": "truelike.models.presets",
    "compare": "truelike.comparison.compare",
    "compare_means": "truelike.evaluation.significance",
    "describe": "truelike.data.describe",
    "evaluate": "truelike.evaluation.evaluate",
    "k_core": "truelike.data.filters",
    "load": "truelike.storage",
    "read": "truelike.data.interactions",
    "recommender": "truelike.models.default",
    "tune": "truelike.tuning.search",
}
_MODULES = {
    "negatives": "truelike.negatives",
    "objectives": "truelike.objectives",
    "datasets": "truelike.data.sources",
    "errors": "truelike.errors",
    "split": "truelike.data.splits",
    "synthetic": "truelike.data.synthetic",
}

__all__ = [
    "ACF",
    "BPO",
    "BPR",
    "EASE",
    "EDLAE",
    "FM",
    "IALS",
    "NBPO",
    "NBPR",
    "WBPR",
    "Comparison",
    "Dataset",
    "DeepRecommender",
    "Evaluation",
    "ExactBPO",
    "ExactNBPO",
    "Inputs",
    "ItemKNN",
    "ItemPop",
    "LightGCN",
    "MatrixFactorization",
    "NeuMF",
    "Recommender",
    "ShiftMC",
    "SoftmaxMF",
    "Split",
    "Truth",
    "__version__",
    "compare",
    "compare_means",
    "datasets",
    "describe",
    "errors",
    "evaluate",
    "k_core",
    "load",
    "negatives",
    "objectives",
    "read",
    "recommender",
    "split",
    "synthetic",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found: Any = importlib.import_module(_MODULES[name])
    elif name in _HOME:
        found = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'truelike' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
