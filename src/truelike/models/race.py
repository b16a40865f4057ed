"""The race of AutoRecommender: candidates are trained on part of the interactions and compared on the others.

A family is a model class with a few axes: lists of values of its parameters, ascending, of which one is where the
search starts. Values of the regularization and the like are multiples of what the class takes by default, which
follows the data. The race has four stages:

1. Every family starts, with few factors. ItemPop, which is not personal, shows what the others must exceed.
2. The families with axes that come near the best search those that matter most, one after another: up or down while
   it gets better. If that costs little, they also move along two at once.
3. The best two search their other axes, and whether repetition and recency should count.
4. A blend of the best two. Then families that fell behind try more factors.

Stages 2 to 4 are repeated while there is something new to try within the budget.

The order of the trials depends on the data and on the results alone, never on the clock. What a trial costs is
estimated from the size of the data, and the budget decides which are too dear. So a race can be repeated, and one that
was stopped by the clock can be repeated up to the same trial.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.errors import DivergedError, TooLargeError, muted
from truelike.evaluation.evaluate import evaluate
from truelike.evaluation.metrics import parse_measure
from truelike.evaluation.significance import paired_t
from truelike.models.base import Recommender
from truelike.models.blend import Blend
from truelike.models.ease import DENSE, NEIGHBORS, usual_regularization
from truelike.models.exact_mf import ExactBPO, ExactMF, SoftmaxMF, default_regularization
from truelike.models.ials import IALS
from truelike.models.registry import build
from truelike.progress import note
from truelike.training.weights import settings_to_try

NEAR = 0.75, 0.9  # of the best, for a family to go on after the first stage and after the second
WELCOME = 3  # families that go on after the first stage, at most
FINAL = 2  # families that go on after the second
TIE = 0.005  # relative difference below which a cheaper candidate may be taken
CHEAPER = 3.0  # times, for a candidate to be taken on a tie
SPARSE = 6_000  # items above which EDLAE starts with few neighbors
BLENDS = {
    0.5: None,
    0.3: 0.2,
    0.7: 0.8,
}  # weights of the second model of a blend, and what follows the best of them
CHEAP = 0.01  # part of the budget that a trial may cost to move along two axes at once
OVERHEAD = 0.1  # seconds of a trial on the smallest data
SIGNIFICANT = 0.2  # p-value of the two-sided test: 10 % for the better one


@dataclass(frozen=True)
class Axis:
    """The values of a parameter, ascending, and where the search starts."""

    name: str
    values: tuple[Any, ...]
    start: int


L2 = Axis("regularization", (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8), 4)
FACTORS = Axis("factors", (64, 128, 256, 512), 0)
RATE = Axis("learning_rate", (0.25, 0.5, 1.0, 2.0, 4.0), 2)
POWER = Axis("frequency_power", (0.5, 0.75, 1.0), 1)


@dataclass(frozen=True)
class Family:
    """A model class and how it is searched.

    Attributes
    ----------
    name
        Name of the class.
    axes
        The parameters that are searched.
    first, later
        The names of the axes that are searched in the second and in the third stage, in this order.
    parameters
        Turns values of the axes into parameters for some data.
    """

    name: str
    axes: tuple[Axis, ...]
    first: tuple[str, ...]
    later: tuple[str, ...]
    parameters: Callable[[Dataset, Mapping[str, Any]], dict[str, Any]]


def _exact(model: type[ExactMF]) -> Callable[[Dataset, Mapping[str, Any]], dict[str, Any]]:
    def parameters(train: Dataset, at: Mapping[str, Any]) -> dict[str, Any]:
        usual = model(factors=at["factors"])
        rate, l2 = usual._learning_rate(train), default_regularization(train)
        return {**at, "learning_rate": at["learning_rate"] * rate, "regularization": at["regularization"] * l2}

    return parameters


def _ials(train: Dataset, at: Mapping[str, Any]) -> dict[str, Any]:
    unobserved = at["unobserved_weight"] * IALS()._weights(train).unobserved
    usual = IALS(unobserved_weight=unobserved)._weights(train).regularization
    return {**at, "unobserved_weight": unobserved, "regularization": at["regularization"] * usual}


_USUAL_EASE: WeakKeyDictionary[Dataset, float] = WeakKeyDictionary()  # it takes a while to compute


def _edlae(train: Dataset, at: Mapping[str, Any]) -> dict[str, Any]:
    if train not in _USUAL_EASE:
        _USUAL_EASE[train] = usual_regularization(train, -1)  # the same for any number of threads
    usual = _USUAL_EASE[train] * float(np.sqrt(1 - at["dropout"]))
    sparse = not at["dense"] and SPARSE < train.n_items <= DENSE
    return {
        "dropout": at["dropout"],
        "regularization": at["regularization"] * usual,
        **({"neighbors": NEIGHBORS} if sparse else {}),
    }


FAMILIES = (
    Family("ItemPop", (), (), (), lambda train, at: dict(at)),
    Family("ItemKNN", (), (), (), lambda train, at: dict(at)),
    Family(
        "IALS",
        (L2, Axis("unobserved_weight", (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0), 3), FACTORS),
        ("regularization", "unobserved_weight", "factors"),
        ("regularization",),
        _ials,
    ),
    Family(
        "EDLAE",
        (
            Axis("dropout", (0.2, 0.33, 0.5, 0.67, 0.8, 0.9), 3),
            Axis("regularization", (0.1, 0.3, 1.0, 3.0), 2),
            Axis("dense", (False, True), 0),
        ),
        ("regularization", "dropout"),
        ("dense",),
        _edlae,
    ),
    Family(
        "ExactBPO",
        (L2, RATE, FACTORS, POWER, Axis("unobserved_weight", (0.1, 0.3, 1.0), 2)),
        ("regularization", "learning_rate", "factors"),
        ("regularization", "learning_rate", "unobserved_weight", "frequency_power"),
        _exact(ExactBPO),
    ),
    Family(
        "SoftmaxMF",
        (L2, RATE, FACTORS, POWER),
        ("regularization", "learning_rate", "factors"),
        ("regularization", "learning_rate", "frequency_power"),
        _exact(SoftmaxMF),
    ),
)


@dataclass(frozen=True)
class Candidate:
    """A family at some places of its axes, and how it counts repetition and recency."""

    family: Family
    places: tuple[int, ...]
    counting: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def start(cls, family: Family) -> Candidate:
        """Where the search of a family starts."""
        return cls(family, tuple(axis.start for axis in family.axes))

    def moved(self, name: str, step: int) -> Candidate | None:
        """The candidate one step up or down an axis; None: there is none."""
        [at] = [n for n, axis in enumerate(self.family.axes) if axis.name == name]
        place = self.places[at] + step
        if not 0 <= place < len(self.family.axes[at].values):
            return None
        return replace(self, places=(*self.places[:at], place, *self.places[at + 1 :]))

    def make(self, train: Dataset, seed: int, n_jobs: int | None) -> Recommender:
        """The model for some data, not fitted."""
        at = {axis.name: axis.values[place] for axis, place in zip(self.family.axes, self.places, strict=True)}
        model = build(self.family.name, {})
        parameters = {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in self.family.parameters(train, at).items()
        }
        known = model.get_params()
        own = {name: value for name, value in (("seed", seed), ("n_jobs", n_jobs)) if name in known}
        return model.set_params(**parameters, **dict(self.counting), **own)


@dataclass(frozen=True)
class Blended:
    """The blend of two candidates."""

    first: Candidate
    second: Candidate
    weight: float

    def make(self, train: Dataset, seed: int, n_jobs: int | None) -> Recommender:
        """The model for some data, not fitted."""
        first, second = (named(each.make(train, seed, n_jobs)) for each in (self.first, self.second))
        return Blend(first=first, second=second, weight=self.weight, seed=seed, n_jobs=n_jobs)


def named(model: Recommender) -> str:
    """A model as `registry.build` reads it.

    >>> named(IALS(factors=8, n_jobs=2))
    'IALS:factors=8'
    """
    from truelike.parameters import changed

    given = {name: value for name, value in changed(model).items() if name not in ("n_jobs", "seed")}
    return ":".join([model.name, *(f"{name}={value}" for name, value in given.items())])


@dataclass
class Trial:
    """A candidate that was tried, or why it was not.

    Attributes
    ----------
    candidate, model
        The candidate, and the model as it is written in Python.
    values
        The metric of each held-out user; empty if it was not tried.
    seconds
        How long training took.
    cost
        The seconds that it was expected to take on two cores.
    note
        Why there are no values.
    """

    candidate: Candidate | Blended
    model: str
    values: NDArray[np.float64]
    seconds: float
    cost: float
    note: str = ""
    fitted: Recommender | None = field(default=None, repr=False)

    @property
    def score(self) -> float:
        """The mean over users."""
        return float(self.values.mean()) if len(self.values) else float("-inf")


class BudgetError(Exception):
    """No further trial may start."""


class Race:
    """Candidates that are trained on `train` and compared on `held_out`.

    Parameters
    ----------
    train, held_out
        The two parts of the data.
    monitor
        The metric of the comparison.
    budget
        Expected seconds that all trials may take together on two cores.
    dearest
        Expected seconds that one trial may take.
    deadline
        Value of `time.monotonic` after which no further trial starts; None: none.
    n_trials
        Number of trials; None: as many as the budget allows.
    seed, n_jobs
        Parameters of the models.
    progress
        Whether to report each trial.
    """

    def __init__(
        self,
        train: Dataset,
        held_out: Dataset,
        *,
        monitor: str,
        budget: float,
        dearest: float,
        deadline: float | None,
        n_trials: int | None,
        seed: int,
        n_jobs: int | None,
        progress: bool,
    ) -> None:
        self.train, self.held_out, self.monitor = train, held_out, monitor
        self.budget, self.dearest, self.deadline, self.n_trials = budget, dearest, deadline, n_trials
        self.seed, self.n_jobs, self.progress = seed, n_jobs, progress
        self.trials: list[Trial] = []
        self.spent = 0.0
        self.unaffordable: list[Trial] = []
        self.narrow = False  # whether a larger budget would search more widely
        self.stopped = ""  # why the race ended before its end
        self._known: dict[Candidate | Blended, Trial] = {}

    def run(self) -> Trial:
        """The winner."""
        try:
            self._stages()
        except BudgetError as reason:
            self.stopped = str(reason)
        return self.winner()

    def _stages(self) -> None:
        starts = sorted((Candidate.start(family) for family in FAMILIES), key=self._cost)
        for candidate in starts:
            self.attempt(candidate)
        tried = 0
        while len(self.trials) > tried:  # a round ends where the one before ended, unless it finds something new
            tried = len(self.trials)
            self._round()

    def _round(self) -> None:
        for family in self._best_families(WELCOME, NEAR[0], searched=True):
            for axis in family.first:
                self._search(family, axis)
            self._search_pairs(family)
        for family in self._best_families(FINAL, NEAR[1], searched=True):
            for axis in family.later:
                self._search(family, axis)
        for family in self._best_families(FINAL, NEAR[1], searched=True):
            self._count(family)
        self._blend()
        for family in FAMILIES:  # families that fell behind may lack factors
            if "factors" in family.first and self._of(family):
                self._search(family, "factors")

    def _search(self, family: Family, axis: str) -> None:
        """Move up or down an axis from the best candidate of a family, while it gets better."""
        for step in (1, -1):
            moved = False
            while True:
                best = self.best_of(family)
                candidate = best.candidate.moved(axis, step) if isinstance(best.candidate, Candidate) else None
                found = None if candidate is None else self.attempt(candidate)
                if found is None or found.score <= best.score:
                    break
                moved = True
            if moved:
                return

    def _search_pairs(self, family: Family) -> None:
        """Move along two axes at once, once, where a trial costs little: parameters may depend on each other."""
        best = self.best_of(family)
        if best.cost > CHEAP * self.budget:
            self.narrow = True
            return
        for one, other in combinations(family.first, 2):
            for steps in product((1, -1), repeat=2):
                assert isinstance(best.candidate, Candidate)
                moved = best.candidate.moved(one, steps[0])
                candidate = None if moved is None else moved.moved(other, steps[1])
                if candidate is not None:
                    self.attempt(candidate)

    def _count(self, family: Family) -> None:
        """Let repetition and recency count, where the data has them and the model can use them."""
        if "recency" in build(family.name, {}).get_params():
            best = self.best_of(family).candidate
            assert isinstance(best, Candidate)
            for counting in settings_to_try(self.train)[1:]:
                self.attempt(replace(best, counting=tuple(counting.items())))

    def _blend(self) -> None:
        best = [self.best_of(family) for family in self._best_families(FINAL, NEAR[1])]
        if len(best) < FINAL:
            return
        first, second = (trial.candidate for trial in best)
        assert isinstance(first, Candidate)
        assert isinstance(second, Candidate)
        found = [(self.attempt(Blended(first, second, weight)), following) for weight, following in BLENDS.items()]
        following = max(found, key=lambda each: each[0].score if each[0] else 0.0)[1]
        if following is not None:
            self.attempt(Blended(first, second, following))

    # --- one trial ------------------------------------------------------------------------------

    def _cost(self, candidate: Candidate | Blended) -> float:
        if isinstance(candidate, Blended):  # both are fitted already
            return 0.02 * sum(self._cost(each) for each in (candidate.first, candidate.second))
        return OVERHEAD + candidate.make(self.train, self.seed, self.n_jobs)._expected_seconds(self.train)

    def attempt(self, candidate: Candidate | Blended) -> Trial | None:
        """Train a candidate and evaluate it, unless that is known.

        None if it has no result: it is beyond the budget, could not be trained, or is a model that was tried already.
        """
        if candidate in self._known:
            known = self._known[candidate]
            return known if len(known.values) else None
        cost, model = self._cost(candidate), candidate.make(self.train, self.seed, self.n_jobs)
        trial = Trial(candidate, repr(model), np.zeros(0), 0.0, cost)
        self._known[candidate] = trial
        if any(other.model == trial.model for other in self.trials):  # other places of the axes, the same model
            return None
        dear = self.spent + cost > self.budget or cost > self.dearest
        if dear and self.trials and isinstance(candidate, Candidate):  # a blend is evaluated only
            trial.note = "beyond the budget"
            self.unaffordable.append(trial)
            return None
        if self.n_trials is not None and len(self.trials) >= self.n_trials:
            raise BudgetError(f"{self.n_trials} trials were run")
        if self.deadline is not None and self.trials and time.monotonic() > self.deadline:
            raise BudgetError("the time was over")
        self.spent += cost
        self.trials.append(trial)
        self._run(trial, model)
        return trial if len(trial.values) else None

    def _run(self, trial: Trial, model: Recommender) -> None:
        started = time.perf_counter()
        with muted():  # warnings of candidates that rank badly or take long
            try:
                trial.fitted = self._fitted(trial.candidate, model)
                trial.seconds = time.perf_counter() - started
                metric, k = parse_measure(self.monitor)
                found = evaluate(
                    trial.fitted, self.held_out, ks=k, metrics=metric, n_jobs=self.n_jobs, notes=False
                )
                trial.values = found.values[self.monitor]
            except (DivergedError, TooLargeError) as error:
                trial.note = str(error)
        self._forget()
        if self.progress:
            result = f"{self.monitor} {trial.score:.4f}" if len(trial.values) else trial.note
            note(f"trial {len(self.trials)}: {trial.model}  {result}  {trial.seconds:.1f} s")

    def _fitted(self, candidate: Candidate | Blended, model: Recommender) -> Recommender:
        if isinstance(candidate, Blended):
            parts = [self._known[each].fitted for each in (candidate.first, candidate.second)]
            return model._fitted(self.train, dict(zip(("first_", "second_"), parts, strict=True)))
        return model.fit(self.train, progress=False)

    def _forget(self) -> None:
        """Keep the fitted models of the best of each family only."""
        kept = {id(self.best_of(family)) for family in FAMILIES if self._of(family)}
        best = max(self.trials, key=lambda trial: trial.score)
        for trial in self.trials:
            if id(trial) not in kept and trial is not best:
                trial.fitted = None

    # --- the outcome ----------------------------------------------------------------------------

    def _of(self, family: Family) -> list[Trial]:
        return [
            trial
            for trial in self.trials
            if isinstance(trial.candidate, Candidate) and trial.candidate.family is family and len(trial.values)
        ]

    def best_of(self, family: Family) -> Trial:
        """The best trial of a family."""
        return max(self._of(family), key=lambda trial: trial.score)

    def _best_families(self, n: int, near: float, searched: bool = False) -> list[Family]:
        """The best families, or the best with axes to search; the best first, at most n, none far below the best."""
        tried = [family for family in FAMILIES if self._of(family)]
        ranked = sorted(tried, key=lambda family: -self.best_of(family).score)
        least = near * self.best_of(ranked[0]).score if ranked else 0.0
        return [f for f in ranked if self.best_of(f).score >= least and (f.axes or not searched)][:n]

    def winner(self) -> Trial:
        """The best trial; on a tie a much cheaper one; a blend only if it is better beyond noise."""
        tried = [trial for trial in self.trials if len(trial.values)]
        if not tried:
            raise DivergedError(f"no model could be trained: {self.trials[-1].note}")
        single = [trial for trial in tried if isinstance(trial.candidate, Candidate)]
        best = max(single, key=lambda trial: trial.score)
        for trial in sorted(single, key=lambda trial: trial.cost):
            close = best.score - trial.score <= TIE * best.score
            cheaper = CHEAPER * (trial.cost - OVERHEAD) <= best.cost - OVERHEAD
            if close and cheaper and not is_better(best, trial):
                best = trial
                break
        blend = max(tried, key=lambda trial: trial.score)
        return blend if isinstance(blend.candidate, Blended) and is_better(blend, best) else best


def is_better(one: Trial, other: Trial) -> bool:
    """Whether a trial is better than another beyond noise, by a paired t-test over the held-out users."""
    return one.score > other.score and paired_t(one.values, other.values) < SIGNIFICANT
