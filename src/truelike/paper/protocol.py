"""The experiments of the paper's Section 5: datasets, models, the authors' settings, and the plan of all runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from truelike.data.splits import Split

METRIC = "f1@2"  # the metric of the paper's search
KS = (2, 5, 10, 20)
SEEDS = 10
FACTORS = (10, 20, 50, 100, 200)
NEGATIVES = (1, 2, 3, 4, 5, 6, 7)
FLIP_FACTORS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)
Setting = Literal["authors", "tuned"]
SETTINGS: dict[Setting, str] = {"authors": "the authors'", "tuned": "tuned alike"}


@dataclass(frozen=True)
class Contender:
    """A model of the paper, trained with the authors' recipe."""

    name: str  # in figures and tables
    model: str  # the class in truelike
    fixed: dict[str, Any] = field(default_factory=dict)  # parameters that define the model
    release: dict[str, dict[str, Any]] = field(default_factory=dict)  # the authors' settings, by dataset
    like: str | None = None  # the contender whose tuned settings it takes; None: it is tuned itself

    @property
    def learns(self) -> bool:
        """Whether it is trained epoch by epoch, from a seed."""
        return self.model not in ("ItemPop", "ItemKNN")


def _release(rate: float, theta: float, phi: float | None = None, **more: Any) -> dict[str, Any]:
    flips = {} if phi is None else {"flip_regularization": phi}
    return {"learning_rate": rate, "regularization": theta, **flips, **more}


# Learning rates and regularization of BPR, BPO, NBPO, NBPO-o and NBPO-s are those of the authors' release. Those
# of WBPR and ShiftMC are the best ones of the paper's text. rho is that of the text where it names one; the
# release has 4 for all models. Neither names the flip rate of ShiftMC: it is 0.5 here.
_NBPO = {"amazon": _release(0.05, 1.0, 5.0, n_negatives=3), "movielens": _release(0.02, 0.5, 1.0, n_negatives=3)}
CONTENDERS = (
    Contender("ItemPop", "ItemPop"),
    Contender("ItemKNN", "ItemKNN", fixed={"shrinkage": 10.0}),  # as in the published tables
    Contender(
        "BPR",
        "BPR",
        release={"amazon": _release(0.05, 1.0, n_negatives=2), "movielens": _release(0.02, 1.0, n_negatives=3)},
    ),
    Contender(
        "WBPR",
        "WBPR",
        release={"amazon": _release(0.05, 1.0, n_negatives=4), "movielens": _release(0.005, 0.5, n_negatives=3)},
    ),
    Contender(
        "ShiftMC",
        "ShiftMC",
        release={
            "amazon": _release(0.05, 1.0, n_negatives=3, flip_rate=0.5),
            "movielens": _release(0.005, 0.5, n_negatives=3, flip_rate=0.5),
        },
    ),
    Contender("BPO", "BPO", release={"amazon": _release(0.05, 1.0), "movielens": _release(0.01, 1.0)}),
    Contender("NBPO", "NBPO", release=_NBPO),
    Contender("NBPO, L = 0", "NBPO", {"flip_factors": 0}, release=_NBPO, like="NBPO"),
    Contender(
        "NBPO-o",
        "SampledMF",
        {"objective": "NBPO-o"},
        release={"amazon": _release(0.005, 1.0, 0.5), "movielens": _release(0.001, 1.0, 5.0)},
    ),
    Contender(
        "NBPO-s",
        "SampledMF",
        {"objective": "NBPO-s"},
        release={"amazon": _release(0.002, 0.05, 0.01), "movielens": _release(0.002, 0.05, 0.02)},
    ),
)
BY_NAME = {contender.name: contender for contender in CONTENDERS}
COMPARED = ("BPR", "WBPR", "ShiftMC", "BPO", "NBPO")  # the models of Figures 4 and 5, which vary K and rho


@dataclass(frozen=True)
class Plan:
    """The size of the experiments on one dataset."""

    data: str  # "amazon", "movielens" or "world"
    seeds: int = SEEDS  # of the runs that are evaluated on the test part
    curve_seeds: int = SEEDS  # of the curves over K, rho and L
    epochs: int = 200  # of a full run
    patience: int | None = None  # epochs without improvement after which a run stops
    rungs: tuple[float, ...] = (1.0,)  # shares of the epochs at which the grids are reduced (successive halving)
    quick: bool = False  # fewer seeds and epochs, smaller grids
    why: str = ""  # the reason why it differs from the paper's

    @property
    def base(self) -> dict[str, Any]:
        """The parameters of all contenders that are trained epoch by epoch."""
        return {"recipe": "paper", "epochs": self.epochs, "patience": self.patience, "metric": METRIC}


FULL = {
    "amazon": Plan(
        "amazon", curve_seeds=5, why="the curves have fewer seeds, so that all runs take about an hour"
    ),
    "movielens": Plan(
        "movielens",
        curve_seeds=1,
        patience=20,
        rungs=(1 / 9, 1 / 3, 1.0),
        why="an epoch takes half a second: whole grids of 200 epochs, and curves with more seeds, would take days",
    ),
}
QUICK = {
    "amazon": Plan("amazon", seeds=3, curve_seeds=1, epochs=60, patience=15, rungs=(1 / 3, 1.0), quick=True),
    "movielens": Plan("movielens", seeds=2, curve_seeds=1, epochs=9, patience=5, rungs=(1 / 3, 1.0), quick=True),
    "world": Plan("world", seeds=3, curve_seeds=1, epochs=60, patience=15, rungs=(1 / 3, 1.0), quick=True),
}
SOURCES = {"amazon": "amazon-electronics-14core", "movielens": "ml-1m-split"}  # names in tl.datasets
TITLES = {"amazon": "Amazon", "movielens": "MovieLens", "world": "Synthetic world"}


def load(data: str) -> Split:
    """Load the split of a dataset of the paper."""
    import truelike as tl

    if data in SOURCES:
        split = tl.datasets.load(SOURCES[data])
        assert isinstance(split, tl.Split)
        return split
    return tl.splits.by_user(tl.synthetic.World(n_users=800, n_items=400).dataset(), seed=0)
