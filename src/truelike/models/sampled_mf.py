"""SampledMF: matrix factorization on positives and sampled negatives, and its presets BPR ... NBPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from truelike import negatives as sampling
from truelike import objectives
from truelike.cluster import Cluster
from truelike.data.blocks.blocks import Blocks
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
from truelike.models.fold_in import fold_in
from truelike.models.known_exposure import Known, basis_of, known_attributes, known_exposure
from truelike.models.label_noise import LabelNoise
from truelike.models.left_out import Sampled
from truelike.parameters import changed, choice, flag, jobs, number, preset, special, whole_number
from truelike.ranking.factor_ranker import factor_score_block
from truelike.training.blocks.execution import workers_for
from truelike.training.blocks.sgd import BlockExposure, StratifiedEngine, StratifiedWorker
from truelike.training.blocks.shown import ShownBlocks
from truelike.training.blocks.workers import WorkerKind, allocator
from truelike.training.engine import Engine
from truelike.training.exposure import names as exposures
from truelike.training.exposure.rates import ExposureRates
from truelike.training.loop import Result, Training, continue_epochs, fit_epochs
from truelike.training.options import FitOptions
from truelike.training.probability_map import ProbabilityMap
from truelike.training.regularization import lift
from truelike.training.sgd.engine import SampledEngine
from truelike.training.sgd.exposure import KnownExposure
from truelike.training.sgd.samples import Entries, SGDSettings
from truelike.training.shown_pairs import ShownPairs
from truelike.training.tables import Tables

FLIP_TABLES = ("flip_factors", "flip_regularization", "flip_start")  # parameters of objectives that learn flips
FLIPS = (*FLIP_TABLES, "flip_rate")
KNOWN_FLIPS = ("exposure", "miss_rate", "calibrate")  # parameters of objectives that use flips
NO_FLIPS = (*FLIPS, *KNOWN_FLIPS)
# The recipe of the paper's authors, from their release.
PAPER: dict[str, Any] = {
    "factors": 50,
    "flip_factors": 50,
    "learning_rate": 0.05,
    "decay": 0.99,
    "regularization": 1.0,
    "flip_regularization": 5.0,
    "l2_schedule": "batch",
    "l2_rows": "all",
    "n_negatives": 4,
    "batch_size": 5_000,
    "order": "file",
    "positive_weight": "per_negative",
    "init": "paper",
    "init_scale": 0.1,
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
# The default regularization of a model of shown pairs: a power of what they tell of a row, and its bounds.
SHOWN_POWER, SHOWN_L2_BOUNDS = 0.75, (1.0, 30.0)
SHOWN_BIAS_L2 = 2.0


@dataclass(kw_only=True, eq=False, repr=False)
class SampledMF(LabelNoise, FactorModel):
    """Matrix factorization r_ui = U_u . V_i, trained by SGD on positives and a few sampled negatives for each.

    The objective and the sampling distribution of the negatives are independent choices. BPR, WBPR, NBPR, ShiftMC,
    BPO and NBPO are presets.

    Parameters
    ----------
    objective : str or class, default 'NBPO'
        "BPO", "BPR", "NBPO", "NBPO-s", "NBPO-o", "ShiftMC", "NBPR", or a Pointwise or Pairwise class.
    negatives : str or Negatives, default 'uniform'
        The sampling distribution: "uniform", "popularity", "popularity^0.5", "hard", "hard:10".
    recipe : {'default', 'paper'}, default 'default'
        "paper" sets every parameter that is not given to the value of the authors' release.
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
        data whose users and items form small groups; with impressions, more the more the shown pairs tell of a user or
        an item. See `regularization_`.
    flip_regularization : float, default 2.0
        The paper's lambda of Phi: L2 of the flip tables.
    l2_schedule : {'epoch', 'batch'}, default 'epoch'
        "epoch": the L2 term counts once per pass over the data, as in Equation 4. "batch": it counts in full at
        every batch, as in the authors' release.
    l2_rows : {'all', 'touched'}, default 'all'
        Whether all rows shrink at every batch, or only the rows of the batch.
    n_negatives : int, default 8
        The paper's rho: negatives for each positive, 1 to 50.
    batch_size : int, default 8000
        Positives in a batch.
    order : {'blocks', 'shuffled', 'file'}, default 'blocks'
        Order of the positives in an epoch. "blocks": random blocks of up to 32 positives of a user, in random order;
        a user's row moves several times in a batch. "shuffled": random. "file": user by user.
    positive_weight : {'per_negative', 'once'}, default 'per_negative'
        Whether a positive counts once for each of its negatives, as in the authors' release, or once.
    init : {'normal', 'spectral', 'paper'}, default 'normal'
        "normal" with mean zero and standard deviation `init_scale`; "spectral" adds the singular vectors of the
        interactions; "paper" is the authors' positive initialization.
    init_scale : float, default 0.1
        Standard deviation of the initialization.
    flip_start : float, default 0.0
        Initial flip logit g (not for init="paper").
    flip_rate : float, default 0.1
        The constant flip rate of ShiftMC and NBPR.
    exposure : str or None, default None
        Where p(shown) of a pair comes from without impressions, for objectives that use it: "learned" (NBPO's flips),
        "none" (everything was shown), "popularity^0.5" (Rel-MF) or "structured" (user activity and item visibility).
        None: "learned" for NBPO, "popularity^0.5" for Rel-MF, MF-DU, UBPR and UPL.
    miss_rate : float or None, default None
        With impressions: the probability that a user misses a liked item when it is shown once. None: it is estimated
        where the impressions have positions, or times of repeated showings, and 0 otherwise; see `miss_rate_`.
    calibrate : bool, default True
        With impressions and a pointwise objective: whether `like_probability` is calibrated. A tenth of the shown
        pairs, at most 200,000, is held out for it; if that is more than a hundredth of them, the model is then trained
        again on all. See `calibration_`.
    shown_share : float, default 0.5
        With impressions and a pairwise objective: the share of negatives that were shown and not taken. The others
        were never shown.
    epochs : int, default 100
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
    user_factors_, item_factors_, user_flips_, item_flips_
        The paper's U, V, P, Q.
    item_bias_
        After a fit with impressions and a pointwise objective, the bias b_i of each item.
    regularization_
        The L2 of the preference tables that was used.
    calibration_, miss_rate_
        After a fit with impressions, the map from scores to probabilities, and the miss rate that was used, or one for
        each position.
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

    iterative: ClassVar[bool] = True
    trains_on_blocks: ClassVar[bool] = True
    takes_impressions: ClassVar[bool] = True
    search_space: ClassVar[dict[str, Any]] = {
        "factors": [32, 64, 128],
        "flip_factors": [0, 16, 32, 64],
        "learning_rate": (0.005, 0.2),
        "regularization": (0.2, 100.0),
        "flip_regularization": (0.1, 20.0),
        "n_negatives": (1, 16),
        "flip_rate": (0.0, 0.9),
    }
    _only_objective: ClassVar[str | None] = None  # set by `preset`: a preset is its objective

    objective: Any = special("NBPO", objective_names.SAMPLED, objective_names.is_sampled)
    negatives: Any = special("uniform", sampling.NAMES, sampling.is_distribution)
    recipe: Literal["default", "paper"] = choice("default", "paper")
    factors: int = whole_number(64, low=1)
    flip_factors: int = whole_number(32, low=0)
    learning_rate: float = number(0.02, low=1e-9)
    decay: float = number(0.98, low=1e-6, high=1.0)
    regularization: float | None = number(None, low=0.0)
    flip_regularization: float = number(2.0, low=0.0)
    l2_schedule: Literal["epoch", "batch"] = choice("epoch", "batch")
    l2_rows: Literal["all", "touched"] = choice("all", "touched")
    n_negatives: int = whole_number(8, low=1, high=50)
    batch_size: int = whole_number(8_000, low=1, high=2**31 - 1)
    order: Literal["blocks", "shuffled", "file"] = choice("blocks", "shuffled", "file")
    positive_weight: Literal["per_negative", "once"] = choice("per_negative", "once")
    init: Literal["normal", "spectral", "paper"] = choice("normal", "spectral", "paper")
    init_scale: float = number(0.1, low=0.0)
    flip_start: float = number(0.0, low=-20.0, high=20.0)
    flip_rate: float = number(0.1, low=0.0, high=0.99)
    exposure: Any = special(None, f"None, {exposures.NAMES}", exposures.is_optional_exposure)
    miss_rate: float | None = number(None, low=0.0, high=0.99)
    calibrate: bool = flag(True)
    shown_share: float = number(0.5, low=0.0, high=1.0)
    epochs: int = whole_number(100, low=0)
    metric: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    patience: int | None = whole_number(10, low=1, optional=True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def __post_init__(self) -> None:
        super().__post_init__()
        objective_names.check_preset(self, "SampledMF")
        if self.recipe == "paper":
            for name, value in PAPER.items():
                if name not in self._given:
                    setattr(self, name, value)

    def __repr__(self) -> str:
        shown = changed(self)
        if self.recipe == "paper":
            shown = {name: value for name, value in shown.items() if name not in PAPER or PAPER[name] != value}
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _check_changes(self, given: Mapping[str, Any]) -> None:
        if given.get("recipe", self.recipe) != self.recipe:
            raise ParameterError(
                "recipe sets the values of the other parameters when a model is constructed, and cannot be changed "
                f"later. Use {self.name}(recipe={given['recipe']!r})."
            )

    def _objective(self) -> type[objectives.Objective]:
        return objective_names.objective(self.objective, self.flip_rate)

    def _saved_parameters(self) -> dict[str, Any]:
        negatives = self.negatives
        return {
            **self.get_params(),
            "negatives": negatives.name if isinstance(negatives, sampling.Negatives) else negatives,
            "objective": objective_names.saved_name(self.objective),
        }

    # --- learning -------------------------------------------------------------------------------

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        known = known_exposure(self, train, options)

        def run(pairs: Any, data: Dataset, how: FitOptions) -> Result[Tables]:
            return self._finished(fit_epochs(self._training(pairs, how.cluster), data, how), pairs)

        found = Calibrated(None, None)
        if isinstance(known, (ShownPairs, ShownBlocks)) and self._is_labelled(known) and self.calibrate:
            found = calibrated_fit(known, train, options, seed=self.seed, run=run, scores=scores_of_pairs)
        result = found.result or run(known, train, options)
        derived = {**self._derived(train, known), "calibration_": found.probability}
        return {**learned_tables(result, train), **derived}

    def _derived(self, train: Dataset | Blocks, known: Known | None) -> dict[str, Any]:
        strength = self._shown_strength(train, known) if self._is_labelled(known) else self._strength(train)
        return {"regularization_": strength, **known_attributes(known)}

    def _is_labelled(self, known: Any) -> bool:
        """Whether the shown pairs are trained on, taken or not, instead of positives and drawn negatives."""
        return isinstance(known, (ShownPairs, ShownBlocks)) and issubclass(
            objective_names.kind_of(self.objective), objectives.Pointwise
        )

    def _finished(self, result: Result[Tables], known: Any) -> Result[Tables]:
        """The result with the item biases, if there are any, in an array of their own."""
        if not result.trained.bias_in_rows:
            return result
        return replace(result, trained=result.trained.with_separate_bias(_offset(known)))

    def _strength(self, train: Dataset | Blocks) -> float:
        """The given regularization, otherwise one that is weaker the more groups of users and items stand out."""
        if self.regularization is not None:
            return self.regularization
        name = self._objective().name
        name = "WBPR" if name == "BPR" and self.negatives == "popularity" else name
        scale, power = REGULARIZATION.get(name, OTHER_REGULARIZATION)
        return float(scale * self.n_negatives * min(1.0, USUAL_LIFT / lift(train)) ** power)

    def _shown_strength(self, train: Dataset | Blocks, known: Any) -> float:
        """The given regularization, otherwise stronger the more the shown pairs tell of a user or an item.

        A pair that is taken with probability t tells t (1 - t), the variance of its label.
        """
        if self.regularization is not None:
            return self.regularization
        taken = min(0.5, train.n_interactions / known.n_pairs)
        told = known.n_pairs * taken * (1 - taken) / (train.n_users + train.n_items)
        return float(np.clip(told**SHOWN_POWER, *SHOWN_L2_BOUNDS))

    def _training(self, known: Known | None = None, cluster: Cluster | None = None) -> Training[Tables]:
        exposure = {} if known is None else {"exposure of pairs": known.digest()}
        return Training.of(
            self,
            initial=lambda train: self._initial(train, known),
            engine=lambda train, tables: self._engine(train, tables, known, cluster),
            ranker=lambda train, tables: self._fitted(train, table_attributes(tables)),
            identity={"class": type(self).__name__, **self._saved_parameters(), **exposure},
            advice=(
                f"at learning_rate={self.learning_rate:g} and batch_size={self.batch_size}. "
                f"Try learning_rate={self.learning_rate / 5:g}, or a smaller batch_size."
            ),
        )

    def _initial(self, train: Dataset, known: Any) -> Tables:
        tables = self._empty_tables(train, known)
        tables.initialise(self.init, self.init_scale, self.flip_start, self.seed)
        if self.init == "spectral":
            from truelike.training.spectral import add_spectrum

            add_spectrum(tables, train, self.seed, self.n_jobs)
        return tables

    def _expected_seconds(self, train: Dataset) -> float:
        width = self.factors + (self.flip_factors if self._has_flips else 0)
        return self.epochs * train.n_interactions * self.n_negatives * width * 1.2e-9

    def _empty_tables(self, train: Dataset, known: Any) -> Tables:
        """Tables of zeros. With known flips there are no flip tables; with shown pairs items have biases."""
        learns = known is None and objective_names.kind_of(self.objective).uses_flips
        return Tables.zeros(
            train.n_users,
            train.n_items,
            self.factors,
            self.flip_factors if learns else 0,
            allocate=allocator(train),
            bias_in_rows=self._is_labelled(known),
        )

    def _check_blocks(self, train: Blocks) -> None:
        if self.init == "spectral":
            raise ParameterError(
                f'init is "spectral", which needs all interactions in memory, and {train!r} has them in several '
                'blocks. Use init="normal", or one block.'
            )
        if self.order == "file":
            raise ParameterError(
                f'order is "file"; {len(train)} blocks are trained at the same time, so there is no such order. Use '
                'order="blocks", or one block.'
            )

    def _engine(
        self, train: Dataset | Blocks, tables: Tables, known: Any, cluster: Cluster | None = None
    ) -> Engine:
        own = {f.name: getattr(self, f.name) for f in fields(SGDSettings)}
        settings = SGDSettings(**{**own, "regularization": self._derived(train, known)["regularization_"]})
        negatives, objective = sampling.parse(self.negatives), self._objective()
        if objective is objectives.NBPO and known is not None:
            objective = objectives.NBPOo  # the surrogate is for flips that are learned
        if self._is_labelled(known):
            settings = replace(settings, n_negatives=0, positive_weight="once", flip_regularization=SHOWN_BIAS_L2)
        if isinstance(train, Blocks):
            exposure = BlockExposure(
                shown=known if isinstance(known, ShownBlocks) else None,
                labelled=self._is_labelled(known),
                skipped_share=self.shown_share,
                rates=known if isinstance(known, ExposureRates) else None,
            )
            about = {"objective": objective, "negatives": negatives, "sgd": settings, "seed": self.seed}
            sent = exposure if cluster is None else exposure.sent()
            kind = WorkerKind(StratifiedWorker, tables.factors, tables.flip_factors, {**about, "exposure": sent})
            workers = workers_for(kind, train, tables.users, cluster, self.n_jobs)
            return StratifiedEngine(
                train, tables, workers, objective, negatives, settings, seed=self.seed, exposure=exposure
            )
        entries, known_exposure = self._in_core(train, known)
        return SampledEngine(
            entries,
            tables,
            objective,
            negatives,
            settings,
            seed=self.seed,
            n_jobs=self.n_jobs,
            exposure=known_exposure,
        )

    def _in_core(self, train: Dataset, known: Any) -> tuple[Dataset | Entries, KnownExposure]:
        """The entries that are trained on, and what is known of their exposure."""
        if self._is_labelled(known):
            exposure = KnownExposure(
                taken=known.taken, logits=known.logits, logit=known.logit, offset=_offset(known)
            )
            return known.entries(), exposure
        if isinstance(known, ShownPairs):
            indptr, items = known.skipped()
            share = self.shown_share
            return train, KnownExposure(skipped_indptr=indptr, skipped_items=items, skipped_share=share)
        return train, KnownExposure(rates=known) if isinstance(known, ExposureRates) else KnownExposure()

    def _update(
        self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool
    ) -> Mapping[str, Any]:
        old, known = self._tables(), self.known_flips_
        if isinstance(known, ShownPairs):
            known = known.extended(users, items, train)
        elif known is not None:
            known = known.reindexed(users, items, train._csr.shape)
        fresh = self._empty_tables(train, known)
        fresh.initialise(self.init, self.init_scale, self.flip_start, self.seed)
        if fresh.bias_in_rows:
            assert fresh.item_bias is not None
            assert old.item_bias is not None
            fresh.users[users, : fresh.width], fresh.items[items, : fresh.width] = old.users, old.items
            fresh.item_bias[items] = old.item_bias - np.float32(_offset(known))
        else:
            fresh = extended_tables(fresh, old, users, items)
        result = continue_epochs(self._training(known), train, fresh, epochs, progress=progress)
        derived = {**self._derived(train, known), "calibration_": self.calibration_}
        return {**learned_tables(self._finished(result, known), train), **derived}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        parts = (self.known_flips_, self.calibration_)
        known = {name: array for part in parts if part is not None for name, array in part.arrays().items()}
        return {**self._tables().arrays(), "regularization": np.array([self.regularization_]), **known}

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        shape = (train.n_users, train.n_items)
        shown = ShownBlocks.restored(arrays, train) or ShownPairs.restored(arrays, train)
        known: Known | None = shown or ExposureRates.restored(arrays, shape)
        derived: dict[str, Any] = {**known_attributes(known), "calibration_": ProbabilityMap.restored(arrays)}
        if "regularization" in arrays:
            derived["regularization_"] = float(arrays["regularization"][0])
        else:  # earlier versions saved it as a parameter alone
            derived = self._derived(train, known)
        return {**restored_tables(arrays, train, self.factors, self.flip_factors), **derived}

    # --- flips ----------------------------------------------------------------------------------

    @property
    def _has_flips(self) -> bool:
        kind = objective_names.kind_of(self.objective)
        if not issubclass(kind, objectives.Pointwise):
            return False
        known = vars(self).get("_state", {}).get("known_flips_")
        return known is not None or (kind.uses_flips and self.flip_factors > 0)

    @property
    def _flips_from(self) -> str:
        return basis_of(self.known_flips_)

    @property
    def _has_level(self) -> bool:
        return isinstance(self.known_flips_, (ShownPairs, ShownBlocks))  # others have a sample of negatives

    def _flip_logits(self, users: Codes) -> Floats:
        tables = self._tables()
        if self.known_flips_ is not None:
            return np.asarray(self.known_flips_.dense_logits(users), dtype=np.float32)
        return factor_score_block(tables.user_flips[users], tables.item_flips)

    # --- new users ------------------------------------------------------------------------------

    def _fold_in(self, history: Codes) -> Floats:
        return fold_in(
            self._tables().item_factors,
            history,
            self._objective(),
            self._probabilities(history),
            self._typical_flips(),
            item_bias=self._tables().item_bias,
            n_negatives=self.n_negatives,
            weight=self._positive_weight(),
            regularization=self._l2_of_row(len(history)),
        )

    def _left_out_scores(self, history: Codes, places: Codes, items: Codes) -> Floats:
        if self._objective().uses_exposure:
            return super()._left_out_scores(history, places, items)
        problem = Sampled(
            self._tables().item_factors,
            self._tables().item_bias,
            history,
            self._objective(),
            self._typical_flips(),
            self._fold_in(history),
            l2=self._l2_of_row(len(history)),
            l2_without=self._l2_of_row(len(history) - 1),
            probabilities=self._probabilities(history),
            prior=self._probabilities(history[:0]),
            n_negatives=self.n_negatives,
            weight=self._positive_weight(),
        )
        return self._scores_by_rows(problem.left_out_rows(places, self._fold_in), items)

    def _positive_weight(self) -> float:
        return float(self.n_negatives) if self.positive_weight == "per_negative" else 1.0

    def _l2_of_row(self, n: int) -> float:
        """The L2 of the row of a user with n interactions, per epoch."""
        batches = max(1, -(-self.train_.n_interactions // self.batch_size))
        passes = min(batches, n) if self.l2_rows == "touched" else batches
        return float(self.regularization_ * (1 if self.l2_schedule == "epoch" else passes))

    def _probabilities(self, history: Codes) -> NDArray[np.float64]:
        """The probability of each item as a negative of a user with this history."""
        popularity = self._cached("popularity", self.train_.popularity)
        return sampling.parse(self.negatives).probabilities(popularity, history)

    def _typical_flips(self) -> Floats | None:
        """The flip logits of the average user, which stand for those of a new user."""
        tables, known = self._tables(), self.known_flips_
        if known is None and not tables.flip_factors:
            return None

        def compute() -> Floats:
            if known is not None:
                return np.asarray(known.average_logits(), dtype=np.float32)
            return np.asarray(tables.item_flips @ tables.user_flips.mean(axis=0), dtype=np.float32)

        return np.asarray(self._cached("typical flips", compute))


def _offset(known: ShownPairs | ShownBlocks) -> float:
    """The logit of the share of shown pairs that were taken, which is the mean of the item biases a priori."""
    share = known.taken_share()
    return float(np.log(share / (1 - share)))


@preset(
    objective="BPR",
    factors=100,
    learning_rate=0.05,
    n_negatives=3,
    without=NO_FLIPS,
)
class BPR(SampledMF):
    """Bayesian Personalized Ranking (Rendle et al., UAI 2009): a positive above a uniformly sampled negative.

    Examples
    --------
    >>> import truelike as tl
    >>> tl.BPR(factors=64)
    BPR(factors=64)
    """


@preset(objective="BPR", negatives="popularity", without=NO_FLIPS)
class WBPR(SampledMF):
    """BPR with negatives sampled in proportion to popularity (Gantner et al., KDD Cup 2011)."""


@preset(objective="NBPR", factors=100, learning_rate=0.05, n_negatives=3, without=(*FLIP_TABLES, *KNOWN_FLIPS))
class NBPR(SampledMF):
    """BPR whose pairs are weighted by the posterior that the negative is truly disliked, at a constant flip rate."""


@preset(
    objective="ShiftMC",
    factors=100,
    learning_rate=0.01,
    n_negatives=3,
    without=(*FLIP_TABLES, *KNOWN_FLIPS, "shown_share"),
)
class ShiftMC(SampledMF):
    """Shifted matrix completion (Hsieh, Natarajan and Dhillon, ICML 2015): squared loss, constant flip rate."""


@preset(objective="BPO", factors=100, without=(*NO_FLIPS, "shown_share"))
class BPO(SampledMF):
    """Bayesian Point-wise Optimization, the paper's Equation 4: the log likelihood of the observed labels."""


@preset(objective="NBPO", without=("flip_rate", "shown_share"))
class NBPO(SampledMF):
    """Noisy-label robust BPO, the paper's method (Equations 8 and 9): learns likes and flips together."""
