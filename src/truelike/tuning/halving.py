"""Successive halving: all candidates for a few epochs, the best third of them for longer, and so on."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from truelike.tuning.grids import Parameters
from truelike.tuning.trials import Record, Trial, score
from truelike.tuning.variants import Variant

RUNGS = (1 / 9, 1 / 3, 1.0)  # shares of the epochs; after each rung the best third goes on
FEWEST_EPOCHS = 5  # a rung of fewer says too little and is left out
Expect = Callable[[list[float]], None]


@dataclass
class Halved:
    """The result of successive halving.

    Attributes
    ----------
    latest
        The last record of each candidate; empty where none was run.
    places
        The numbers of the candidates that were run for all epochs.
    trials
        All trials that were asked for, with their records.
    """

    latest: list[Record]
    places: list[int]
    trials: list[tuple[Trial, Record]]

    @property
    def records(self) -> list[Record]:
        """The records of all trials."""
        return [record for _, record in self.trials]

    @property
    def finalists(self) -> list[Record]:
        """The records of the candidates that were run for all epochs."""
        return [self.latest[n] for n in self.places]


Steps = Generator[list[Trial], list[Record], Halved]


def halve(
    run: Callable[[list[Trial]], list[Record]],
    model: Variant,
    candidates: Sequence[Parameters],
    metric: str,
    rungs: Sequence[float],
    expect: Expect | None = None,
) -> Halved:
    """Run successive halving over candidates."""
    steps = halving_steps(model, candidates, metric, rungs, expect=expect)
    asked = next(steps)
    while True:
        try:
            asked = steps.send(run(asked))
        except StopIteration as end:
            found: Halved = end.value
            return found


def halving_steps(
    model: Variant,
    candidates: Sequence[Parameters],
    metric: str,
    rungs: Sequence[float],
    *,
    keep_first: bool = False,
    expect: Expect | None = None,
) -> Steps:
    """Yield the trials of each step; the caller runs them and sends their records, empty for those not run.

    Parameters
    ----------
    model, candidates
        The model, and the parameters of each candidate.
    metric
        The metric on validation that candidates are compared by.
    rungs
        The shares of the epochs, in rising order; the last is 1. A model without epochs has only the last.
    keep_first
        Run the first candidate for all epochs, whatever its score.
    expect
        Called with the lengths of the trials that are still to come.
    """
    epochs = getattr(Trial(model, dict(candidates[0])).make(), "epochs", None)
    shorter = [rung for rung in rungs[:-1] if epochs is not None and round(epochs * rung) >= FEWEST_EPOCHS]
    latest: list[Record] = [{} for _ in candidates]
    trials: list[tuple[Trial, Record]] = []

    def step(going: list[int], rung: float, later: Sequence[float]) -> Generator[list[Trial], list[Record], None]:
        if expect is not None:
            expect(trial_lengths(len(going), [rung, *later]))
        part = {} if epochs is None or rung == 1.0 else {"epochs": max(1, round(epochs * rung))}
        asked = [Trial(model, {**candidates[n], **part}, metric=metric) for n in going]
        found = yield asked
        for place, trial, record in zip(going, asked, found, strict=True):
            if record:
                trials.append((trial, record))
                latest[place] = record

    going = list(range(len(candidates)))
    waiting: list[int] = []
    for number, rung in enumerate(shorter, 1):
        yield from step(going, rung, [*shorter[number:], 1.0])
        going.sort(key=lambda n: (-score(latest[n], metric), n))
        kept = sorted({*going[: _best_third(len(going))], *([0] if keep_first else [])})
        waiting, going = [*(n for n in going if n not in kept), *waiting], kept
    yield from step(going, 1.0, [])
    while waiting and all(score(latest[n], metric) == -math.inf for n in going):
        going = [waiting.pop(0)]  # the best so far diverged in the last rung: try the next one
        yield from step(going, 1.0, [])
    return Halved(latest, going, trials)


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


def winner_of(trials: Sequence[tuple[Trial, Record]], metric: str) -> tuple[Trial, Record]:
    """The trial with the best score; the first of equals."""
    return max(trials, key=lambda each: score(each[1], metric))


def parameters_of(trials: Sequence[tuple[Trial, Record]], record: Record) -> dict[str, Any]:
    """The parameters of the trial that gave a record. A record holds plain values only, a trial also classes."""
    return next(dict(trial.parameters) for trial, each in trials if each is record)
