"""The experiments of the paper's Section 5: datasets, models, settings of release and text, the plan of all runs."""

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
UNTRAINED = (
    "did not train"  # the note of a contender that is not above ItemPop, and the verdict without another one
)
Setting = Literal["release", "text", "tuned", "tuned at 20", "defaults"]
SETTINGS: dict[Setting, str] = {
    "release": "the release's",
    "text": "the text's",
    "tuned": "tuned alike",
    "tuned at 20": "tuned alike by F1@20",
    "defaults": "truelike's defaults",
}
SEARCHES: dict[Setting, str] = {"tuned": METRIC, "tuned at 20": "f1@20"}  # the metric of each search


@dataclass(frozen=True)
class Contender:
    """A model of the paper, trained with the authors' recipe."""

    name: str  # in figures and tables
    model: str  # the class in truelike
    fixed: dict[str, Any] = field(default_factory=dict)  # parameters that define the model
    release: dict[str, dict[str, Any]] = field(default_factory=dict)  # the settings of the release, by dataset
    text: dict[str, dict[str, Any]] = field(default_factory=dict)  # the best settings of the text, by dataset
    like: str | None = None  # the contender whose tuned settings it takes; None: it is tuned itself

    @property
    def learns(self) -> bool:
        """Whether it is trained epoch by epoch, from a seed."""
        return self.model not in ("ItemPop", "ItemKNN")


def _at(rate: float, theta: float, phi: float | None = None, **more: Any) -> dict[str, Any]:
    flips = {} if phi is None else {"flip_regularization": phi}
    return {"learning_rate": rate, "regularization": theta, **flips, **more}


# The release has 4 negatives and 50 factors for all models, which are the recipe's values, and neither WBPR nor
# ShiftMC. The text names the best learning rate, regularization, rho, K and L of BPR, WBPR, ShiftMC and NBPO. It names
# none of BPO, which takes those of NBPO here. Nor does it name the flip rate of ShiftMC: it is 0.5 here.
_NBPO = {"amazon": _at(0.05, 1.0, 5.0), "movielens": _at(0.02, 0.5, 1.0)}
_NBPO_TEXT = {
    "amazon": _at(0.05, 1.0, 5.0, n_negatives=3, flip_factors=10),
    "movielens": _at(0.005, 0.5, 0.1, n_negatives=3, factors=200, flip_factors=500),
}
CONTENDERS = (
    Contender("ItemPop", "ItemPop"),
    Contender("ItemKNN", "ItemKNN", fixed={"shrinkage": 10.0}),  # as in the published tables
    Contender(
        "BPR",
        "BPR",
        release={"amazon": _at(0.05, 1.0), "movielens": _at(0.02, 1.0)},
        text={
            "amazon": _at(0.05, 1.0, n_negatives=2),
            "movielens": _at(0.005, 0.2, n_negatives=3, factors=200),
        },
    ),
    Contender(
        "WBPR",
        "WBPR",
        text={
            "amazon": _at(0.05, 1.0, n_negatives=4),
            "movielens": _at(0.005, 0.5, n_negatives=3, factors=200),
        },
    ),
    Contender(
        "ShiftMC",
        "ShiftMC",
        text={
            "amazon": _at(0.05, 1.0, n_negatives=3, flip_rate=0.5),
            "movielens": _at(0.005, 0.5, n_negatives=3, factors=200, flip_rate=0.5),
        },
    ),
    Contender(
        "BPO",
        "BPO",
        release={"amazon": _at(0.05, 1.0), "movielens": _at(0.01, 1.0)},
        text={
            "amazon": _at(0.05, 1.0, n_negatives=3),
            "movielens": _at(0.005, 0.5, n_negatives=3, factors=200),
        },
    ),
    Contender("NBPO", "NBPO", release=_NBPO, text=_NBPO_TEXT),
    Contender("NBPO, L = 0", "NBPO", {"flip_factors": 0}, release=_NBPO, text=_NBPO_TEXT, like="NBPO"),
    Contender(
        "NBPO-o",
        "SampledMF",
        {"objective": "NBPO-o"},
        release={"amazon": _at(0.005, 1.0, 0.5), "movielens": _at(0.001, 1.0, 5.0)},
    ),
    Contender(
        "NBPO-s",
        "SampledMF",
        {"objective": "NBPO-s"},
        release={"amazon": _at(0.002, 0.05, 0.01), "movielens": _at(0.002, 0.05, 0.02)},
    ),
    # Equation 7 separates the tables, so that its preference tables do not depend on its flip tables: it has none here.
    Contender("NBPO-lb", "SampledMF", {"objective": "NBPO-lb", "flip_factors": 0}),
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
    retuned: tuple[str, ...] = ("BPR", "BPO", "NBPO")  # the contenders that are tuned by F1@20, too
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
        retuned=(),
        why="an epoch takes half a second: whole grids of 200 epochs, curves with more seeds, and a second search by "
        "F1@20 would take days",
    ),
}
QUICK = {
    "amazon": Plan("amazon", seeds=3, curve_seeds=1, epochs=60, patience=15, rungs=(1 / 3, 1.0), quick=True),
    "movielens": Plan(
        "movielens", seeds=2, curve_seeds=1, epochs=9, patience=5, rungs=(1 / 3, 1.0), quick=True, retuned=()
    ),
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
