"""The same search for every model: all climb together, step by step, on training and validation alone."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truelike.errors import TruelikeError
from truelike.models import variant
from truelike.models.iterative import IterativeModel
from truelike.tuning.grids import Parameters
from truelike.tuning.runner import Runner
from truelike.tuning.search import RUNGS, climb_by_steps, of_training, why_none
from truelike.tuning.spaces import default_space, draw
from truelike.tuning.trials import Record, Trial, score

ROUND = 9  # candidates at once where time is the budget: 9 for a ninth of the epochs, 3 for a third, 1 to the end
MOST = 999  # candidates, however short their runs


@dataclass(frozen=True)
class Found:
    """What the search for a model's parameters gave; `reason` says why, where it gave nothing."""

    model: str
    parameters: Parameters
    score: float
    candidates: int
    seconds: float
    reason: str = ""


Searching = Generator[list[Trial], list[Record], Found]


def search_all(
    runner: Runner,
    models: Sequence[str],
    *,
    metric: str,
    seed: int,
    n_trials: int | None,
    minutes: float | None,
    fixed: Mapping[str, Any],
) -> dict[str, Found]:
    """Search for the parameters of all models at once, so that no process waits for the last run of a model."""
    if minutes is not None:
        _compile(models, fixed)
    spent = _Spent(runner, None if minutes is None else minutes * 60)
    searches = {model: _search(model, metric, seed, n_trials, spent, own(model, fixed)) for model in models}
    asked = {model: next(searching) for model, searching in searches.items()}
    found: dict[str, Found] = {}
    while asked:
        spent.count(asked)
        runner.run_some([trial for trials in asked.values() for trial in trials], spent.skip)
        for model, trials in list(asked.items()):
            try:
                asked[model] = searches[model].send([runner.records.get(trial.key, {}) for trial in trials])
            except StopIteration as end:
                found[model] = end.value
                del asked[model]
    return {model: found[model] for model in models}


def own(model: str, fixed: Mapping[str, Any]) -> Parameters:
    """Those of some parameters that a model has, and those that are in its name."""
    kind, given = variant(model)
    made = kind(**given)
    known = {*made.deciding_params(), *(["n_jobs"] if hasattr(made, "n_jobs") else [])}
    return {**{name: value for name, value in fixed.items() if name in known}, **given}


def _compile(models: Sequence[str], fixed: Mapping[str, Any]) -> None:
    """Compile the loops of all models, which are then on disk: no model's time is for that."""
    from truelike.data.synthetic import World

    log = World(n_users=40, n_items=30).log()
    for model in models:
        with contextlib.suppress(TruelikeError):  # not made for this log; of the real one the trials will say
            made = Trial(model, {**own(model, fixed), **own(model, {"epochs": 1, "n_jobs": 1})}).make()
            if isinstance(made, IterativeModel):
                made.fit(log, progress=False)
            else:
                made.fit(log)


def _search(
    model: str, metric: str, seed: int, n_trials: int | None, spent: _Spent, fixed: Parameters
) -> Searching:
    """The first candidate is the model as it is, the others are drawn; without anything to search there is one."""
    base = {**fixed, **of_training(model, metric, seed)}
    space = default_space(model, fixed)
    at_once = (n_trials or ROUND) if space else 1
    best, best_score = base, -math.inf
    records: dict[str, Record] = {}
    candidates = 0
    for first in range(0, MOST, at_once):
        known = len(records)
        drawn = [draw(space, seed, n) if n else {} for n in range(first, first + at_once)]
        trying = [{**base, **parameters} for parameters in drawn]
        # the model as it is goes all the way, so that no search ends below it
        climbed = yield from climb_by_steps(model, trying, metric, RUNGS, keep_first=first == 0)
        candidates += sum(bool(record) for record in climbed.latest)
        records.update({record["key"]: record for record in climbed.records})
        for place in climbed.places:
            if score(climbed.latest[place], metric) > best_score:
                best, best_score = trying[place], score(climbed.latest[place], metric)
        # a round that brings nothing new would go on for ever
        if n_trials is not None or not space or len(records) == known or spent.all_of(model):
            break
    seconds = sum(record["seconds"] for record in records.values())
    reason = why_none(model, list(records.values())) if best_score == -math.inf else ""
    return Found(model, best, best_score, candidates, seconds, reason)


class _Spent:
    """The seconds that each model has used, those of an earlier call included, and who may use more."""

    def __init__(self, runner: Runner, limit: float | None) -> None:
        self.runner, self.limit = runner, limit
        self.keys: dict[str, dict[str, None]] = {}

    def count(self, asked: Mapping[str, list[Trial]]) -> None:
        """These are the trials of a step."""
        for model, trials in asked.items():
            self.keys.setdefault(model, {}).update(dict.fromkeys(trial.key for trial in trials))

    def all_of(self, model: str) -> bool:
        """Whether the time of a model is used up."""
        records = self._records(model)
        return self.limit is not None and sum(record["seconds"] for record in records) >= self.limit

    def skip(self, trial: Trial) -> bool:
        """Every model gets one trial; none goes on after its time, or when a process died of it."""
        records = self._records(trial.model)
        return bool(records) and (self.all_of(trial.model) or any("crashed" in record for record in records))

    def _records(self, model: str) -> list[Record]:
        return [self.runner.records[key] for key in self.keys.get(model, ()) if key in self.runner.records]
