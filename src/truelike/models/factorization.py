"""MatrixFactorization, r = U V^T, under any objective and any negatives, and the presets that people know."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, cast

import numpy as np

from truelike import negatives as laws
from truelike import objectives
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.errors import ParameterError
from truelike.models.folding import fold_in
from truelike.models.iterative import IterativeModel, is_measure
from truelike.models.recommender import Floats
from truelike.parameters import choice, number, special, whole_number
from truelike.training.recipes import DEFAULT, PAPER
from truelike.training.sampled import Recipe, SampledEngine
from truelike.training.tables import Tables

OBJECTIVES: dict[str, Any] = {
    "BPO": objectives.BPO,
    "BPR": objectives.BPR,
    "NBPO": objectives.NBPO,
    "NBPO-s": objectives.NBPOs,
    "NBPO-o": objectives.NBPOo,
}
KNOWN = (*OBJECTIVES, "ShiftMC")
OWN = "own: "  # what is saved in place of a class of the user's own


def is_objective(value: Any) -> bool:
    """Whether a value names an objective, or is one."""
    if isinstance(value, type):
        return issubclass(value, (objectives.Pointwise, objectives.Pairwise))
    return value is None or value in KNOWN or str(value).startswith(OWN)


@dataclass(kw_only=True, eq=False, repr=False)
class MatrixFactorization(IterativeModel):
    """Factors of users and items, trained by mini-batch descent: r_ui = U_u . V_i.

    A parameter that is None is what the `recipe` says: "default" is what worked best on validation over the
    data sets at hand, "paper" is exactly the recipe of the paper's authors.

    Parameters
    ----------
    objective
        "BPO", "BPR", "NBPO", "NBPO-s", "NBPO-o", "ShiftMC", or a class of your own with the same functions.
    negatives
        Who counts as unvoted: "uniform", "popularity", "popularity^0.5", "hard", "hard:10".
    recipe
        Where the values of the parameters come from that are not given.
    factors, flip_factors
        The paper's K and L. With flip_factors=0 NBPO has no flip tables (Equation 11).
    learning_rate, decay
        Epoch e (from 0) runs at learning_rate x decay^(e + 1).
    regularization, flip_regularization
        The paper's lambda of Theta and of Phi.
    prior
        "epoch": the prior counts once for each pass over the data, as in Equation 4. "batch": at every batch
        anew, as in the authors' release.
    shrink
        "all" rows shrink at every batch, or only those that the batch has "touched".
    n_negatives
        The paper's rho, 1 to 50.
    batch_size
        Positives in a batch.
    order
        Positives "shuffled" at each epoch, or in "file" order.
    positives
        A positive's step counts "once", or once for "each" of its negatives, as in the authors' release.
    init
        "normal" with mean zero and standard deviation `init_scale`, or the authors' positive start ("paper").
    init_scale, flip_start
        For init="normal": the deviation, and the flip logit g that training starts from.
    flip_rate
        ShiftMC's f.
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

    objective: Any = special(None, f"one of {', '.join(KNOWN)}, or a Pointwise or Pairwise class", is_objective)
    negatives: Any = special(None, laws.NAMES, laws.is_law)
    recipe: str = choice("default", "paper")
    factors: int | None = whole_number(None, low=1)
    flip_factors: int | None = whole_number(None, low=0)
    learning_rate: float | None = number(None, low=1e-9)
    decay: float | None = number(None, low=1e-6, high=1.0)
    regularization: float | None = number(None, low=0.0)
    flip_regularization: float | None = number(None, low=0.0)
    prior: str | None = choice(None, "epoch", "batch")
    shrink: str | None = choice(None, "all", "touched")
    n_negatives: int | None = whole_number(None, low=1, high=50)
    batch_size: int | None = whole_number(None, low=1)
    order: str | None = choice(None, "shuffled", "file")
    positives: str | None = choice(None, "once", "each")
    init: str | None = choice(None, "normal", "paper")
    init_scale: float = number(0.1, low=0.0)
    flip_start: float = number(0.0, low=-20.0, high=20.0)
    flip_rate: float = number(0.1, low=0.0, high=0.99)
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
        for name, value in self._recipe_values().items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    def _recipe_values(self) -> dict[str, Any]:
        """What the parameters are that were not given."""
        if self.recipe == "paper":
            return {
                **DEFAULT,
                **PAPER,
                **{name: self.preset[name] for name in ("objective", "negatives") if self.preset},
            }
        return {**DEFAULT, **self.preset}

    def __repr__(self) -> str:
        ready = {f.name: f.default for f in fields(self)} | self._recipe_values()
        shown = {name: value for name, value in self.get_params().items() if value != ready[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _objective(self) -> type[objectives.Objective]:
        if isinstance(self.objective, type) and issubclass(self.objective, objectives.Objective):
            return self.objective
        if str(self.objective).startswith(OWN):
            raise ParameterError(
                f"the objective {self.objective.removeprefix(OWN)!r} is a class of your own: no file carries it. "
                "The model can recommend as it is; to go on training, set model.objective to the class."
            )
        if self.objective == "ShiftMC":
            return objectives.shift_mc(self.flip_rate)
        return cast(type[objectives.Objective], OBJECTIVES[self.objective])

    @property
    def has_flips(self) -> bool:
        """Whether there are flip tables at all."""
        return self._objective().uses_flips and bool(self.flip_factors)

    def _saved_parameters(self) -> dict[str, Any]:
        law, saved = self.negatives, self.get_params()
        if isinstance(law, laws.Negatives):
            saved["negatives"] = law.name
        if isinstance(self.objective, type):
            known = {kind: name for name, kind in OBJECTIVES.items()}
            saved["objective"] = known.get(self.objective, f"{OWN}{self.objective.__name__}")
        return saved

    # --- learning -------------------------------------------------------------------------------

    def _start(self, log: Dataset) -> Tables:
        width = self.flip_factors if self.has_flips else 0
        return self._fresh(log, int(self.factors or 0), int(width or 0))

    def _fresh(self, log: Dataset, factors: int, flip_factors: int) -> Tables:
        tables = Tables.zeros(log.n_users, log.n_items, factors, flip_factors)
        tables.initialise(cast(Any, self.init), self.init_scale, self.flip_start, self.seed)
        return tables

    def _engine(self, log: Dataset, tables: Tables) -> SampledEngine:
        names = [f.name for f in fields(Recipe)]
        recipe = Recipe(**{name: getattr(self, name) for name in names})
        law = laws.parse(self.negatives)
        return SampledEngine(log, tables, self._objective(), law, recipe, seed=self.seed, n_jobs=self.n_jobs)

    def _remedy(self) -> str:
        rate = float(self.learning_rate or 0)
        return (
            f"at learning_rate={rate:g} and batch_size={self.batch_size}. Try learning_rate={rate / 5:g}, or a "
            "smaller batch_size."
        )

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
        tables = self._fresh(log, old.factors, old.flip_factors)
        tables.users[users.codes(known.users.values)] = old.users
        tables.items[items.codes(known.items.values)] = old.items
        self._go_on(log, tables, epochs, progress=progress)
        return self

    # --- strangers, and what is saved --------------------------------------------------------------

    def _score_histories(self, histories: Any) -> Floats:
        rows = [histories.indices[a:b] for a, b in zip(histories.indptr[:-1], histories.indptr[1:], strict=True)]
        return self._score_vectors(np.stack([self._fold_in(row) for row in rows]))

    def _fold_in(self, history: Codes) -> Floats:
        """The row that a user with this history would have, the item tables as they are."""
        log = self.train_
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
        tables = self.tables_
        return tables.item_flips @ tables.user_flips.mean(axis=0) if tables.flip_factors else None
