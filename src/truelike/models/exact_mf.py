"""ExactMF: matrix factorization on all unobserved items, and its presets SoftmaxMF, ExactBPO and ExactNBPO."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from truelike import objectives
from truelike.core.parameters import choice, jobs, number, preset, special, whole_number, with_inherited_parameters
from truelike.data.dataset import Dataset
from truelike.engines.exact.engine import ExactEngine, ExactSettings
from truelike.engines.exact.items import SampledItems
from truelike.engines.regularization import EXACT_L2, learning_rate, noise_edge
from truelike.engines.spectral import add_spectrum
from truelike.engines.tables import Tables
from truelike.engines.weights import (
    SHORTEST_HALF_LIFE,
    HistoryCounts,
    counts_of_histories,
    interaction_weights,
)
from truelike.errors import ParameterError
from truelike.evaluation.metrics import is_metric_at_k
from truelike.models import objective_names
from truelike.models.factor_model import FactorModel, ObjectiveMF, table_attributes
from truelike.models.fold_in import AllItemsFoldIn
from truelike.models.label_noise import LabelNoise

POINTWISE_RATE, LISTWISE_RATE = 0.1, 0.045  # factors of the default learning rate
INIT_SCALE = 0.004  # standard deviation of what is added to the spectrum
ALL_PAIRS = 250_000_000  # pairs of user and item up to which every batch has all items by default
DRAWN_ITEMS = 4_000  # items that are drawn for a batch otherwise
SAMPLED_COST = 1.9  # of a pair in a sample of the items, as a multiple of one of all pairs
FLIPS = ("flip_factors", "flip_regularization")  # parameters of objectives with flips

SEARCH_SPACE: dict[str, Any] = {
    "factors": [64, 128, 256],
    "learning_rate": (0.005, 0.2),
    "regularization": (0.3, 40.0),
    "frequency_power": (0.4, 1.0),
}


@dataclass(kw_only=True, eq=False, repr=False)
class AllItemsMF(LabelNoise, FactorModel):
    """Base class of models that are trained on all items of each user: r_ui = U_u . V_i + b_i."""

    iterative: ClassVar[bool] = True
    frequency_power: float = field(default=0.75, init=False, repr=False)
    unobserved_weight: float = field(default=1.0, init=False, repr=False)

    @abstractmethod
    def _objective(self) -> type[objectives.Objective]:
        """The objective."""

    @final
    def _fold_in(self) -> AllItemsFoldIn:
        tables = self._tables()
        return AllItemsFoldIn(
            tables.item_factors,
            tables.item_bias,
            self._objective(),
            self._flips if self._has_flips else None,
            unobserved_weight=self.unobserved_weight,
            l2=self.regularization_,
            frequency_power=self.frequency_power,
            mean_interactions=float(self.train_.interactions_per_user().mean()),
        )


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class ExactMF(ObjectiveMF, AllItemsMF):
    """Matrix factorization r_ui = U_u . V_i + b_i, trained on all unobserved items instead of a sample.

    The cost of an epoch grows with users x items. SoftmaxMF, ExactBPO and ExactNBPO are presets.

    Parameters
    ----------
    objective : str or class, default 'softmax'
        "softmax", "BPO", "NBPO", "NBPO-s", "NBPO-o", "NBPO-lb", "ShiftMC" (with a flip rate of 0.1), or a Pointwise or
        Listwise class.
    factors : int, default 256
        The paper's K.
    flip_factors : int, default 32
        The paper's L, for objectives with flips.
    learning_rate : float or None, default None
        Learning rate of the first epoch. None: lower with more factors, and higher with more interactions of a user
        and an item; see `learning_rate_`. The rate falls linearly to zero over `epochs`.
    regularization : float or None, default None
        L2 of the row of a user with the mean number of interactions. None: in proportion to the noise that is
        expected in such data; see `regularization_` and `truelike.engines.regularization`.
    flip_regularization : float or None, default None
        L2 of the flip tables. None: as `regularization`.
    frequency_power : float, default 0.75
        The L2 of a row grows with its number of interactions to this power.
    unobserved_weight : float, default 1.0
        Weight of an unobserved item. Pointwise objectives only.
    batch_size : int, default 128
        Users in a batch.
    item_share : float or None, default None
        Below 1, each batch is trained on the positives of its users and on this share of all other items, drawn at
        random and weighted so that the expected gradient is the same. None: 1 up to 250 million pairs of user and
        item; beyond, such that about 4,000 items are drawn.

    Attributes
    ----------
    user_factors_, item_factors_, item_bias_, user_flips_, item_flips_
        The paper's U and V, the biases, and the paper's P and Q.
    regularization_, flip_regularization_, learning_rate_
        The values that were used.
    history_
        A frame with one row per epoch: epoch, seconds, loss and each validation metric.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> model = tl.ExactMF(objective="BPO", factors=8, epochs=3).fit(split.train)
    >>> model.item_bias_.shape, round(model.regularization_, 1)
    ((95,), 2.0)
    """

    uses: ClassVar[frozenset[str]] = frozenset({"times"})
    search_space: ClassVar[dict[str, Any]] = SEARCH_SPACE
    epochs_decide_rates: ClassVar[bool] = True

    objective: Any = special("softmax", objective_names.EXACT, objective_names.is_exact)
    factors: int = whole_number(256, low=1)
    flip_factors: int = whole_number(32, low=0)
    learning_rate: float | None = number(None, low=1e-9)
    regularization: float | None = number(None, low=0.0)
    flip_regularization: float | None = number(None, low=0.0)
    frequency_power: float = number(0.75, low=0.0, high=2.0)
    unobserved_weight: float = number(1.0, low=0.0)
    weighting: Literal["none", "log", "linear"] = choice("none", "log", "linear")
    recency: Literal["none", "user", "global"] = choice("none", "user", "global")
    half_life: float = number(0.5, low=SHORTEST_HALF_LIFE)
    batch_size: int = whole_number(128, low=1, high=2**31 - 1)
    item_share: float | None = number(None, low=1e-6, high=1.0)
    epochs: int = whole_number(20, low=0)
    metric: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    patience: int | None = whole_number(10, low=1, optional=True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()
    flip_rate: float = field(default=0.1, init=False, repr=False)  # of ShiftMC

    def _complete(self) -> None:
        self._check_objective("ExactMF")
        kind = objective_names.kind_of(self.objective)
        if issubclass(kind, objectives.Listwise) and self.unobserved_weight != 1:
            raise ParameterError(
                f"{self.name}: unobserved_weight is {self.unobserved_weight:g}; the listwise objective {kind.name} "
                "weights unobserved items itself, so it must be 1"
            )

    def _derived(self, train: Dataset) -> dict[str, float]:
        return {
            "learning_rate_": self._learning_rate(train),
            "regularization_": self._strength(train, self.regularization),
            "flip_regularization_": self._strength(train, self.flip_regularization),
        }

    def _advice(self) -> str:
        return (
            f"at regularization={self.regularization}, learning_rate={self.learning_rate} and "
            f"batch_size={self.batch_size} (None: by the data). Try a fifth of the learning_rate."
        )

    def _initial(self, train: Dataset, *, spectral: bool = True) -> Tables:
        tables = Tables.zeros(train.n_users, train.n_items, self.factors, self._trained_flips, biased=True)
        tables.initialise("spectral", INIT_SCALE, 0.0, self.seed)
        if spectral:
            add_spectrum(tables, train, self.seed, self.n_jobs)
        assert tables.item_bias is not None
        tables.item_bias[:] = np.log((train.popularity() + 1) / (train.n_users + 1))
        return tables

    def _engine(self, train: Dataset, tables: Tables) -> ExactEngine:
        settings = ExactSettings(
            learning_rate=self._learning_rate(train),
            epochs=self.epochs,
            regularization=self._strength(train, self.regularization),
            flip_regularization=self._strength(train, self.flip_regularization),
            frequency_power=self.frequency_power,
            unobserved_weight=self.unobserved_weight,
            batch_size=self.batch_size,
            item_share=self._item_share(train),
        )
        return ExactEngine(
            train,
            tables,
            self._objective(),
            settings,
            seed=self.seed,
            n_jobs=self.n_jobs,
            interaction_weights=interaction_weights(train, self.weighting, self.recency, self.half_life),
        )

    def _item_share(self, train: Dataset) -> float:
        if self.item_share is not None:
            return self.item_share
        return 1.0 if train.n_users * train.n_items <= ALL_PAIRS else min(0.25, DRAWN_ITEMS / train.n_items)

    def _expected_seconds(self, train: Dataset) -> float:
        share, n = self._item_share(train), train.n_items
        items = n if share == 1 else SampledItems(train, self.batch_size, share, self.seed).expected()
        seconds = (
            self.epochs * train.n_users * items * (6 * (self.factors + self._trained_flips) / 8.5e10 + 2.5e-9)
        )
        return seconds if share == 1 else SAMPLED_COST * seconds

    def _counting(self) -> HistoryCounts | None:
        return counts_of_histories(self.train_, self.weighting, self.recency, self.half_life)

    def _learning_rate(self, train: Dataset) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        return default_learning_rate(train, objective_names.kind_of(self.objective), self.factors)

    def _strength(self, train: Dataset, given: float | None) -> float:
        """The given regularization, otherwise one in proportion to the expected noise."""
        return given if given is not None else default_regularization(train)

    def _start_new_users(self, tables: Tables, train: Dataset, new: NDArray[np.integer]) -> None:
        """A user's row moves once an epoch and by little, so the rows of new users start at their fold-in."""
        scorer = self.with_learned(train, {**table_attributes(tables), **self._derived(train)})._make_scorer()
        for user in new:
            tables.user_factors[user] = scorer.history_vectors(scorer.counted(*train.history_of(int(user))))[0]


def default_learning_rate(train: Dataset, objective: type[objectives.Objective], factors: int) -> float:
    """The learning rate of the first epoch."""
    return (LISTWISE_RATE if issubclass(objective, objectives.Listwise) else POINTWISE_RATE) * learning_rate(
        train, factors
    )


def default_regularization(train: Dataset) -> float:
    """The L2 of the row of a user with the mean number of interactions.

    >>> import truelike as tl
    >>> round(default_regularization(tl.synthetic.World(n_users=200, n_items=100).dataset()), 1)
    2.2
    """
    return EXACT_L2 * float(train.interactions_per_user().mean()) * noise_edge(train)


@preset(objective="softmax", without=(*FLIPS, "unobserved_weight"))
class SoftmaxMF(ExactMF):
    """The softmax over all items: p(i | u) = exp(r_ui) / sum_j exp(r_uj).

    Examples
    --------
    >>> import truelike as tl
    >>> tl.SoftmaxMF(factors=64)
    SoftmaxMF(factors=64)
    """


@preset(objective="BPO", without=FLIPS)
class ExactBPO(ExactMF):
    """Equation 4 as written: the log likelihood of the observed labels over all items."""

    search_space: ClassVar[dict[str, Any]] = {**SEARCH_SPACE, "unobserved_weight": (0.05, 1.0)}


@preset(objective="NBPO-o")
class ExactNBPO(ExactMF):
    """Equation 6 as written: the log likelihood under label noise over all items.

    The flips are learned from interactions alone and have no meaning by themselves; they help to rank. Where it is
    known what was shown, `ImpressionMF` has probabilities.
    """

    search_space: ClassVar[dict[str, Any]] = {
        **SEARCH_SPACE,
        "unobserved_weight": (0.05, 1.0),
        "flip_factors": [0, 8, 32],
        "flip_regularization": (2.0, 60.0),
    }
