"""MatrixFactorization, r = U V^T, under any objective and any negatives, and the presets that people know."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from truelike import negatives as laws
from truelike import objectives
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.errors import ParameterError
from truelike.models import engines, naming
from truelike.models.factor_model import FactorModel
from truelike.models.folding import fold_in, fold_in_all, rows_of
from truelike.models.iterative import IterativeModel, is_measure
from truelike.models.recommender import Floats, HeldOut
from truelike.parameters import choice, flag, number, special, whole_number
from truelike.training.impressions import KnownFlips, known_flips
from truelike.training.recipes import OF_EXACT, OF_SAMPLED, votes_of_a_row
from truelike.training.sampled import SampledEngine
from truelike.training.samples import Recipe
from truelike.training.tables import Tables
from truelike.training.trainer import Engine

BY_VOTES = 2.2  # best on validation for logs of 20 and of 130 votes a user, with the cube root between them


@dataclass(kw_only=True, eq=False, repr=False)
class MatrixFactorization(FactorModel, IterativeModel[Tables]):
    """Factors of users and items, r_ui = U_u . V_i (+ b_i), trained by any objective on any negatives.

    Unvoted items are drawn, a few for each vote, as in the paper; or, with negatives="all", every one of them
    counts, as in the paper's likelihood. A parameter that is None is what the `recipe` says: "default" is what
    worked best on validation over the data sets at hand, "paper" is exactly the recipe of the paper's authors.

    Parameters
    ----------
    objective
        "BPO", "BPR", "NBPO", "NBPO-s", "NBPO-o", "ShiftMC", "NBPR", or a class of your own with the same
        functions; with negatives="all" the "softmax", too, but none of pairs.
    negatives
        Who counts as unvoted: drawn by "uniform", "popularity", "popularity^0.5", "hard", "hard:10"; or "all".
    recipe
        Where the values of the parameters come from that are not given.
    factors, flip_factors
        The paper's K and L. With flip_factors=0 NBPO has no flip tables (Equation 11).
    learning_rate, decay
        Epoch e (from 0) runs at learning_rate x decay^(e + 1); with negatives="all" at learning_rate x decay^e.
    regularization, flip_regularization
        The paper's lambda of Theta and of Phi. With negatives="all", None stands for a value that grows with the
        log: 2.2 times the cube root of sqrt(mean votes of a user x mean votes of an item).
    optimizer, item_bias, frequency_power, unvoted_weight
        With negatives="all" only. "adam" or "sgd"; whether items have a bias b_i; the power of its number of votes
        by which the regularization of a row grows; how much an unvoted item counts (not for the softmax).
    prior
        "epoch": the prior counts once for each pass over the data, as in Equation 4. "batch": at every batch
        anew, as in the authors' release.
    shrink
        "all" rows shrink at every batch, or only those that the batch has "touched".
    n_negatives
        The paper's rho, 1 to 50.
    batch_size
        Positives in a batch; with negatives="all", users.
    order
        Positives "shuffled" at each epoch, or in "file" order.
    positives
        A positive's step counts "once", or once for "each" of its negatives, as in the authors' release.
    init
        "normal" with mean zero and standard deviation `init_scale`; "spectral": the log's singular vectors are
        added to that; or the authors' positive start ("paper").
    init_scale, flip_start
        The deviation, and the flip logit g that training starts from (not for init="paper").
    flip_rate
        The f of ShiftMC and NBPR.
    overlooked
        With impressions: how likely a user who likes an item overlooks it when it is shown once.
    epochs
        How many at most.
    monitor, patience
        With a validation set: the metric whose best epoch is kept, and after how many epochs without a better
        one training stops.
    seed
        Decides the result, alone.
    n_jobs
        Threads; None: all cores. Never changes the result.

    Attributes
    ----------
    user_factors_, item_factors_, user_flips_, item_flips_
        The paper's U, V, P, Q.
    item_bias_
        The items' biases, where there are any.
    history_
        A frame with a row an epoch: epoch, seconds, loss, and each metric.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.split.by_user(tl.synthetic.World(n_users=200, n_items=100).log(), seed=0)
    >>> model = tl.MatrixFactorization(objective="BPO", factors=8, epochs=3).fit(split.train)
    >>> model.user_factors_.shape[1], model.history_.columns
    (8, ['epoch', 'seconds', 'loss'])
    """

    preset: ClassVar[dict[str, Any]] = {}
    space: ClassVar[dict[str, Any]] = {
        "factors": [32, 64, 128],
        "flip_factors": [0, 16, 32, 64],
        "learning_rate": (0.005, 0.2),
        "regularization": (0.5, 100.0),
        "flip_regularization": (0.1, 20.0),
        "n_negatives": (1, 16),
        "flip_rate": (0.0, 0.9),
    }

    objective: Any = special(None, naming.EXPECTED, naming.is_objective)
    negatives: Any = special(None, laws.NAMES, laws.is_law)
    recipe: str = choice("default", "paper")
    factors: int | None = whole_number(None, low=1)
    flip_factors: int | None = whole_number(None, low=0)
    learning_rate: float | None = number(None, low=1e-9)
    decay: float | None = number(None, low=1e-6, high=1.0)
    regularization: float | None = number(None, low=0.0)
    flip_regularization: float | None = number(None, low=0.0)
    optimizer: str | None = choice(None, "adam", "sgd")
    item_bias: bool | None = flag(None)
    frequency_power: float | None = number(None, low=0.0, high=2.0)
    unvoted_weight: float | None = number(None, low=0.0)
    prior: str | None = choice(None, "epoch", "batch")
    shrink: str | None = choice(None, "all", "touched")
    n_negatives: int | None = whole_number(None, low=1, high=50)
    batch_size: int | None = whole_number(None, low=1)
    order: str | None = choice(None, "shuffled", "file")
    positives: str | None = choice(None, "once", "each")
    init: str | None = choice(None, "normal", "spectral", "paper")
    init_scale: float | None = number(None, low=0.0)
    flip_start: float = number(0.0, low=-20.0, high=20.0)
    flip_rate: float = number(0.1, low=0.0, high=0.99)
    overlooked: float | None = number(None, low=0.0, high=1.0)
    epochs: int | None = whole_number(None, low=0)
    monitor: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_measure)
    patience: int | None = whole_number(10, low=1, optional=True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = whole_number(None, low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        fixed = self.preset.get("objective")
        if fixed is not None and self.objective not in (None, fixed):
            raise ParameterError(
                f"{type(self).__name__}: objective is {self.objective!r}; it must be {fixed!r}, which is what the "
                "name stands for. MatrixFactorization takes any."
            )
        engines.check(self)
        for name, value in self._recipe_values().items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    @property
    def exact(self) -> bool:
        """Whether all unvoted items count, instead of a few that are drawn."""
        return bool((self.negatives or self.preset.get("negatives")) == laws.ALL)

    def _recipe_values(self) -> dict[str, Any]:
        """What the parameters are that were not given."""
        return engines.recipe_values(self)

    def deciding_params(self) -> dict[str, Any]:
        """The parameters that mean something here, without those of the other engine."""
        elsewhere = OF_SAMPLED if self.exact else OF_EXACT
        found = {name: value for name, value in super().deciding_params().items() if name not in elsewhere}
        if found.get("unvoted_weight", 0) is None:
            del found["unvoted_weight"]
        return found

    def __repr__(self) -> str:
        ready = {f.name: f.default for f in fields(self)} | self._recipe_values()
        shown = {name: value for name, value in self.get_params().items() if value != ready[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _objective(self) -> type[objectives.Objective]:
        return naming.objective(self.objective, self.flip_rate)

    @property
    def has_flips(self) -> bool:
        """Whether there are flip tables at all."""
        return naming.kind_of(self.objective).uses_flips and bool(self.flip_factors)

    @property
    def takes_impressions(self) -> bool:
        """Whether `fit` can use what was shown to whom: for an objective with flips, on all items."""
        return self.exact and self._objective().uses_flips

    @property
    def is_biased(self) -> bool:
        """Whether items have a bias."""
        return bool(self.item_bias)

    def _saved_parameters(self) -> dict[str, Any]:
        law, saved = self.negatives, self.get_params()
        if isinstance(law, laws.Negatives):
            saved["negatives"] = law.name
        saved["objective"] = naming.saved_name(self.objective)
        return saved

    # --- learning -------------------------------------------------------------------------------

    known_flips_: ClassVar[KnownFlips | None] = None  # a model that was fitted with impressions has its own

    def fit(self, train: Dataset, *, validation: HeldOut = None, impressions: Any = None, **how: Any) -> Self:
        """Learn from a log, from the start, and return self.

        Parameters
        ----------
        train, validation, **how
            As for every model that is trained epoch by epoch: callbacks, checkpoint, resume, progress.
        impressions
            What was shown to whom, so that an unvoted item that was shown is told from one that never was. A log
            as `tl.read` gives it, whose weights are how often a pair was shown, or anything that `tl.read` takes;
            a frame with a column `propensity` says how likely each pair was shown. Needs negatives="all" and an
            objective with flips, such as `tl.ExactNBPO`.
        """
        known = None
        if impressions is not None:
            if not self.takes_impressions:
                raise ParameterError(
                    f"{self.name}: impressions say which flips are possible, so they need an objective with flips "
                    "on all items: use tl.ExactNBPO"
                )
            if isinstance(validation, Real) and validation:
                raise ParameterError(
                    "with impressions a vote that is held out looks like a dislike: split the log, and say "
                    "fit(split.train, validation=split.validation, impressions=split.impressions(shown))"
                )
            known = known_flips(impressions, train, float(self.overlooked or 0))
        before = self.__dict__.get("known_flips_")
        self.__dict__["known_flips_"] = known
        try:
            return super().fit(train, validation=validation, **how)
        except BaseException:
            self.__dict__["known_flips_"] = before  # a fit that fails leaves what was learned before
            raise

    def _start(self, log: Dataset) -> Tables:
        width = self.flip_factors if self.has_flips and self.known_flips_ is None else 0
        return self._fresh(log, int(self.factors or 0), int(width or 0))

    def _fold_in_new(self, log: Dataset, tables: Tables, known: Codes) -> None:
        """New users start where their votes put them: there they move once an epoch, by little."""
        self.__dict__["train_"] = log
        self._keep(tables)
        for user in np.setdiff1d(np.arange(log.n_users), known):
            tables.user_factors[user] = self._fold_in(
                log.matrix.indices[slice(*log.matrix.indptr[user : user + 2])]
            )

    def _fresh(self, log: Dataset, factors: int, flip_factors: int, *, spectral: bool = True) -> Tables:
        tables = Tables.zeros(log.n_users, log.n_items, factors, flip_factors, biased=self.is_biased)
        tables.initialise(cast(Any, self.init), float(self.init_scale or 0), self.flip_start, self.seed)
        if self.init == "spectral" and spectral:
            from truelike.training.spectral import add_spectrum

            add_spectrum(tables, log, self.seed, self.n_jobs)
        if tables.item_bias is not None:
            shown = log.n_users if self.known_flips_ is None else self.known_flips_.audience()
            tables.item_bias[:] = np.log((log.popularity() + 1) / (shown + 1))
        return tables

    def _engine(self, log: Dataset, tables: Tables) -> Engine:
        if self.exact:
            from truelike.training.exact import ExactEngine, ExactRecipe

            how = ExactRecipe(
                **{
                    **{f.name: getattr(self, f.name) for f in fields(ExactRecipe)},
                    "regularization": self._strength(log, self.regularization),
                    "flip_regularization": self._strength(log, self.flip_regularization),
                    "unvoted_weight": float(self.unvoted_weight or 0),
                }
            )
            known, objective = self.known_flips_, self._objective()
            return ExactEngine(log, tables, objective, how, seed=self.seed, n_jobs=self.n_jobs, flips=known)
        names = [f.name for f in fields(Recipe)]
        recipe = Recipe(**{name: getattr(self, name) for name in names})
        law = laws.parse(self.negatives)
        return SampledEngine(log, tables, self._objective(), law, recipe, seed=self.seed, n_jobs=self.n_jobs)

    def _strength(self, log: Dataset, given: float | None) -> float:
        """The regularization that was given; else one that grows with how much the log says of a row."""
        return float(BY_VOTES * votes_of_a_row(log) ** (1 / 3)) if given is None else float(given)

    def _remedy(self) -> str:
        rate = float(self.learning_rate or 0)
        less = f"Try learning_rate={rate / 5:g}, or a smaller batch_size."
        return f"at learning_rate={rate:g} and batch_size={self.batch_size}. {less}"

    def partial_fit(self, more: Dataset, *, epochs: int = 5, progress: bool = True) -> Self:
        """Go on from what was learned, with more rows; new users and items get rows of their own.

        The rows are added to those of the training log, and training goes on over all of them for a few
        epochs, at the learning rate at which it would have ended. A model that was never fitted is fitted.
        """
        if "train_" not in self.__dict__:
            return self.fit(more)
        known = self.train_
        users, items = known.users.union(more.users), known.items.union(more.items)
        log = known.recode(users, items)[0].merge(more.recode(users, items)[0])
        titles = dict(zip(known.items.values, known.titles, strict=True)) if known.titles is not None else {}
        if titles:
            log = log.with_titles(titles)
        old = self.tables_
        who, here = users.codes(known.users.values), items.codes(known.items.values)
        if self.known_flips_ is not None:  # what is new was shown to nobody, as far as is known
            self.__dict__["known_flips_"] = self.known_flips_.moved(who, here, log.matrix.shape)
        tables = self._fresh(log, old.factors, old.flip_factors, spectral=False)
        tables.users[who] = old.users
        for name, table in old.arrays().items():
            if name != "users":
                tables.arrays()[name][here] = table
        if self.exact:
            self._fold_in_new(log, tables, who)
        self._go_on(log, tables, epochs, progress=progress)
        return self

    def _also_deciding(self) -> dict[str, Any]:
        return {} if self.known_flips_ is None else {"impressions": self.known_flips_.digest()}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        known = {} if self.known_flips_ is None else self.known_flips_.arrays()
        return {**super()._arrays(), **known}

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(arrays)
        self.__dict__["known_flips_"] = KnownFlips.restored(arrays, self.train_.matrix.shape)

    # --- strangers, and what is saved --------------------------------------------------------------

    def _score_histories(self, histories: Any) -> Floats:
        return self._score_vectors(np.stack([self._fold_in(history) for history in rows_of(histories)]))

    def _fold_in(self, history: Codes) -> Floats:
        """The row that a user with this history would have, the item tables as they are."""
        log = self.train_
        if self.exact:
            nu = float(self.frequency_power or 0)
            often = len(history) / float(log.rows_per_user().mean())
            bias = self.tables_.item_bias
            return fold_in_all(
                self.tables_.item_factors,
                np.zeros(log.n_items, dtype=np.float32) if bias is None else bias,
                history,
                self._objective(),
                self._typical_flips(),
                unvoted_weight=float(self.unvoted_weight or 0),
                regularization=self._strength(log, self.regularization) * often**nu,
            )
        batches = max(1, -(-log.n_interactions // int(self.batch_size or 1)))
        passes = (
            1 if self.prior == "epoch" else min(batches, len(history)) if self.shrink == "touched" else batches
        )
        return fold_in(
            self.tables_.item_factors,
            history,
            self._objective(),
            laws.parse(self.negatives).law(log.popularity(), history),
            self._typical_flips(),
            n_negatives=int(self.n_negatives or 1),
            weight=float(self.n_negatives or 1) if self.positives == "each" else 1.0,
            regularization=float(self.regularization or 0) * passes,
        )

    def _typical_flips(self) -> Floats | None:
        """The flip logits of the average user: all that is known of a stranger's."""
        if self.known_flips_ is not None:
            return self.known_flips_.typical().astype(np.float32)
        tables = self.tables_
        if not tables.flip_factors:
            return None
        g = tables.item_flips @ tables.user_flips.mean(axis=0)
        return np.asarray(g if tables.flip_bias is None else g + tables.flip_bias, dtype=np.float32)
