"""SampledMF: matrix factorization on positives and sampled negatives, and its presets BPR ... NBPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

from truelike import negatives as sampling
from truelike.cluster import Cluster
from truelike.core.parameters import (
    changed,
    choice,
    jobs,
    number,
    preset,
    special,
    whole_number,
    with_inherited_parameters,
)
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.protocol import Interactions
from truelike.engines.blocks.sgd import StratifiedEngine
from truelike.engines.blocks.workers import allocator
from truelike.engines.engine import Engine
from truelike.engines.regularization import lift
from truelike.engines.sgd.engine import SampledEngine
from truelike.engines.sgd.samples import SGDSettings
from truelike.engines.tables import Tables
from truelike.engines.weights import HistoryCounts, counts_of_histories, interaction_weights
from truelike.errors import ParameterError
from truelike.evaluation.metrics import is_metric_at_k
from truelike.models import objective_names
from truelike.models.factor_model import ObjectiveMF, TableFlips
from truelike.models.fold_in import SampledFoldIn

FLIPS = ("flip_factors", "flip_regularization")  # parameters of objectives that learn flips
FLIP_RATE = number(0.1, low=0.0, high=0.99)
INIT_SCALE = 0.1  # standard deviation of the initialization
# The recipe of the paper's authors, from their release.
PAPER: dict[str, Any] = {
    "factors": 50,
    "flip_factors": 50,
    "learning_rate": 0.05,
    "decay": 0.99,
    "regularization": 1.0,
    "flip_regularization": 5.0,
    "n_negatives": 4,
    "batch_size": 5_000,
    "order": "file",
    "init": "paper",
    "epochs": 200,
    "patience": None,
}


# The default regularization is a x n_negatives, times (USUAL_LIFT / lift)^b on data with a larger lift (see `lift`),
# with (a, b) by the name of the objective. BPR on popular negatives is WBPR.
REGULARIZATION = {
    "BPR": (8 / 3, 1.5),
    "WBPR": (25 / 8, 1.5),
    "NBPR": (8 / 3, 1.5),
    "BPO": (25 / 8, 1.0),
    "ShiftMC": (25 / 3, 1.0),
}
OTHER_REGULARIZATION = (15 / 8, 1.0)
USUAL_LIFT = 1.25


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class SampledMF(ObjectiveMF):
    """Matrix factorization r_ui = U_u . V_i, trained by SGD on positives and a few sampled negatives for each.

    The objective and the sampling distribution of the negatives are independent choices. BPR, WBPR, NBPR, ShiftMC,
    BPO and NBPO are presets.

    With `weighting`, the step of a positive is multiplied by how much the interaction counts, with mean 1: for a
    pointwise objective the step of the positive alone, for a pairwise one that of each pair of it and a negative.

    Parameters
    ----------
    objective : str or class, default 'NBPO'
        "BPO", "BPR", "NBPO", "NBPO-s", "NBPO-o", "NBPO-lb", "ShiftMC", "NBPR", or a Pointwise or Pairwise class. The
        flip rate of ShiftMC and NBPR is 0.1; the presets have it as a parameter.
    negatives : str or Negatives, default 'uniform'
        The sampler: "uniform", "popularity", "popularity^0.5", "hard", "hard:10", "ahns", or an object of a subclass
        of Negatives.
    recipe : {'default', 'paper'}, default 'default'
        "paper" sets every parameter that is not given to the value of the authors' release, and the L2 term counts in
        full at every batch, as it does there. By default it counts once per pass over the data, as in Equation 4.
    factors : int, default 64
        The paper's K.
    flip_factors : int, default 32
        The paper's L, for objectives with flips. With 0, NBPO has no flip tables (Equation 11).
    learning_rate : float, default 0.02
        Epoch e (from 0) runs at learning_rate x decay^(e + 1).
    decay : float, default 0.98
        Decay of the learning rate.
    regularization : float or None, default None
        The paper's lambda of Theta: L2 of the preference tables. None: in proportion to `n_negatives`, and less on
        data whose users and items form small groups. See `regularization_`.
    flip_regularization : float, default 2.0
        The paper's lambda of Phi: L2 of the flip tables.
    n_negatives : int, default 8
        The paper's rho: negatives for each positive. A positive counts once for each of them.
    batch_size : int, default 8000
        Positives in a batch.
    order : {'blocks', 'shuffled', 'file'}, default 'blocks'
        Order of the positives in an epoch. "blocks": random blocks of up to 32 positives of a user, in random order;
        a user's row moves several times in a batch. "shuffled": random. "file": user by user.
    init : {'normal', 'spectral', 'paper'}, default 'normal'
        "normal" with mean zero and standard deviation 0.1; "spectral" adds the singular vectors of the
        interactions; "paper" is the authors' positive initialization.

    Attributes
    ----------
    user_factors_, item_factors_, user_flips_, item_flips_
        The paper's U, V, P, Q.
    regularization_
        The L2 of the preference tables that was used.
    history_
        A frame with one row per epoch: epoch, seconds, loss and each validation metric.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> model = tl.SampledMF(objective="BPO", factors=8, epochs=3).fit(split.train)
    >>> model.user_factors_.shape[1], model.history_.columns
    (8, ['epoch', 'seconds', 'loss'])
    """

    trains_on_blocks: ClassVar[bool] = True
    search_space: ClassVar[dict[str, Any]] = {
        "factors": [32, 64, 128],
        "flip_factors": [0, 16, 32, 64],
        "learning_rate": (0.005, 0.2),
        "regularization": (0.2, 100.0),
        "flip_regularization": (0.1, 20.0),
        "n_negatives": (1, 16),
    }
    saved_figures: ClassVar[tuple[str, ...]] = ("regularization",)

    objective: Any = special("NBPO", objective_names.SAMPLED, objective_names.is_sampled)
    negatives: Any = special("uniform", sampling.NAMES, sampling.is_distribution)
    recipe: Literal["default", "paper"] = choice("default", "paper")
    factors: int = whole_number(64, low=1)
    flip_factors: int = whole_number(32, low=0)
    learning_rate: float = number(0.02, low=1e-9)
    decay: float = number(0.98, low=1e-6, high=1.0)
    regularization: float | None = number(None, low=0.0)
    flip_regularization: float = number(2.0, low=0.0)
    n_negatives: int = whole_number(8, low=1)
    batch_size: int = whole_number(8_000, low=1, high=2**31 - 1)
    order: Literal["blocks", "shuffled", "file"] = choice("blocks", "shuffled", "file")
    init: Literal["normal", "spectral", "paper"] = choice("normal", "spectral", "paper")
    weighting: Literal["none", "log", "linear"] = choice("none", "log", "linear")
    epochs: int = whole_number(100, low=0)
    metric: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    patience: int | None = whole_number(10, low=1, optional=True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()
    # a parameter of ShiftMC and NBPR alone
    flip_rate: float = field(default=0.1, init=False, repr=False, metadata=dict(FLIP_RATE.metadata))

    def _complete(self) -> None:
        self._check_objective("SampledMF")
        if self.recipe == "paper":
            for name, value in PAPER.items():
                if name not in self.given:
                    setattr(self, name, value)

    def _shown_parameters(self) -> dict[str, Any]:
        implied = PAPER.items() if self.recipe == "paper" else ()
        return {name: value for name, value in changed(self).items() if (name, value) not in implied}

    def _check_changes(self, given: Mapping[str, Any]) -> None:
        if given.get("recipe", self.recipe) != self.recipe:
            raise ParameterError(
                "recipe sets the values of the other parameters when a model is constructed, and cannot be changed "
                f"later. Use {self.name}(recipe={given['recipe']!r})."
            )

    def _derived(self, train: Dataset) -> dict[str, float]:
        return {"regularization_": self._strength(train)}

    def _strength(self, train: Interactions) -> float:
        """The given regularization, otherwise one that is weaker the more groups of users and items stand out."""
        if self.regularization is not None:
            return self.regularization
        name = self._objective().name
        name = "WBPR" if name == "BPR" and self.negatives == "popularity" else name
        scale, power = REGULARIZATION.get(name, OTHER_REGULARIZATION)
        return float(scale * self.n_negatives * min(1.0, USUAL_LIFT / lift(train)) ** power)

    def _advice(self) -> str:
        return (
            f"at learning_rate={self.learning_rate:g} and batch_size={self.batch_size}. "
            f"Try learning_rate={self.learning_rate / 5:g}, or a smaller batch_size."
        )

    def _initial(self, train: Dataset, *, spectral: bool = True) -> Tables:
        shape = (train.n_users, train.n_items, self.factors, self._trained_flips)
        tables = Tables.zeros(*shape, allocate=allocator(train))
        tables.initialise(self.init, INIT_SCALE, 0.0, self.seed)
        if spectral and self.init == "spectral":
            from truelike.engines.spectral import add_spectrum

            add_spectrum(tables, train, self.seed, self.n_jobs)
        return tables

    def _expected_seconds(self, train: Dataset) -> float:
        width = self.factors + self._trained_flips
        candidates = self.n_negatives * sampling.parse(self.negatives).draws
        return self.epochs * train.n_interactions * candidates * width * 1.2e-9

    def _check_blocks(self, train: Blocks) -> None:
        if self.init == "spectral":
            raise ParameterError(
                f'init is "spectral", which needs all interactions in memory, and {train!r} has them in several '
                'blocks. Use init="normal", or one block.'
            )
        if self.weighting != "none":
            raise ParameterError(
                f"weighting is {self.weighting!r}, and {self.name} does not count weights of {len(train)} blocks. Use "
                'weighting="none", or one block. IALS counts them.'
            )
        if self.order == "file":
            raise ParameterError(
                f'order is "file"; {len(train)} blocks are trained at the same time, so there is no such order. Use '
                'order="blocks", or one block.'
            )

    def _settings(self, train: Interactions) -> SGDSettings:
        return SGDSettings(
            learning_rate=self.learning_rate,
            decay=self.decay,
            regularization=self._strength(train),
            flip_regularization=self.flip_regularization,
            l2_schedule=self._l2_schedule,
            n_negatives=self.n_negatives,
            batch_size=self.batch_size,
            order=self.order,
        )

    def _engine(self, train: Dataset, tables: Tables) -> Engine:
        how = self._objective(), sampling.parse(self.negatives), self._settings(train)
        counts = interaction_weights(train, self.weighting)
        return SampledEngine(train, tables, *how, seed=self.seed, n_jobs=self.n_jobs, interaction_weights=counts)

    def _block_engine(self, train: Blocks, tables: Tables, cluster: Cluster | None) -> Engine:
        how = self._objective(), sampling.parse(self.negatives), self._settings(train)
        return StratifiedEngine(train, tables, *how, seed=self.seed, cluster=cluster, n_jobs=self.n_jobs)

    @property
    def _l2_schedule(self) -> Literal["epoch", "batch"]:
        return "batch" if self.recipe == "paper" else "epoch"

    def _counting(self) -> HistoryCounts | None:
        return counts_of_histories(self.train_, self.weighting)

    def _fold_in(self) -> SampledFoldIn:
        tables, popularity = self._tables(), self.train_.popularity()
        batches = max(1, -(-self.train_.n_interactions // self.batch_size))
        return SampledFoldIn(
            tables.item_factors,
            tables.item_bias,
            self._objective(),
            TableFlips(tables) if tables.flip_factors else None,
            partial(sampling.parse(self.negatives).probabilities, popularity),
            n_negatives=self.n_negatives,
            weight=float(self.n_negatives),
            l2=self.regularization_ * (1 if self._l2_schedule == "epoch" else batches),
        )


@preset(objective="BPR", factors=100, learning_rate=0.05, n_negatives=3, without=FLIPS)
class BPR(SampledMF):
    """Bayesian Personalized Ranking (Rendle et al., UAI 2009): a positive above a uniformly sampled negative.

    Examples
    --------
    >>> import truelike as tl
    >>> tl.BPR(factors=64)
    BPR(factors=64)
    """


@preset(objective="BPR", negatives="popularity", without=FLIPS)
class WBPR(SampledMF):
    """BPR with negatives sampled in proportion to popularity (Gantner et al., KDD Cup 2011)."""


@preset(objective="NBPR", flip_rate=0.1, factors=100, learning_rate=0.05, n_negatives=3, without=FLIPS)
class NBPR(SampledMF):
    """BPR whose pairs are weighted by the posterior that the negative is truly disliked, at a constant flip rate."""

    search_space: ClassVar[dict[str, Any]] = {**SampledMF.search_space, "flip_rate": (0.0, 0.9)}


@preset(objective="ShiftMC", flip_rate=0.1, factors=100, learning_rate=0.01, n_negatives=3, without=FLIPS)
class ShiftMC(SampledMF):
    """Shifted matrix completion (Hsieh, Natarajan and Dhillon, ICML 2015): squared loss, constant flip rate."""

    search_space: ClassVar[dict[str, Any]] = {**SampledMF.search_space, "flip_rate": (0.0, 0.9)}


@preset(objective="BPO", factors=100, without=FLIPS)
class BPO(SampledMF):
    """Bayesian Point-wise Optimization, the paper's Equation 4: the log likelihood of the observed labels."""


@preset(objective="NBPO")
class NBPO(SampledMF):
    """Noisy-label robust BPO, the paper's method (Equations 8 and 9): learns likes and flips together."""
