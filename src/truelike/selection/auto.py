"""AutoRecommender: decides by evidence on the user's own data.

It holds out some interactions, races models and settings against each other (`race.py`), and trains the winner on all
interactions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import polars as pl

from truelike.core.parameters import choice, jobs, special, whole_number
from truelike.core.progress import note
from truelike.data.cut import VALIDATION, first_held_out
from truelike.data.dataset import Dataset
from truelike.data.entries import users_of
from truelike.data.feedback import Feedback
from truelike.data.ids import Codes
from truelike.data.strategies import hold_out
from truelike.engines.callbacks import readable_seconds
from truelike.engines.loop import MIN_HELD_OUT
from truelike.engines.options import FitOptions
from truelike.errors import DataWarning, ParameterError, TrainingWarning, warn
from truelike.evaluation.evaluate import evaluate
from truelike.evaluation.metrics import is_metric_at_k, parse_measure
from truelike.models.availability import available_if
from truelike.models.base import Recommender
from truelike.models.exact_mf import ExactBPO
from truelike.models.ials import IALS
from truelike.models.item_pop import ItemPop
from truelike.models.label_noise import Likes
from truelike.models.lists import Frame
from truelike.models.registry import build
from truelike.models.scorer import Floats, Scorer
from truelike.selection.race import Blended, Candidate, Entrant, Race, Weighted

HELD_OUT_SHARE = 0.1  # of the interactions, that candidates are compared on
BUDGET_FITS = {"quick": 3.0, "normal": 12.0, "thorough": 60.0}  # budgets, in fits of ExactBPO with 128 factors
MIN_NORMAL_SECONDS, MAX_NORMAL_SECONDS = 20.0, 270.0  # on two cores, of the budget "normal"
RACE_SHARE, MAX_TRIAL_SHARE = 0.75, 0.25  # of a number of seconds: for all trials, and for one trial
MODEL_WITHOUT_RACE = "EDLAE"  # for data too small to hold out a part


def _is_budget(value: object) -> bool:
    if isinstance(value, str):
        return value in BUDGET_FITS
    return isinstance(value, int | float | np.number) and value is not True and bool(0 < value < float("inf"))


class Choice(NamedTuple):
    """What an `AutoRecommender` chose.

    Attributes
    ----------
    model
        The model, as it is written in Python. Fitted on the same training data, without a validation part, it has the
        same bits.
    reason
        Why, in a sentence.
    outlook
        What a larger budget might bring.
    metric
        The metric of the trials.
    trial
        The trial that won. Its model may have other numbers than `model`, which follows all interactions.
    trials
        A row for each trial, in their order: the model, its metric on the held-out interactions (None if it failed)
        and the seconds of training (of a blend none: its models are trained already).
    """

    model: str
    reason: str
    outlook: str = ""
    metric: str = ""
    trial: str = ""
    trials: tuple[tuple[str, float | None, float], ...] = ()

    def table(self) -> pl.DataFrame:
        """A frame with a row for each trial, the best first."""
        names = ("trial", "model", self.metric or "metric", "seconds")
        rows = [(number, *row) for number, row in enumerate(self.trials, 1)]
        schema = dict(zip(names, (pl.Int64, pl.String, pl.Float64, pl.Float64), strict=True))
        return pl.DataFrame(rows, schema=schema, orient="row").sort(names[2], descending=True, nulls_last=True)


@dataclass(kw_only=True, eq=False, repr=False)
class AutoRecommender(Recommender):
    """Find the model for the data by a race on held-out interactions, and fit it.

    A tenth of each user's interactions is held out, the latest ones where the data has times, or the validation part
    that `fit` is given is used. Models and settings are trained on the rest and compared by their metric on what is
    held out: all kinds of models first, then more settings of the best. The winner is trained on all interactions (with
    a validation part: on the training part). On a tie the model that is faster to train wins. `choice_` has the reason
    and a table of the trials.

    Where the data has other kinds of feedback (carts, views, dislikes), the weight of each is searched on held-out
    interactions, zero and negative ones included. A kind is used if it brings something beyond noise, by a paired
    test: the model is `WeightedKinds` then, and the reason says what each kind brings. With times, what a user did
    before the first held-out interaction is known; without, what is known of a held-out pair is held out with it, and
    lists that are compared leave out the items of kinds, which are no hits then. They always leave out those of kinds
    with negative weights in the data.

    With impressions ImpressionMF takes part. It ranks by p(like); the others rank by p(like and shown), which held-out
    interactions are. Where you want likes, shown or not, `goal="likes"` takes ImpressionMF without a race. Features are
    not used: `FM` uses them. A saved AutoRecommender is loaded as the model that it chose.

    Parameters
    ----------
    goal : {'interactions', 'likes'}, default 'interactions'
        What the lists are for. "interactions": what the user will interact with next, found by a race. "likes": what
        the user would like, for discovery: ImpressionMF, which needs impressions. Held-out interactions do not measure
        this, as they follow what was shown; if ImpressionMF ranks them worse than ItemPop, a warning says so.
    budget : {'quick', 'normal', 'thorough'} or float, default 'normal'
        How much to try. "normal" takes about a minute on MovieLens 1M and five on 30,000 users and 40,000 items, on
        two cores; "quick" a quarter of it and "thorough" five times as much. The trials depend on the data alone, and
        so does the result. A number is a limit in seconds: the race ends when it is over.
    n_trials : int or None, default None
        Number of trials; None: as many as the budget allows. A race that was ended by the clock is repeated with the
        same budget and the number of its trials.
    metric : str, default 'ndcg@20'
        The metric of the race.
    seed : int, default 0
        Seed of the held-out part and of the models.
    n_jobs : int or None, default -1
        Number of threads; -1: all cores. Never changes the result.

    Attributes
    ----------
    model_
        The chosen model, fitted.
    choice_
        `choice_.model` is what was chosen, `choice_.reason` why, `choice_.outlook` what a larger budget might bring;
        `choice_.table()` has the trials.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=300, n_items=100).dataset(), seed=0)
    >>> model = tl.AutoRecommender(n_trials=3).fit(split, progress=False)
    >>> model.choice_.table().columns
    ['trial', 'model', 'ndcg@20', 'seconds']
    >>> model.recommend([0], k=3).height
    3
    """

    iterative: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = frozenset({"shown", "times", "kinds"})
    scores_by_vectors: ClassVar[bool] = True

    goal: Literal["interactions", "likes"] = choice("interactions", "likes")
    budget: str | float = special(
        "normal", "'quick', 'normal', 'thorough' or a positive number of seconds", _is_budget
    )
    n_trials: int | None = whole_number(None, low=1)
    metric: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        if self.goal == "likes":
            return self._fit_likes(train, options)
        part, held_out = self._parts(train, options)
        if held_out.n_interactions < MIN_HELD_OUT and part is not train:
            reason = f"{held_out.n_interactions:,} held-out interactions are too few to compare models"
            return self._fit_chosen(self._build(MODEL_WITHOUT_RACE), reason, train, options)
        if held_out.n_interactions < MIN_HELD_OUT:
            warn(
                f"the validation part has {held_out.n_interactions:,} interactions: too few to compare models well",
                DataWarning,
            )
        race = self._race(part, held_out, options)
        winner = race.run()
        model, trial = winner.make(train, self.seed, self.n_jobs), race.trials[winner]
        why = _reason(race, winner), _outlook(race)
        choice = Choice(repr(model), *why, self.metric, trial.record["model"], _rows(race))
        note(f"{choice.model}: {choice.reason}")
        done = part is train and not options.callbacks and options.checkpoint is None
        return self._fit_choice(model, choice, train, options, trial.fitted if done else None)

    @staticmethod
    def choice_from(saved: Any) -> Choice:
        """The choice that was saved with a model; raises ValueError if it cannot be one."""
        words = {name: saved[name] for name in ("model", "reason", "outlook", "metric", "trial")}
        trials = tuple((model, value, seconds) for model, value, seconds in saved["trials"])
        numbers = [x for _, value, seconds in trials for x in (value, seconds) if x is not None]
        texts = [*words.values(), *(model for model, _, _ in trials)]
        if not all(isinstance(x, str) for x in texts) or not all(isinstance(x, int | float) for x in numbers):
            raise ValueError("the choice of the AutoRecommender is not words and numbers")
        return Choice(**words, trials=trials)

    def _counts_weights(self) -> bool:
        return True  # where it helps

    def _check_data(self, train: Dataset) -> None:
        if self.goal == "likes" and train.shown is None:
            raise ParameterError(
                'goal is "likes", and the data has no impressions: interactions alone do not tell likes from what was '
                'shown. Read them with tl.read(..., impressions=...), or use goal="interactions".'
            )

    def _parts(self, train: Dataset, options: FitOptions) -> tuple[Dataset, Dataset]:
        """What candidates are trained on, and what they are compared on."""
        given = options.validation
        if isinstance(given, Dataset):
            return train, given
        part, held_out = hold_out(train, HELD_OUT_SHARE if given is None else given, self.seed, by=None)
        return part.with_parts(kinds=_known_before(train, held_out, part)), held_out

    def _race(self, part: Dataset, held_out: Dataset, options: FitOptions) -> Race:
        seconds, shares, deadline = self._seconds(part), (1.0, 1.0), None
        if not isinstance(self.budget, str):  # the winner is still to be trained on everything
            shares = RACE_SHARE, MAX_TRIAL_SHARE
            deadline = time.monotonic() + RACE_SHARE * seconds if self.n_trials is None else None
        return Race(
            part, held_out, metric=self.metric, budget=shares[0] * seconds, max_trial_seconds=shares[1] * seconds,
            deadline=deadline, n_trials=self.n_trials, seed=self.seed, n_jobs=self.n_jobs, progress=options.progress,
        )  # fmt: skip

    def _seconds(self, train: Dataset) -> float:
        """The budget in seconds on two cores."""
        if not isinstance(self.budget, str):
            return float(self.budget)
        unit = ExactBPO(factors=128).expected_seconds(train)
        normal = min(max(BUDGET_FITS["normal"] * unit, MIN_NORMAL_SECONDS), MAX_NORMAL_SECONDS)
        normal = max(normal, 3 * IALS().expected_seconds(train))
        return normal * BUDGET_FITS[self.budget] / BUDGET_FITS["normal"]

    def _fit_chosen(
        self, model: Recommender, reason: str, train: Dataset, options: FitOptions
    ) -> Mapping[str, Any]:
        choice = Choice(repr(model), reason, "There was no race.", self.metric)
        note(f"{choice.model}: {choice.reason}")
        return self._fit_choice(model, choice, train, options, None)

    def _fit_likes(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        """ImpressionMF, and what the held-out interactions say of it, if there are any."""
        reason = 'the goal is "likes", of which the impressions tell'
        learned = self._fit_chosen(self._build("ImpressionMF"), reason, train, options)
        held_out, (metric, k) = options.validation, parse_measure(self.metric)
        if not isinstance(held_out, Dataset) or not held_out.n_interactions:
            return learned
        model, popular = learned["model_"], ItemPop().fit_with(train, options.without("validation", "callbacks"))
        own, other = (
            evaluate(each, held_out, ks=k, metrics=metric, n_jobs=self.n_jobs, notes=False)[self.metric]
            for each in (model, popular)
        )
        compared = f"{self.metric} {own:.4f} on held-out interactions, where ItemPop has {other:.4f}"
        if own < other:
            warn(
                f"ImpressionMF has {compared}. It ranks by p(like), and interactions are likes that were shown. For "
                'lists of what users will interact with next, use goal="interactions".',
                TrainingWarning,
            )
        return {**learned, "choice_": learned["choice_"]._replace(reason=f"{reason}; {compared}")}

    def _fit_choice(
        self, model: Recommender, choice: Choice, train: Dataset, options: FitOptions, fitted: Recommender | None
    ) -> Mapping[str, Any]:
        if choice.trials:  # the number of epochs was part of the race
            options = options.without("validation")
        if not model.iterative:
            options = options.without("callbacks", "checkpoint", "resume")
        model = model.fit_with(train, options) if fitted is None else model.with_learned(train, fitted.learned)
        return {"model_": model, "choice_": choice}

    def _build(self, name: str) -> Recommender:
        model = build(name, {})
        own = {each: getattr(self, each) for each in ("seed", "n_jobs") if each in model.get_params()}
        return model.set_params(**own)

    def _update(
        self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool
    ) -> Mapping[str, Any]:
        model: Recommender = self.model_
        return {"model_": model.updated(train, users, items, epochs, progress), "choice_": self.choice_}

    def _of_users(self, train: Dataset, users: Codes) -> Mapping[str, Any]:
        return {"model_": self.model_.of_users(train, users)}

    def _written(self) -> Recommender:
        model: Recommender = self.model_
        return model

    # --- all answers are those of the chosen model ----------------------------------------------

    def _make_scorer(self) -> Scorer:
        return self._written().scorer

    @property
    def likes(self) -> Likes:
        """What the model says of likes, in row numbers."""
        found: Likes = self.model_.likes
        return found

    @available_if(lambda model: hasattr(getattr(model, "model_", None), "hidden_likes"))
    def hidden_likes(self, users: Any, k: int = 10, **options: Any) -> Frame:
        """Find unobserved items that the model takes for liked: see `ExactNBPO.hidden_likes`."""
        return self.model_.hidden_likes(users, k, **options)

    @available_if(lambda model: hasattr(getattr(model, "model_", None), "flip_probability"))
    def flip_probability(self, users: Any, items: Any) -> Floats:
        """The model's p(observed 0 | truly 1) of each pair: see `ExactNBPO.flip_probability`."""
        found: Floats = self.model_.flip_probability(users, items)
        return found

    @available_if(lambda model: hasattr(getattr(model, "model_", None), "like_probability"))
    def like_probability(self, users: Any, items: Any) -> Frame:
        """p(truly liked) of each pair, and the evidence for it: see `ImpressionMF.like_probability`."""
        return self.model_.like_probability(users, items)


def _known_before(train: Dataset, held_out: Dataset, part: Dataset) -> dict[str, Feedback]:
    """The kinds of feedback of the training part, as they are known when a list of held-out interactions is shown.

    With times that is all that a user did before the first held-out interaction. An item that was put into the cart
    then, and bought later, is known to be in the cart. Without times nobody knows what came first, and a refund or a
    review would tell of the purchase. So what is known of held-out pairs is held out with them, as in all splits.
    """
    if train.times is None:
        return dict(part.kinds)
    moments = first_held_out(held_out, np.full(held_out.n_interactions, VALIDATION, dtype=np.uint8))[0]
    return {
        name: part.kinds[name] if kind.times is None else kind.select(kind.times < moments[users_of(kind.csr)])
        for name, kind in train.kinds.items()
    }


def _rows(race: Race) -> tuple[tuple[str, float | None, float], ...]:
    records = [trial.record for trial in race.trials.values()]
    return tuple(
        (
            each["model"],
            each.get("validation", {}).get(race.metric),
            round(each.get("fit", {}).get("seconds", 0.0), 2),
        )
        for each in records
    )


def _of_kinds(race: Race, winner: Entrant) -> str:
    """What each kind of feedback brings, and whether it is used."""
    found = ""
    for each in race.findings:
        p_value = "p < .001" if each.p_value < 0.001 else f"p = {each.p_value:.3f}".replace("0.", ".")
        brings = f"{each.kind} with the weight {each.weight:g} brings {each.gain:+.1%} ({p_value})"
        if math.isinf(each.p_value):
            found += f"; {each.kind} was not tried within the budget, and is left out"
        elif each.is_kept:
            without = "" if isinstance(winner, Weighted) else ", and is left out, as the winner is as good without"
            found += f"; {brings}{without}"
        elif each.gain > 0:
            found += f"; {brings}, which may be noise, and is left out"
        else:
            found += f"; {each.kind} brings nothing, and is left out"
    return found


def _reason(race: Race, winner: Entrant) -> str:
    """Why the winner won."""
    names = {candidate: trial.record["model"] for candidate, trial in race.trials.items()}
    users = f"{race.held_out.n_interactions:,} held-out interactions of {len(race.trials[winner].values):,} users"
    won = f"{race.metric} {race.score(winner):.4f} on {users}"
    best = max(race.trials, key=race.score)
    if best == winner:
        won += f", the best of {len(race.trials)} trials"
    elif isinstance(best, Blended):
        won += f"; a blend has {race.score(best):.4f}, not better beyond noise"
    elif isinstance(best, Weighted):
        won += f"; {names[best]} has {race.score(best):.4f}, not better beyond noise"
    else:
        won += f"; {names[best]} has {race.score(best):.4f}, which is not better beyond noise, and takes longer"
    tried = [each for each in race.trials if isinstance(each, Candidate) and race.score(each) > float("-inf")]
    for each in tried:
        if each.family.name == "ItemPop" and each != winner:
            noise = ", which may be as good: little in the data tells users apart"
            won += f"; ItemPop has {race.score(each):.4f}{'' if race.is_better(winner, each) else noise}"
    own = winner.base if isinstance(winner, Weighted) else winner
    others = [each for each in tried if each.family.name != names[own].partition("(")[0]]
    won += _of_kinds(race, winner)
    if not others or best != winner:
        return won
    second = max(others, key=race.score)
    noise = "" if race.is_better(winner, second) else ", which may be as good"
    return f"{won}; the best of another kind, {names[second]}, has {race.score(second):.4f}{noise}"


def _outlook(race: Race) -> str:
    """What a larger budget might bring."""
    if race.stopped:
        return f"The race ended because {race.stopped}; with more it would go on."
    if race.unaffordable:
        first = race.unaffordable[0].record
        more = f" and {len(race.unaffordable) - 1} more" if len(race.unaffordable) > 1 else ""
        seconds = readable_seconds(first["cost"])
        return f"A larger budget would also try {first['model']} (about {seconds} on two cores){more}."
    if race.narrow:
        return "The search came to its end; a larger budget would search more widely."
    return "The search came to its end; a larger budget changes nothing."


def usual_validation(train: Dataset) -> float | None:
    """The share of the interactions to find the number of epochs with; None if there are too few."""
    # not all that are drawn can be spared
    return HELD_OUT_SHARE if HELD_OUT_SHARE * train.n_interactions >= 2 * MIN_HELD_OUT else None
