"""The race of AutoRecommender: candidates are trained on part of the interactions and compared on the others.

A family is a model class with a few axes: lists of values of its parameters, ascending, of which one is where the
search starts. Values of the regularization and the like are multiples of what the class takes by default, which
follows the data. The race has four stages:

1. Every family starts, with few factors. ItemPop, which is not personal, shows what the others must exceed. With
   impressions ImpressionMF starts, too.
2. The families with axes that come near the best search those that matter most, one after another: up or down while
   it gets better. If that costs little, they also move along two at once.
3. The best two search their other axes, and whether repetition and recency should count.
4. A blend of the best two. Then families that fell behind try more factors.

Stages 2 to 4 are repeated while there is something new to try within the budget.

Where the data has other kinds of feedback, the weight of each is searched after the first stage, one kind after
another, on the best family: below zero only where no positive weight is better. A kind is kept if its best weight is
better beyond noise, by a paired t-test that counts all weights of all kinds that were tried (`weigh`). The best
families then search with the weights that were kept.

The order of the trials depends on the data and on the results alone, never on the clock. What a trial costs is
estimated from the size of the data, and the budget decides which are too dear. So a race can be repeated, and one that
was stopped by the clock can be repeated up to the same trial.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from truelike.core.parameters import changed
from truelike.core.progress import note
from truelike.data.dataset import Dataset
from truelike.data.replay import INTERACTIONS
from truelike.data.seen import NAME, SeenBy, SeenRules
from truelike.engines.weights import settings_to_try
from truelike.errors import muted
from truelike.evaluation.evaluate import evaluate
from truelike.evaluation.metrics import parse_measure
from truelike.evaluation.significance import paired_t
from truelike.models.base import Recommender
from truelike.models.blend import Blend
from truelike.models.ease import DENSE, NEIGHBORS, usual_regularization
from truelike.models.exact_mf import ExactBPO, ExactMF, SoftmaxMF, default_learning_rate, default_regularization
from truelike.models.ials import usual_weights
from truelike.models.objective_names import kind_of
from truelike.models.registry import build
from truelike.models.weighted_kinds import WeightedKinds, counts_pairs_by_weight
from truelike.selection.search import no_result
from truelike.selection.space import SearchSpace
from truelike.selection.trials import Trial, recorded
from truelike.selection.variants import Parameters

MIN_SHARES_OF_BEST = 0.75, 0.9  # for a family to go on after the first stage and after the second
MAX_SEARCHED_FAMILIES = 3  # that go on after the first stage
MAX_FINAL_FAMILIES = 2  # that go on after the second
MAX_TIE_GAP = 0.005  # relative difference below which a cheaper candidate may be taken
MIN_SPEEDUP_ON_TIE = 3.0  # for a candidate to be taken on a tie
MAX_DENSE_START_ITEMS = 6_000  # items above which EDLAE starts with few neighbors
# weights of the second model of a blend, and the weight that follows where one of them is the best
BLENDS = {0.5: None, 0.3: 0.2, 0.7: 0.8}
MAX_PAIR_TRIAL_SHARE = 0.01  # part of the budget that a trial may cost to move along two axes at once
TRIAL_OVERHEAD = 0.1  # seconds of a trial on the smallest data
MAX_P_VALUE = 0.2  # of the two-sided test: 10 % for the better one
# weights of a kind of feedback; each path is followed while it gets better, and the last one if nothing was
WEIGHT_PATHS = (0.3, 1.0, 3.0), (0.1, 0.03), (-0.1, -0.3, -1.0)
PATHS_WITHOUT_WEIGHTING = (1.0,), (-0.1, -0.3, -1.0)  # of a model that counts all pairs the same
MAX_KIND_P_VALUE = 0.05  # for a kind to be kept, times the number of weights of all kinds
MAX_KINDS_SHARE = 0.4  # of the budget, for the weights of kinds


L2 = [0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8]
FACTORS = [64, 128, 256, 512]
RATES = [0.25, 0.5, 1.0, 2.0, 4.0]
POWERS = [0.5, 0.75, 1.0]
At = Parameters  # a value of each axis


@dataclass(frozen=True)
class Family:
    """A model class and how it is searched.

    The space has the values of each axis, ascending, and `start` the places where the search starts. The axes named in
    `first` are searched in the second stage and those in `later` in the third, in this order. `parameters` turns
    values of the axes into parameters for some data. `needs` names a part of the dataset, without which the family does
    not start.
    """

    name: str
    space: SearchSpace = field(hash=False)
    start: tuple[int, ...]
    first: tuple[str, ...]
    later: tuple[str, ...]
    parameters: Callable[[Dataset, At], Parameters]
    needs: str | None = None


def _exact(model: type[ExactMF]) -> Callable[[Dataset, At], Parameters]:
    def parameters(train: Dataset, at: At) -> Parameters:
        usual = model(factors=at["factors"])
        rate = default_learning_rate(train, kind_of(usual.objective), usual.factors)
        l2 = default_regularization(train)
        return {**at, "learning_rate": at["learning_rate"] * rate, "regularization": at["regularization"] * l2}

    return parameters


def _ials(train: Dataset, at: At) -> Parameters:
    unobserved = at["unobserved_weight"] * usual_weights(train).unobserved
    usual = usual_weights(train, unobserved).regularization
    return {**at, "unobserved_weight": unobserved, "regularization": at["regularization"] * usual}


_USUAL_EASE: WeakKeyDictionary[Dataset, float] = WeakKeyDictionary()  # it takes a while to compute


def _edlae(train: Dataset, at: At) -> Parameters:
    if train not in _USUAL_EASE:
        _USUAL_EASE[train] = usual_regularization(train, -1)  # the same for any number of threads
    usual = _USUAL_EASE[train] * float(np.sqrt(1 - at["dropout"]))
    sparse = not at["dense"] and MAX_DENSE_START_ITEMS < train.n_items <= DENSE
    return {
        "dropout": at["dropout"],
        "regularization": at["regularization"] * usual,
        **({"neighbors": NEIGHBORS} if sparse else {}),
    }


FAMILIES = (
    Family("ItemPop", SearchSpace({}), (), (), (), lambda train, at: {}),
    Family("ItemKNN", SearchSpace({}), (), (), (), lambda train, at: {}),
    Family(
        "IALS",
        SearchSpace(
            {
                "regularization": L2,
                "unobserved_weight": [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0],
                "factors": FACTORS,
            }
        ),
        (4, 3, 0),
        ("regularization", "unobserved_weight", "factors"),
        ("regularization",),
        _ials,
    ),
    Family(
        "EDLAE",
        SearchSpace(
            {
                "dropout": [0.2, 0.33, 0.5, 0.67, 0.8, 0.9],
                "regularization": [0.1, 0.3, 1.0, 3.0],
                "dense": [False, True],
            }
        ),
        (3, 2, 0),
        ("regularization", "dropout"),
        ("dense",),
        _edlae,
    ),
    Family(
        "ExactBPO",
        SearchSpace(
            {
                "regularization": L2,
                "learning_rate": RATES,
                "factors": FACTORS,
                "frequency_power": POWERS,
                "unobserved_weight": [0.1, 0.3, 1.0],
            }
        ),
        (4, 2, 0, 1, 2),
        ("regularization", "learning_rate", "factors"),
        ("regularization", "learning_rate", "unobserved_weight", "frequency_power"),
        _exact(ExactBPO),
    ),
    Family(
        "SoftmaxMF",
        SearchSpace({"regularization": L2, "learning_rate": RATES, "factors": FACTORS, "frequency_power": POWERS}),
        (4, 2, 0, 1),
        ("regularization", "learning_rate", "factors"),
        ("regularization", "learning_rate", "frequency_power"),
        _exact(SoftmaxMF),
    ),
    # It ranks by p(like). Held-out interactions are liked and were shown, which the others rank by.
    Family("ImpressionMF", SearchSpace({}), (), (), (), lambda train, at: {}, needs="shown"),
)


@dataclass(frozen=True)
class Candidate:
    """A family at some places of its axes, and how it counts repetition and recency."""

    family: Family
    places: tuple[int, ...]
    counting: tuple[tuple[str, object], ...] = ()

    def moved(self, name: str, step: int) -> Candidate | None:
        """The candidate one step up or down an axis; None: there is none."""
        axes = self.family.space.axes
        at = list(axes).index(name)
        place = self.places[at] + step
        if not 0 <= place < len(axes[name]):
            return None
        return replace(self, places=(*self.places[:at], place, *self.places[at + 1 :]))

    def make(self, train: Dataset, seed: int, n_jobs: int | None) -> Recommender:
        """The model for some data, not fitted."""
        axes = self.family.space.axes.items()
        at = {name: values[place] for (name, values), place in zip(axes, self.places, strict=True)}
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


@dataclass(frozen=True)
class Weighted:
    """A candidate that also learns from other kinds of feedback, each with a weight."""

    base: Candidate
    weights: tuple[tuple[str, float], ...]

    def moved(self, name: str, step: int) -> Weighted | None:
        """The candidate one step up or down an axis, with the same weights; None: there is none."""
        base = self.base.moved(name, step)
        return None if base is None else replace(self, base=base)

    @property
    def trains(self) -> bool:
        """Whether the model is trained on a kind; if not, the candidate without kinds is trained already."""
        return any(weight > 0 for _, weight in self.weights)

    def make(self, train: Dataset, seed: int, n_jobs: int | None) -> WeightedKinds:
        """The model for some data, not fitted."""
        base = named(self.base.make(train, seed, n_jobs))
        return WeightedKinds(model=base, weights=dict(self.weights), seed=seed, n_jobs=n_jobs)


Entrant = Candidate | Blended | Weighted


@dataclass(frozen=True)
class Finding:
    """What a kind of feedback brings: the best of its weights, beside the model without the kind.

    `gain` is relative, and `p_value` is corrected for the number of weights that were tried. It is infinite, and the
    weight zero, where no weight could be tried.
    """

    kind: str
    weight: float
    gain: float
    p_value: float

    @property
    def is_kept(self) -> bool:
        """Whether the kind helps beyond noise."""
        return self.gain > 0 and self.p_value < MAX_KIND_P_VALUE


def named(model: Recommender) -> str:
    """A model as `registry.build` reads it.

    >>> import truelike as tl
    >>> named(tl.IALS(factors=8, n_jobs=2))
    'IALS:factors=8'
    """
    given = {name: value for name, value in changed(model).items() if name not in ("n_jobs", "seed")}
    return ":".join([model.name, *(f"{name}={value}" for name, value in given.items())])


class BudgetError(Exception):
    """No further trial may start."""


@dataclass(eq=False)
class Race:
    """Candidates that are trained on `train` and compared on `held_out`, one after another, in this process.

    All trials together may take `budget` seconds, as they are expected on two cores, and one trial
    `max_trial_seconds`. After `deadline`, a value of `time.monotonic`, and after `n_trials`, no further trial starts.
    """

    train: Dataset
    held_out: Dataset
    metric: str
    budget: float
    max_trial_seconds: float
    deadline: float | None
    n_trials: int | None
    seed: int
    n_jobs: int | None
    progress: bool
    trials: dict[Entrant, Trial] = field(default_factory=dict)  # in their order
    spent: float = 0.0
    unaffordable: list[Trial] = field(default_factory=list)
    narrow: bool = False  # whether a larger budget would search more widely
    stopped: str = ""  # why the race ended before its end
    findings: list[Finding] = field(default_factory=list)  # one for each kind of feedback that was weighed
    _known: set[Entrant] = field(default_factory=set)

    def run(self) -> Entrant:
        """The winner."""
        starting = [each for each in FAMILIES if each.needs is None or each.needs in self.train.carries]
        try:
            for candidate in sorted((Candidate(family, family.start) for family in starting), key=self._cost):
                self.attempt(candidate)
            self.weigh()
            tried = 0
            # a round ends where the one before ended, unless it finds something new
            while len(self.trials) > tried:
                tried = len(self.trials)
                self._round()
        except BudgetError as reason:
            self.stopped = str(reason)
        return self.winner()

    def _round(self) -> None:
        self._apply_weights()
        for family in self._best_families(MAX_SEARCHED_FAMILIES, MIN_SHARES_OF_BEST[0], searched=True):
            for axis in family.first:
                self._search(family, axis)
            self._search_pairs(family)
        for family in self._best_families(MAX_FINAL_FAMILIES, MIN_SHARES_OF_BEST[1], searched=True):
            for axis in family.later:
                self._search(family, axis)
        for family in self._best_families(MAX_FINAL_FAMILIES, MIN_SHARES_OF_BEST[1], searched=True):
            self._count(family)
        self._blend()
        for family in FAMILIES:  # families that fell behind may lack factors
            if "factors" in family.first and self._of(family):
                self._search(family, "factors")
        self._apply_weights()

    # --- other kinds of feedback ----------------------------------------------------------------

    def weigh(self) -> None:
        """Search the weight of each kind on the best family, those with the most pairs first."""
        kinds = {name: kind.csr.nnz for name, kind in self.train.kinds.items() if kind.csr.nnz}
        personal = [each for each in self._best_families(len(FAMILIES), 0.0) if each.name != "ItemPop"]
        if not kinds or not personal:
            return
        base, most_seconds = self.best_of(personal[0]), MAX_KINDS_SHARE * self.budget + self.spent
        tried: dict[str, list[Weighted]] = {}
        without: dict[str, Entrant] = {}
        try:
            for name in sorted(kinds, key=lambda each: (-kinds[each], each)):
                kept = self._helping(tried, without)
                without[name], tried[name] = Weighted(base, tuple(sorted(kept.items()))) if kept else base, []
                self._search_weight(base, kept, name, without[name], tried[name], most_seconds)
        finally:  # also of a race that ends here
            n_tried = sum(map(len, tried.values()))
            self.findings = [self._finding(name, tried[name], without[name], n_tried) for name in tried]

    def _search_weight(
        self, base: Candidate, kept: dict[str, float], name: str, without: Entrant, tried: list[Weighted],
        most_seconds: float,
    ) -> None:  # fmt: skip
        """Try weights of a kind beside those that are kept."""
        counts, best = counts_pairs_by_weight(build(base.family.name, {})), without
        for path in WEIGHT_PATHS if counts else PATHS_WITHOUT_WEIGHTING:
            if path[0] < 0 and best is not without:
                return
            for weight in path:
                candidate = Weighted(base, tuple(sorted({**kept, name: weight}.items())))
                if self.spent > most_seconds or not self.attempt(candidate):
                    break
                tried.append(candidate)
                if self.score(candidate) <= self.score(best):
                    break
                best = candidate

    def _helping(self, tried: dict[str, list[Weighted]], without: dict[str, Entrant]) -> dict[str, float]:
        """The weights of the kinds that seem to help so far."""
        n_tried = sum(map(len, tried.values()))
        found = [self._finding(name, tried[name], without[name], n_tried) for name in tried]
        return {each.kind: each.weight for each in found if each.is_kept}

    def _finding(self, name: str, tried: list[Weighted], without: Entrant, n_tried: int) -> Finding:
        if not tried:
            return Finding(name, 0.0, 0.0, math.inf)
        best = max(tried, key=self.score)
        p_value = min(1.0, n_tried * paired_t(self.trials[best].values, self.trials[without].values))
        before = self.score(without)
        gain = (self.score(best) - before) / before if before > 0 else 0.0
        return Finding(name, dict(best.weights)[name], gain, p_value)

    def kept_weights(self) -> tuple[tuple[str, float], ...]:
        """The weights of the kinds that help beyond noise."""
        return tuple(sorted((each.kind, each.weight) for each in self.findings if each.is_kept))

    def _apply_weights(self) -> None:
        """Try the weights that are kept on the best families; a round then searches these."""
        if kept := self.kept_weights():
            for family in self._best_families(MAX_FINAL_FAMILIES, MIN_SHARES_OF_BEST[1]):
                self.attempt(Weighted(self.best_of(family), kept))

    def _searched(self, family: Family) -> Candidate | Weighted:
        """What the search of a family moves: its best candidate, with the weights that are kept if it has them."""
        weighted = [each for each in self._kept_weighted() if each.base.family is family]
        return max(weighted, key=self.score) if weighted else self.best_of(family)

    def _kept_weighted(self) -> list[Weighted]:
        """The candidates with the weights that are kept, and with a result."""
        kept = self.kept_weights()
        found = [each for each in self.trials if isinstance(each, Weighted) and kept and each.weights == kept]
        return [each for each in found if self.score(each) > -math.inf]

    # --- searching ------------------------------------------------------------------------------

    def _search(self, family: Family, axis: str) -> None:
        """Move up or down an axis from the best candidate of a family, while it gets better."""
        for step in (1, -1):
            moved = False
            while True:
                best = self._searched(family)
                candidate = best.moved(axis, step)
                if candidate is None or not self.attempt(candidate) or self.score(candidate) <= self.score(best):
                    break
                moved = True
            if moved:
                return

    def _search_pairs(self, family: Family) -> None:
        """Move along two axes at once, once, where a trial costs little: parameters may depend on each other."""
        best = self._searched(family)
        if self._cost_of(best) > MAX_PAIR_TRIAL_SHARE * self.budget:
            self.narrow = True
            return
        for one, other in combinations(family.first, 2):
            for steps in product((1, -1), repeat=2):
                moved = best.moved(one, steps[0])
                candidate = None if moved is None else moved.moved(other, steps[1])
                if candidate is not None:
                    self.attempt(candidate)

    def _count(self, family: Family) -> None:
        """Let repetition and recency count, where the data has them and the model can use them."""
        if "recency" in build(family.name, {}).get_params():
            best = self.best_of(family)
            for counting in settings_to_try(self.train)[1:]:
                self.attempt(replace(best, counting=tuple(counting.items())))

    def _blend(self) -> None:
        best = [self.best_of(family) for family in self._best_families(MAX_FINAL_FAMILIES, MIN_SHARES_OF_BEST[1])]
        if len(best) < MAX_FINAL_FAMILIES:
            return
        found = {}
        for weight, following in BLENDS.items():
            blend = Blended(best[0], best[1], weight)
            found[following] = self.score(blend) if self.attempt(blend) else 0.0
        following = max(found, key=found.__getitem__)
        if following is not None:
            self.attempt(Blended(best[0], best[1], following))

    # --- one trial ------------------------------------------------------------------------------

    @cached_property
    def seen(self) -> Dataset | Literal["train"]:
        """What lists leave out beside the training data: what the user dislikes, and what cannot be held out.

        Where what is known of held-out pairs was held out with them, an item in the cart is never a hit. A model that
        lists it would seem worse than it is.
        """
        train = self.train
        held_out = self.held_out.recode(train.users, train.items)[0].csr
        left_out = [
            abs(kind.csr)
            for kind in train.kinds.values()
            if kind.csr.sum() < 0 or not kind.csr.multiply(held_out).nnz
        ]
        if not left_out:
            return "train"
        pairs = sparse.csr_array(sum(left_out[1:], start=left_out[0]))
        users = np.repeat(np.arange(train.n_users, dtype=np.int32), np.diff(pairs.indptr))
        return Dataset.from_pairs(train.users, train.items, users, pairs.indices.astype(np.int32))

    @cached_property
    def exclude_seen(self) -> SeenBy:
        """By which events of the training data items are seen: the interactions alone.

        Models with and without other kinds are so asked for the same lists. The period of the schema counts where
        repeated interactions were held out, and can be hits.
        """
        held_out = self.held_out.recode(self.train.users, self.train.items)[0].csr
        seconds = SeenRules.of(True, self.train.schema).seconds.get(INTERACTIONS, 0.0)
        if seconds == math.inf or not self.train.csr.multiply(held_out).nnz:
            return [NAME]
        return {NAME: f"{seconds:f}s"}

    def _cost(self, candidate: Entrant) -> float:
        """The seconds that a trial is expected to take on two cores."""
        if isinstance(candidate, Blended):  # both are fitted already
            return 0.02 * sum(self._cost(each) for each in (candidate.first, candidate.second))
        if isinstance(candidate, Weighted) and not candidate.trains:
            return 0.02 * self._cost(candidate.base)
        return TRIAL_OVERHEAD + candidate.make(self.train, self.seed, self.n_jobs).expected_seconds(self.train)

    def attempt(self, candidate: Entrant) -> bool:
        """Train a candidate and evaluate it, unless that is known; returns whether it has a result.

        It has none if it is beyond the budget, could not be trained, or is a model that was tried already.
        """
        if candidate in self._known:
            return self.score(candidate) > -math.inf
        self._known.add(candidate)
        cost, model = self._cost(candidate), candidate.make(self.train, self.seed, self.n_jobs)
        trial = Trial(model, metric=self.metric, record={"model": repr(model), "cost": cost})
        if any(other.record["model"] == trial.record["model"] for other in self.trials.values()):
            return False  # other places of the axes, the same model
        dear = self.spent + cost > self.budget or cost > self.max_trial_seconds
        if dear and self.trials and isinstance(candidate, Candidate):  # a blend is evaluated only
            self.unaffordable.append(trial)
            return False
        if self.n_trials is not None and len(self.trials) >= self.n_trials:
            raise BudgetError(f"{self.n_trials} trials were run")
        if self.deadline is not None and self.trials and time.monotonic() > self.deadline:
            raise BudgetError("the time was over")
        self.spent += cost
        self.trials[candidate] = trial
        self._run(candidate, model)
        self._forget()
        if self.progress:
            result = trial.record.get("error", f"{self.metric} {trial.score():.4f}")
            note(f"trial {len(self.trials)}: {trial.record['model']}  {result}  {trial.record['seconds']:.1f} s")
        return self.score(candidate) > -math.inf

    def _run(self, candidate: Entrant, model: Recommender) -> None:
        trial, started = self.trials[candidate], time.perf_counter()
        with recorded(trial.record):
            trial.fitted = self._fitted(candidate, model)
        if "error" in trial.record:
            return
        trial.record["fit"] = {"seconds": time.perf_counter() - started}
        metric, k = parse_measure(self.metric)
        with muted():  # an error is that of the held-out part, and ends the race
            found = evaluate(
                trial.fitted, self.held_out, ks=k, metrics=metric, n_jobs=self.n_jobs, notes=False, seen=self.seen,
                exclude_seen=self.exclude_seen,
            )  # fmt: skip
        trial.values = found.values[self.metric]
        trial.record["validation"] = {self.metric: float(trial.values.mean())}
        trial.record["seconds"] = round(time.perf_counter() - started, 3)

    def _fitted(self, candidate: Entrant, model: Recommender) -> Recommender:
        if isinstance(candidate, Blended):
            parts = {
                "first_": self.trials[candidate.first].fitted,
                "second_": self.trials[candidate.second].fitted,
            }
            return model.with_learned(self.train, parts)
        if isinstance(candidate, Weighted) and isinstance(model, WeightedKinds) and not candidate.trains:
            base = self.trials[candidate.base].fitted
            if base is not None:
                return model.around(base, self.train)
        # the others need not say of each trial that they do not use kinds
        known = self.train if isinstance(candidate, Weighted) else self.train.with_parts(kinds={})
        return model.fit(known, progress=False)

    def _forget(self) -> None:
        """Keep the fitted models of the best of each family only."""
        kept = {self.best_of(family) for family in FAMILIES if self._of(family)}
        best = max(self.trials, key=self.score)
        for candidate, trial in self.trials.items():
            if candidate not in kept and candidate != best:
                trial.fitted = None

    # --- the outcome ----------------------------------------------------------------------------

    def score(self, candidate: Entrant) -> float:
        """The metric of a candidate, the mean over users; minus infinity without a result."""
        trial = self.trials.get(candidate)
        return -math.inf if trial is None else trial.score()

    def _cost_of(self, candidate: Entrant) -> float:
        return float(self.trials[candidate].record["cost"])

    def _of(self, family: Family) -> list[Candidate]:
        """The candidates of a family that have a result."""
        found = (each for each in self.trials if isinstance(each, Candidate) and each.family is family)
        return [each for each in found if self.score(each) > -math.inf]

    def best_of(self, family: Family) -> Candidate:
        """The best candidate of a family."""
        return max(self._of(family), key=self.score)

    def _best_families(self, n: int, near: float, searched: bool = False) -> list[Family]:
        """The best families, or the best with axes to search; the best first, at most n, none far below the best."""
        scores = {family.name: self.score(self.best_of(family)) for family in FAMILIES if self._of(family)}
        least = near * max(scores.values(), default=0.0)
        tried = [family for family in FAMILIES if scores.get(family.name, -math.inf) >= least]
        ranked = sorted(tried, key=lambda family: -scores[family.name])
        return [family for family in ranked if family.space or not searched][:n]

    def winner(self) -> Entrant:
        """The best candidate; on a tie a much cheaper one; a blend only if it is better beyond noise."""
        tried = [each for each in self.trials if self.score(each) > -math.inf]
        if not tried:
            records = [trial.record for trial in self.trials.values()]
            raise no_result(f"no model could be trained: {records[-1]['error']}", records)
        single = [each for each in tried if isinstance(each, Candidate)]
        best: Entrant = max(single, key=self.score)
        for each in sorted(single, key=self._cost_of):
            close = self.score(best) - self.score(each) <= MAX_TIE_GAP * self.score(best)
            costs = (self._cost_of(one) - TRIAL_OVERHEAD for one in (each, best))
            if close and MIN_SPEEDUP_ON_TIE * next(costs) <= next(costs) and not self.is_better(best, each):
                best = each
                break
        blends = [each for each in tried if isinstance(each, Blended)]
        for others in (blends, self._kept_weighted()):
            other: Entrant = max(others, key=self.score, default=best)
            if self.is_better(other, best):
                best = other
        return best

    def is_better(self, one: Entrant, other: Entrant) -> bool:
        """Whether a candidate is better than another beyond noise, by a paired t-test over the held-out users."""
        p_value = paired_t(self.trials[one].values, self.trials[other].values)
        return self.score(one) > self.score(other) and p_value < MAX_P_VALUE
