"""ExactMF: matrix factorization on all unobserved items, and its presets SoftmaxMF, ExactBPO and ExactNBPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from truelike import objectives
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.errors import ParameterError
from truelike.evaluation.metrics import is_metric_at_k
from truelike.models import objective_names
from truelike.models.base import Floats
from truelike.models.calibrating import Calibrated, calibrated_fit
from truelike.models.factor_model import (
    FactorModel,
    extended_tables,
    learned_tables,
    restored_tables,
    scores_of_pairs,
    table_attributes,
)
from truelike.models.fold_in import fold_in_all, rows_of
from truelike.models.known_exposure import Known, basis_of, exposure_name, known_attributes, known_exposure
from truelike.models.label_noise import LabelNoise
from truelike.models.left_out import AllItems
from truelike.parameters import choice, flag, jobs, number, preset, special, whole_number
from truelike.ranking.factor_ranker import factor_score_block
from truelike.training.exact.engine import ExactEngine, ExactSettings
from truelike.training.exact.items import SampledItems
from truelike.training.exposure import names as exposures
from truelike.training.exposure.rates import ExposureRates
from truelike.training.loop import Result, Training, continue_epochs, fit_epochs
from truelike.training.options import FitOptions
from truelike.training.probability_map import ProbabilityMap
from truelike.training.regularization import EXACT_L2, learning_rate, noise_edge
from truelike.training.shown_pairs import ShownPairs
from truelike.training.spectral import add_spectrum
from truelike.training.tables import Tables
from truelike.training.weights import SHORTEST_HALF_LIFE, interaction_weights

POINTWISE_RATE, LISTWISE_RATE = 0.1, 0.045  # factors of the default learning rate
ALL_PAIRS = 250_000_000  # pairs of user and item up to which every batch has all items by default
DRAWN_ITEMS = 4_000  # items that are drawn for a batch otherwise
MOST_TAKEN = 0.95  # the largest share of those who saw an item that its bias starts at
SAMPLED_COST = 1.9  # of a pair in a sample of the items, as a multiple of one of all pairs

# parameters of objectives with flips
FLIPS = ("flip_factors", "flip_regularization", "flip_start", "flip_rate", "exposure", "miss_rate", "calibrate")

SEARCH_SPACE: dict[str, Any] = {
    "factors": [64, 128, 256],
    "learning_rate": (0.005, 0.2),
    "regularization": (0.3, 40.0),
    "frequency_power": (0.4, 1.0),
}


@dataclass(kw_only=True, eq=False, repr=False)
class ExactMF(LabelNoise, FactorModel):
    """Matrix factorization r_ui = U_u . V_i + b_i, trained on all unobserved items instead of a sample.

    The cost of an epoch grows with users x items. SoftmaxMF, ExactBPO and ExactNBPO are presets.

    Parameters
    ----------
    objective : str or class, default 'softmax'
        "softmax", "BPO", "NBPO", "NBPO-s", "NBPO-o", "ShiftMC", or a Pointwise or Listwise class.
    factors : int, default 256
        The paper's K.
    flip_factors : int, default 32
        The paper's L, for objectives with flips and without impressions.
    learning_rate : float or None, default None
        Learning rate of the first epoch. None: lower with more factors, and higher with more interactions of a user
        and an item; see `learning_rate_`.
    decay : float or None, default None
        Epoch e (from 0) runs at learning_rate x decay^e. None: the rate falls linearly to zero over `epochs`.
    regularization : float or None, default None
        L2 of the row of a user with the mean number of interactions. None: in proportion to the noise that is
        expected in such data; see `regularization_` and `truelike.training.regularization`.
    flip_regularization : float or None, default None
        L2 of the flip tables. None: as `regularization`.
    optimizer : {'adam', 'sgd'}, default 'adam'
        The optimizer.
    item_bias : bool, default True
        Whether items have a bias b_i.
    frequency_power : float, default 0.75
        The L2 of a row grows with its number of interactions to this power.
    unobserved_weight : float, default 1.0
        Weight of an unobserved item. Pointwise objectives only.
    weighting : {'none', 'log', 'linear'}, default 'none'
        How the weight of a pair counts, which is the number of its rows or the sum of their weights: not at all, as
        log(1 + weight), or as it is.
    recency : {'none', 'user', 'global'}, default 'none'
        Whether new interactions count more than old ones; see `IALS`.
    half_life : float, default 0.5
        The age at which an interaction counts half.
    batch_size : int, default 128
        Users in a batch.
    init : {'spectral', 'normal'}, default 'spectral'
        "normal" with mean zero and standard deviation `init_scale`; "spectral" adds the singular vectors of the
        interactions.
    init_scale : float, default 0.004
        Standard deviation of the initialization.
    flip_start : float, default 0.0
        Initial flip logit g.
    flip_rate : float, default 0.1
        The constant flip rate of ShiftMC.
    exposure : str or None, default None
        Where p(shown) of a pair comes from without impressions, for objectives that use it: "learned" (NBPO's flips),
        "item" (a flip per item, as in ExpoMF), "none" (everything was shown), "popularity^0.5" (Rel-MF) or
        "structured" (user activity and item visibility). None: "learned" for NBPO, "popularity^0.5" for Rel-MF and
        MF-DU.
    miss_rate : float or None, default None
        With impressions: the probability that a user misses a liked item when it is shown once. None: it is estimated
        where the impressions have positions, or times of repeated showings, and 0 otherwise.
    calibrate : bool, default True
        With impressions: whether `like_probability` is calibrated. A tenth of the shown pairs, at most 200,000, is held
        out for it; if that is more than a hundredth of them, the model is then trained again on all. See
        `calibration_`.
    item_share : float or None, default None
        Below 1, each batch is trained on the positives of its users and on this share of all other items, drawn at
        random and weighted so that the expected gradient is the same. None: 1 up to 250 million pairs of user and
        item; beyond, such that about 4,000 items are drawn.
    epochs : int, default 20
        Maximum number of epochs.
    metric : str, default 'ndcg@20'
        Validation metric whose best epoch is kept.
    patience : int or None, default 10
        Stop after this many epochs without a better one; None: never. Training never stops before it ranks better
        than item popularity.
    seed : int, default 0
        Seed. It alone decides the result.
    n_jobs : int or None, default -1
        Number of threads; -1: all cores. Never changes the result.

    Attributes
    ----------
    user_factors_, item_factors_, item_bias_, user_flips_, item_flips_
        The paper's U and V, the biases, and the paper's P and Q.
    regularization_, flip_regularization_, learning_rate_
        The values that were used.
    calibration_, miss_rate_
        After a fit with impressions, the map from scores to probabilities, and the miss rate that was used, or one for
        each position.
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

    iterative: ClassVar[bool] = True
    search_space: ClassVar[dict[str, Any]] = SEARCH_SPACE
    _only_objective: ClassVar[str | None] = None  # set by `preset`: a preset is its objective

    objective: Any = special("softmax", objective_names.EXACT, objective_names.is_exact)
    factors: int = whole_number(256, low=1)
    flip_factors: int = whole_number(32, low=0)
    learning_rate: float | None = number(None, low=1e-9)
    decay: float | None = number(None, low=1e-6, high=1.0)
    regularization: float | None = number(None, low=0.0)
    flip_regularization: float | None = number(None, low=0.0)
    optimizer: Literal["adam", "sgd"] = choice("adam", "sgd")
    item_bias: bool = flag(True)
    frequency_power: float = number(0.75, low=0.0, high=2.0)
    unobserved_weight: float = number(1.0, low=0.0)
    weighting: Literal["none", "log", "linear"] = choice("none", "log", "linear")
    recency: Literal["none", "user", "global"] = choice("none", "user", "global")
    half_life: float = number(0.5, low=SHORTEST_HALF_LIFE)
    batch_size: int = whole_number(128, low=1, high=2**31 - 1)
    item_share: float | None = number(None, low=1e-6, high=1.0)
    init: Literal["spectral", "normal"] = choice("spectral", "normal")
    init_scale: float = number(0.004, low=0.0)
    flip_start: float = number(0.0, low=-20.0, high=20.0)
    flip_rate: float = number(0.1, low=0.0, high=0.99)
    exposure: Any = special(None, f"None, {exposures.NAMES}", exposures.is_optional_exposure)
    miss_rate: float | None = number(None, low=0.0, high=0.99)
    calibrate: bool = flag(True)
    epochs: int = whole_number(20, low=0)
    metric: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    patience: int | None = whole_number(10, low=1, optional=True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def __post_init__(self) -> None:
        super().__post_init__()
        objective_names.check_preset(self, "ExactMF")
        kind = objective_names.kind_of(self.objective)
        if issubclass(kind, objectives.Listwise) and self.unobserved_weight != 1:
            raise ParameterError(
                f"{self.name}: unobserved_weight is {self.unobserved_weight:g}; the listwise objective {kind.name} "
                "weights unobserved items itself, so it must be 1"
            )

    @property
    def takes_impressions(self) -> bool:  # type: ignore[override]
        """Whether `fit` uses impressions: for objectives with flips or propensities."""
        kind = objective_names.kind_of(self.objective)
        return kind.uses_flips or kind.uses_exposure

    def _objective(self) -> type[objectives.Objective]:
        return objective_names.objective(self.objective, self.flip_rate)

    def _saved_parameters(self) -> dict[str, Any]:
        return {**self.get_params(), "objective": objective_names.saved_name(self.objective)}

    # --- learning -------------------------------------------------------------------------------

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        known = known_exposure(self, train, options)

        def run(pairs: Any, data: Dataset, how: FitOptions) -> Result[Tables]:
            return fit_epochs(self._training(pairs), data, how)

        found = Calibrated(None, None)
        if isinstance(known, ShownPairs) and self.calibrate:
            found = calibrated_fit(known, train, options, seed=self.seed, run=run, scores=scores_of_pairs)
        result = found.result or run(known, train, options)
        derived = {**self._derived(train, known), "calibration_": found.probability}
        return {**learned_tables(result, train), **derived}

    def _derived(self, train: Dataset, known: Known | None) -> dict[str, Any]:
        return {
            **known_attributes(known),
            "learning_rate_": self._learning_rate(train),
            "regularization_": self._strength(train, self.regularization),
            "flip_regularization_": self._strength(train, self.flip_regularization),
        }

    def _training(self, known: ShownPairs | ExposureRates | None) -> Training[Tables]:
        def ranker(train: Dataset, tables: Tables) -> ExactMF:
            return self._fitted(train, {**table_attributes(tables), **self._derived(train, known)})

        impressions = {} if known is None else {"impressions": known.digest()}
        schedule = {} if self.decay is not None else {"schedule": self.epochs}  # it decides the rates
        return Training.of(
            self,
            initial=lambda train: self._initial(train, known, self.flip_factors),
            engine=lambda train, tables: self._engine(train, tables, known),
            ranker=ranker,
            identity={"class": type(self).__name__, **self._saved_parameters(), **impressions, **schedule},
            advice=(
                f"at regularization={self.regularization}, learning_rate={self.learning_rate} and "
                f"batch_size={self.batch_size} (None: by the data). Try a fifth of the learning_rate."
            ),
        )

    def _initial(
        self, train: Dataset, known: ShownPairs | ExposureRates | None, flip_factors: int, *, spectral: bool = True
    ) -> Tables:
        uses_flips = objective_names.kind_of(self.objective).uses_flips
        width = flip_factors if uses_flips and known is None else 0
        by_item = bool(width) and exposure_name(self) == "item"
        tables = Tables.zeros(
            train.n_users,
            train.n_items,
            self.factors,
            1 if by_item else width,
            biased=self.item_bias,
            biased_flips=by_item or self.item_bias,
        )
        tables.initialise(self.init, self.init_scale, self.flip_start, self.seed)
        if by_item:  # at zero they do not move, and the flips are biases of the items
            tables.user_flips[:], tables.item_flips[:] = 0.0, 0.0
            assert tables.flip_bias is not None
            tables.flip_bias[:] = self.flip_start
        if self.init == "spectral" and spectral:
            add_spectrum(tables, train, self.seed, self.n_jobs)
        if tables.item_bias is not None:
            tables.item_bias[:] = _first_biases(train, known)
        return tables

    def _engine(self, train: Dataset, tables: Tables, known: ShownPairs | ExposureRates | None) -> ExactEngine:
        settings = {f.name: getattr(self, f.name) for f in fields(ExactSettings)}
        settings["learning_rate"] = self._learning_rate(train)
        settings["item_share"] = self._item_share(train)
        settings["regularization"] = self._strength(train, self.regularization)
        settings["flip_regularization"] = self._strength(train, self.flip_regularization)
        return ExactEngine(
            train,
            tables,
            self._objective(),
            ExactSettings(**settings),
            seed=self.seed,
            n_jobs=self.n_jobs,
            flips=known,
            interaction_weights=interaction_weights(train, self.weighting, self.recency, self.half_life),
        )

    def _item_share(self, train: Dataset) -> float:
        if self.item_share is not None:
            return self.item_share
        return 1.0 if train.n_users * train.n_items <= ALL_PAIRS else min(0.25, DRAWN_ITEMS / train.n_items)

    def _expected_seconds(self, train: Dataset) -> float:
        share, n = self._item_share(train), train.n_items
        items = n if share == 1 else SampledItems(train, self.batch_size, share, self.seed).expected()
        width = self.factors + (self.flip_factors if self._has_flips else 0)
        seconds = self.epochs * train.n_users * items * (6 * width / 8.5e10 + 2.5e-9)
        return seconds if share == 1 else SAMPLED_COST * seconds

    def _counts_weights(self) -> bool:
        return self.weighting != "none"

    def _learning_rate(self, train: Dataset) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        listwise = issubclass(objective_names.kind_of(self.objective), objectives.Listwise)
        return (LISTWISE_RATE if listwise else POINTWISE_RATE) * learning_rate(train, self.factors)

    def _strength(self, train: Dataset, given: float | None) -> float:
        """The given regularization, otherwise one in proportion to the expected noise."""
        return given if given is not None else default_regularization(train)

    def _update(
        self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool
    ) -> Mapping[str, Any]:
        old, known = self._tables(), self.known_flips_
        if isinstance(known, ShownPairs):
            known = known.extended(users, items, train)
        elif known is not None:
            known = known.reindexed(users, items, train._csr.shape)
        tables = extended_tables(self._initial(train, known, old.flip_factors, spectral=False), old, users, items)
        # a user's row moves once an epoch and by little, so the rows of new users start at their fold-in
        model = self._fitted(train, {**table_attributes(tables), **self._derived(train, known)})
        new = np.setdiff1d(np.arange(train.n_users), users)
        for user, history in zip(new, rows_of(train._csr[new]), strict=True):
            tables.user_factors[user] = model._fold_in(history)
        result = continue_epochs(self._training(known), train, tables, epochs, progress=progress)
        derived = {**self._derived(train, known), "calibration_": self.calibration_}
        return {**learned_tables(result, train), **derived}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        parts = (self.known_flips_, self.calibration_)
        known = {name: array for part in parts if part is not None for name, array in part.arrays().items()}
        return {**self._tables().arrays(), **known}

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        known = ShownPairs.restored(arrays, train) or ExposureRates.restored(arrays, train._csr.shape)
        derived = {**self._derived(train, known), "calibration_": ProbabilityMap.restored(arrays)}
        width = 1 if exposure_name(self) == "item" else self.flip_factors
        return {**restored_tables(arrays, train, self.factors, width), **derived}

    # --- flips ----------------------------------------------------------------------------------

    @property
    def _has_flips(self) -> bool:
        uses = objective_names.kind_of(self.objective).uses_flips
        known = vars(self).get("_state", {}).get("known_flips_")
        return known is not None or (uses and self.flip_factors > 0)

    @property
    def _flips_from(self) -> str:
        return basis_of(self.known_flips_)

    @property
    def _has_level(self) -> bool:
        return self.unobserved_weight == 1 or self.calibration_ is not None

    def _flip_logits(self, users: Codes) -> Floats:
        tables = self._tables()
        if self.known_flips_ is not None:
            return np.asarray(self.known_flips_.dense_logits(users), dtype=np.float32)
        return factor_score_block(tables.user_flips[users], tables.item_flips, tables.flip_bias)

    # --- new users ------------------------------------------------------------------------------

    def _fold_in(self, history: Codes) -> Floats:
        tables = self._tables()
        bias = (
            np.zeros(len(tables.item_factors), dtype=np.float32) if tables.item_bias is None else tables.item_bias
        )
        return fold_in_all(
            tables.item_factors,
            bias,
            history,
            self._objective(),
            self._typical_flips(),
            unobserved_weight=self.unobserved_weight,
            regularization=self._l2_of_row(len(history)),
        )

    def _left_out_scores(self, history: Codes, places: Codes, items: Codes) -> Floats:
        tables, n = self._tables(), len(history)
        problem = AllItems(
            tables.item_factors,
            tables.item_bias,
            history,
            self._objective(),
            self._typical_flips(),
            self._fold_in(history),
            l2=max(self._l2_of_row(n), 1e-6),
            l2_without=max(self._l2_of_row(n - 1), 1e-6),
            unobserved_weight=self.unobserved_weight,
        )
        return self._scores_by_rows(problem.left_out_rows(places, self._fold_in), items)

    def _l2_of_row(self, n: int) -> float:
        """The L2 of the row of a user with n interactions."""
        mean = self._cached("mean", lambda: float(self.train_.interactions_per_user().mean()))
        return float(self.regularization_ * (n / mean) ** self.frequency_power)

    def _typical_flips(self) -> Floats | None:
        """The flip logits of the average user, which stand for those of a new user."""

        def compute() -> Floats | None:
            tables = self._tables()
            if self.known_flips_ is not None:
                return np.asarray(self.known_flips_.average_logits(), dtype=np.float32)
            if not tables.flip_factors:
                return None
            g = tables.item_flips @ tables.user_flips.mean(axis=0)
            return np.asarray(g if tables.flip_bias is None else g + tables.flip_bias, dtype=np.float32)

        found: Floats | None = self._cached("typical flips", compute)
        return found


def _first_biases(train: Dataset, known: ShownPairs | ExposureRates | None) -> NDArray[np.float64]:
    """The biases of items at which training starts: the logarithm of the share of users who took them.

    With known exposure it is the logit of the share of those who saw them. An item that nobody saw has no gradient, so
    each item counts as taken once more, at the mean rate.
    """
    taken = train.popularity()
    if known is None:
        return np.asarray(np.log((taken + 1) / (train.n_users + 1)))
    exposed = known.exposed_users()
    mean = min(MOST_TAKEN, taken.sum() / max(exposed.sum(), 1.0))
    rate = np.minimum(MOST_TAKEN, (taken + 1) / (exposed + 1 / mean))
    return np.asarray(np.log(rate / (1 - rate)))


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


@preset(objective="NBPO-o", without=("flip_rate",))
class ExactNBPO(ExactMF):
    """Equation 6 as written: the log likelihood under label noise over all items.

    With impressions (`fit(train, impressions=...)`) the flips are known, and `hidden_likes` estimates the truth.
    Without, the flips are learned from interactions alone and have no meaning by themselves.
    """

    search_space: ClassVar[dict[str, Any]] = {
        **SEARCH_SPACE,
        "unobserved_weight": (0.05, 1.0),
        "flip_factors": [0, 8, 32],
        "flip_regularization": (2.0, 60.0),
    }
