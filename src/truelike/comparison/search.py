"""The same search for every model, all at once, on the training and the validation part."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truelike.tuning.grids import Parameters
from truelike.tuning.halving import RUNGS, Expect, halving_steps
from truelike.tuning.runner import Runner
from truelike.tuning.search import no_result_reason
from truelike.tuning.spaces import default_space, draw
from truelike.tuning.trials import Record, Trial, score
from truelike.tuning.variants import Variant

ROUND = 9  # candidates at a time under a budget of time: 9 for 1/9 of the epochs, 3 for 1/3, 1 for all
MOST_CANDIDATES = 999


@dataclass(frozen=True)
class SearchResult:
    """The parameters that were found for a model; `reason` says why where there are none."""

    model: Variant
    parameters: Parameters
    score: float
    candidates: int
    seconds: float
    reason: str = ""


Search = Generator[list[Trial], list[Record], SearchResult]


def search_all(
    runner: Runner,
    models: Sequence[Variant],
    *,
    metric: str,
    seed: int,
    n_trials: int | None,
    minutes: float | None,
    fixed: Mapping[str, Any],
) -> dict[str, SearchResult]:
    """Search for the parameters of all models at once, so that no process waits for the last trial of a model."""
    if minutes is not None:
        _compile(models, fixed)
    budget = _Budget(runner, None if minutes is None else minutes * 60)
    searches = {
        model.name: _search(model, metric, seed, n_trials, budget, model.applicable(fixed), _expect(runner, model))
        for model in models
    }
    asked = {name: next(search) for name, search in searches.items()}
    found: dict[str, SearchResult] = {}
    while asked:
        budget.count(asked)
        runner.run_some([trial for trials in asked.values() for trial in trials], budget.skip)
        for name, trials in list(asked.items()):
            try:
                asked[name] = searches[name].send([runner.records.get(trial.key, {}) for trial in trials])
            except StopIteration as end:
                found[name] = end.value
                del asked[name]
    return {model.name: found[model.name] for model in models}


def _expect(runner: Runner, model: Variant) -> Expect:
    def expect(lengths: list[float]) -> None:
        if runner.log is not None:
            runner.log.expect(model.name, lengths)

    return expect


def _compile(models: Sequence[Variant], fixed: Mapping[str, Any]) -> None:
    """Compile the loops of all models, which are then cached on disk: compiling must not use up a model's time."""
    from truelike.data.synthetic import World

    dataset = World(n_users=40, n_items=30).dataset()
    for model in models:
        # a model may reject this dataset; its trials report what it says of the real one
        with contextlib.suppress(Exception):
            short = model.applicable({**fixed, "epochs": 1, "n_jobs": 1})
            model.make(short).fit(dataset, progress=False)


def _search(
    model: Variant,
    metric: str,
    seed: int,
    n_trials: int | None,
    budget: _Budget,
    fixed: Parameters,
    expect: Expect,
) -> Search:
    """Search for the parameters of one model. The first candidate is the defaults, the others are drawn.

    A model with nothing to search has one candidate.
    """
    base = {**fixed, **model.of_training(metric, seed)}
    space = default_space(model, fixed)
    at_once = (n_trials or ROUND) if space else 1
    best, best_score = base, -math.inf
    records: dict[str, Record] = {}
    candidates = 0
    for first in range(0, MOST_CANDIDATES, at_once):
        known = len(records)
        drawn = [draw(space, seed, n) if n else {} for n in range(first, first + at_once)]
        trying = [{**base, **parameters} for parameters in drawn]
        # the defaults are run for all epochs, so that no search ends below them
        halved = yield from halving_steps(model, trying, metric, RUNGS, keep_first=first == 0, expect=expect)
        candidates += sum(bool(record) for record in halved.latest)
        records.update({record["key"]: record for record in halved.records})
        for place in halved.places:
            if score(halved.latest[place], metric) > best_score:
                best, best_score = trying[place], score(halved.latest[place], metric)
        # a round without a new trial would repeat for ever
        if n_trials is not None or not space or len(records) == known or budget.is_spent(model.name):
            break
    expect([])
    seconds = sum(record["seconds"] for record in records.values())
    reason = no_result_reason(model.name, list(records.values())) if best_score == -math.inf else ""
    return SearchResult(model, best, best_score, candidates, seconds, reason)


class _Budget:
    """The seconds that each model has used, including those of an earlier call, and which may use more."""

    def __init__(self, runner: Runner, limit: float | None) -> None:
        self.runner, self.limit = runner, limit
        self.keys: dict[str, dict[str, None]] = {}

    def count(self, asked: Mapping[str, list[Trial]]) -> None:
        """Add the trials of a step."""
        for name, trials in asked.items():
            self.keys.setdefault(name, {}).update(dict.fromkeys(trial.key for trial in trials))

    def is_spent(self, name: str) -> bool:
        """Whether the time of a model is used up."""
        return self.limit is not None and sum(record["seconds"] for record in self._records(name)) >= self.limit

    def skip(self, trial: Trial) -> bool:
        """Whether a trial is left out: its model has a record and no time left, or its process ended."""
        records = self._records(trial.name)
        return bool(records) and (self.is_spent(trial.name) or any("crashed" in record for record in records))

    def _records(self, name: str) -> list[Record]:
        return [self.runner.records[key] for key in self.keys.get(name, ()) if key in self.runner.records]
