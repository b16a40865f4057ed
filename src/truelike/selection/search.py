"""The search of `tl.tune` and `tl.compare`: grids or drawn candidates, one stage after another, each halved.

A search is a generator. It yields trials, finds their records in them when it goes on, and returns a `Tuned`. It never
looks at the clock or at the number of workers, so it is deterministic. That is how a stopped one is resumed: the trials
on disk are not run again, and the next ones follow from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import polars as pl

from truelike.errors import DivergedError, ParameterError, TruelikeError
from truelike.models.base import Recommender
from truelike.selection.grids import Stage
from truelike.selection.progress import TrialLog
from truelike.selection.trials import Record, Trial, score
from truelike.selection.variants import Parameters, Variant

RUNGS = (1 / 9, 1 / 3, 1.0)  # shares of the epochs; after each rung the best third goes on
MIN_EPOCHS_OF_RUNG = 5  # a rung of fewer says too little and is left out


class Told(TypedDict):
    """The keys of the trials of a stage: the last one of each candidate, and those of equal length of all."""

    stage: str
    candidates: list[str]
    even: list[str]


@dataclass(repr=False)
class Tuned:
    """The result of a search.

    Attributes
    ----------
    variant
        The model class, with the parameters that its name fixes.
    metric
        The metric on validation that candidates were compared by.
    parameters
        The best parameters.
    best
        The record of the best trial; empty if no trial has a result.
    records
        The records of all trials.
    stages
        For each grid, the keys of its trials.
    """

    variant: Variant
    metric: str
    parameters: Parameters
    best: Record
    records: list[Record]
    stages: list[Told] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Tuned({self.make()!r}: {self.metric} {self.score:.4f} on validation, {len(self.records)} trials)"

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.variant.name

    @property
    def score(self) -> float:
        """The metric of the best trial on validation."""
        return score(self.best, self.metric)

    @property
    def seconds(self) -> float:
        """The time of all trials."""
        return float(sum(record["seconds"] for record in self.records))

    @property
    def candidates(self) -> int:
        """The number of candidates."""
        return sum(len(stage["candidates"]) for stage in self.stages)

    @property
    def trials(self) -> pl.DataFrame:
        """A frame with one row a trial, the best first."""
        names = list(dict.fromkeys(name for record in self.records for name in record["parameters"]))
        rows = sorted(self.records, key=lambda record: -score(record, self.metric))
        return pl.DataFrame(
            {
                self.metric: [score(record, self.metric) for record in rows],
                "seconds": [record["seconds"] for record in rows],
                **{name: [record["parameters"].get(name) for record in rows] for name in names},
            },
            strict=False,
        )

    def make(self, **more: Any) -> Recommender:
        """Create the unfitted model with the best parameters."""
        return self.variant.make({**self.parameters, **more})

    def checked(self) -> Tuned:
        """Return the result; raise an error that says why if there is none."""
        if not self.best:
            raise no_result(no_result_reason(self.model, self.records), self.records)
        return self


Search = Generator[list[Trial], None, Tuned]


def run_searches(searches: Mapping[str, Search], run: Callable[[list[Trial]], object]) -> dict[str, Tuned]:
    """Run several searches at once, so that no process waits for the last trial of one."""
    asked: dict[str, list[Trial]] = {name: [] for name in searches}
    found: dict[str, Tuned] = {}
    while asked:
        for name in list(asked):
            try:
                asked[name] = next(searches[name])
            except StopIteration as end:
                found[name] = end.value
                del asked[name]
        if asked:
            run([trial for trials in asked.values() for trial in trials])
    return {name: found[name] for name in searches}


def run_search(search: Search, run: Callable[[list[Trial]], object]) -> Tuned:
    """Run one search to its end; an error if no trial has a result."""
    return run_searches({"": search}, run)[""].checked()


def staged(
    model: Variant,
    stages: Sequence[Stage],
    *,
    metric: str,
    seed: int = 0,
    fixed: Parameters | None = None,
    rungs: Sequence[float] = (1.0,),
    log: TrialLog,
    keep_first: bool = False,
) -> Search:
    """Search one stage after another, each around the best setting so far.

    `fixed` parameters are not searched, even if a stage has them. With `keep_first` the first candidate of the first
    stage is run for all epochs, whatever its score.
    """
    given = {**model.parameters, **(fixed or {})}
    best: Parameters = {**(fixed or {}), **model.of_training(metric, seed)}

    def candidates_of(stage: Stage, around: Parameters) -> list[Parameters]:
        changes = stage.candidates(model.make(around).get_params())
        open_changes = [{name: value for name, value in each.items() if name not in given} for each in changes]
        return [{**around, **each} for each in open_changes]

    def expect(later: Sequence[Stage], around: Parameters) -> Callable[[list[float]], None]:
        after = [length for stage in later for length in trial_lengths(len(candidates_of(stage, around)), rungs)]
        return lambda lengths: log.expect(model.name, [*lengths, *after])

    seen: dict[str, Record] = {}
    told: list[Told] = []
    winner: Record = {}
    for number, stage in enumerate(stages, 1):
        candidates = candidates_of(stage, best)
        found = yield from halving(
            model, candidates, metric, rungs, keep_first=keep_first and number == 1,
            expect=expect(stages[number:], {**best, **candidates[0]}),
        )  # fmt: skip
        seen.update({trial.key: trial.record for trial in found.trials})
        challenger = max(found.finalists, key=Trial.score)
        if challenger.score() > score(winner, metric):
            winner, best = challenger.record, dict(challenger.parameters)
        told.append(
            {
                "stage": stage.name,
                "candidates": [trial.key for trial in found.latest if trial.record],
                "even": [trial.key for trial in found.trials[: len(candidates)]],
            }
        )
    log.expect(model.name, [])
    return Tuned(model, metric, best, winner, list(seen.values()), told)


@dataclass
class Halved:
    """The result of successive halving: all trials, the last one of each candidate, and those of all epochs."""

    trials: list[Trial]
    latest: list[Trial]
    finalists: list[Trial]


def halving(
    model: Variant,
    candidates: Sequence[Parameters],
    metric: str,
    rungs: Sequence[float],
    *,
    keep_first: bool = False,
    expect: Callable[[list[float]], None] = lambda lengths: None,
) -> Generator[list[Trial], None, Halved]:
    """Run all candidates for a few epochs, the best third of them for longer, and so on.

    The `rungs` are shares of the epochs, in rising order; the last is 1, and a model without epochs has no other. With
    `keep_first` the first candidate goes on, whatever its score. `expect` is told the lengths of the trials to come.
    """
    epochs = getattr(model.make(candidates[0]), "epochs", None)
    shorter = [rung for rung in rungs[:-1] if epochs is not None and round(epochs * rung) >= MIN_EPOCHS_OF_RUNG]
    latest = [Trial(model, each, metric=metric) for each in candidates]
    trials: list[Trial] = []

    def step(going: list[int], rung: float, later: Sequence[float]) -> Generator[list[Trial], None, None]:
        expect(trial_lengths(len(going), [rung, *later]))
        part = {} if epochs is None or rung == 1.0 else {"epochs": max(1, round(epochs * rung))}
        asked = [Trial(model, {**candidates[n], **part}, metric=metric) for n in going]
        yield asked
        for place, trial in zip(going, asked, strict=True):
            if trial.record:  # empty if it was left out
                trials.append(trial)
                latest[place] = trial

    going = list(range(len(candidates)))
    waiting: list[int] = []
    for number, rung in enumerate(shorter, 1):
        yield from step(going, rung, [*shorter[number:], 1.0])
        going.sort(key=lambda n: (-latest[n].score(), n))
        kept = sorted({*going[: _best_third(len(going))], *([0] if keep_first else [])})
        waiting, going = [*(n for n in going if n not in kept), *waiting], kept
    yield from step(going, 1.0, [])
    while waiting and all(latest[n].score() == -math.inf for n in going):
        going = [waiting.pop(0)]  # the best so far diverged in the last rung: try the next one
        yield from step(going, 1.0, [])
    return Halved(trials, latest, [latest[n] for n in going])


def trial_lengths(n: int, rungs: Sequence[float]) -> list[float]:
    """The share of the epochs of each trial, for n candidates in the first of these rungs.

    >>> trial_lengths(4, [0.25, 1.0])
    [0.25, 0.25, 0.25, 0.25, 1.0, 1.0]
    """
    lengths: list[float] = []
    for rung in rungs:
        lengths += [rung] * n
        n = _best_third(n)
    return lengths


def _best_third(n: int) -> int:
    return max(1, -(-n // 3))


def no_result(why: str, records: Sequence[Record]) -> TruelikeError:
    """The error of a search without a result."""
    return ParameterError(why) if any("refused" in record for record in records) else DivergedError(why)


def no_result_reason(model: str, records: Sequence[Record]) -> str:
    """Say why no trial of a model has a result."""
    failed = [record for record in records if "error" in record]
    refused = [record["error"] for record in failed if "refused" in record]
    if refused:
        return f"{model} cannot be trained on this dataset: {refused[-1]}"
    return f"every trial of {model} diverged; the last error: {failed[-1]['error'] if failed else 'none'}"
