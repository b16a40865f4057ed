"""Log lines of a search: which trial of how many, its score, the best so far and the time that is left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from truelike.core import progress
from truelike.engines.callbacks import readable_seconds
from truelike.selection.trials import Record, score

SECONDS_BETWEEN_LINES = 3.0


class TrialLog:
    """Counts the trials of a search and logs a line for each that was run.

    The time that is left is estimated from the seconds of whole trials, fit and evaluation, of the same model. A
    trial for a third of the epochs counts as a third.

    Examples
    --------
    >>> log = TrialLog("ndcg@20", n_workers=1)
    >>> log.expect("BPR", [1.0, 1.0, 1.0])
    >>> log.line({"model": "BPR", "validation": {"ndcg@20": 0.125}, "seconds": 60.0})
    'trial 1 of 3: BPR, ndcg@20 0.1250 (best), 60.0 s; about 2 min left'
    """

    def __init__(self, metric: str, n_workers: int, *, quiet: bool = False) -> None:
        self.metric, self.n_workers, self.quiet = metric, n_workers, quiet
        self.done = 0
        self.local_models: set[str] = set()  # those whose trials are run in this process
        self._expected: dict[tuple[str, bool], deque[float]] = {}  # by model and phase: lengths of trials to come
        self._spent: dict[str, tuple[float, float]] = {}  # by model: seconds and lengths of its trials so far
        self._best: dict[str, float] = {}
        self._said = float("-inf")

    def expect(self, name: str, lengths: Iterable[float], *, final: bool = False) -> None:
        """Set the trials of a model that are still to come, by the share of the epochs that each runs for.

        `final` are those on the test part, which are counted apart from the search.
        """
        self._expected[name, final] = deque(lengths)

    def skip(self, name: str, *, finished: bool, final: bool = False) -> None:
        """Count a trial that was not run: its result is known from before (`finished`), or it is left out."""
        self._next_length(name, final)
        self.done += finished

    def add(self, record: Record, *, final: bool = False) -> None:
        """Count a trial that was run, and log its line; where nobody watches, at most one line every few seconds."""
        if self.quiet:
            return
        line, now = self.line(record, final=final), time.monotonic()
        is_last = not any(self._expected.values())
        if progress.interactive() or is_last or now - self._said >= SECONDS_BETWEEN_LINES:
            self._said = now
            progress.note(line)

    def line(self, record: Record, *, final: bool = False) -> str:
        """Count a trial that was run, and return its line."""
        name, seconds = record["model"], float(record["seconds"])
        length = self._next_length(name, final)
        if "error" not in record:
            known = self._spent.get(name, (0.0, 0.0))
            self._spent[name] = known[0] + seconds, known[1] + length
        self.done += 1
        left = sum(map(len, self._expected.values()))
        number = f"trial {self.done} of {self.done + left}"
        return f"{number}: {name}, {self._result(record)}, {seconds:.1f} s{self._time_left()}"

    def _next_length(self, name: str, final: bool) -> float:
        expected = self._expected.get((name, final))
        return expected.popleft() if expected else 1.0

    def _result(self, record: Record) -> str:
        if "error" in record:
            return str(record["error"]).rstrip(".")
        if "test" in record:
            return f"{self.metric} {record['test'][self.metric]:.4f} on test"
        name, value = record["model"], score(record, self.metric)
        best = self._best[name] = max(value, self._best.get(name, value))
        return f"{self.metric} {value:.4f} ({'best' if value == best else f'best {best:.4f}'})"

    def _time_left(self) -> str:
        rates = {name: seconds / length for name, (seconds, length) in self._spent.items()}
        if not rates or not any(self._expected.values()):
            return ""
        usual = sum(rates.values()) / len(rates)  # for a model of which no trial has been run yet
        work = sum(rates.get(name, usual) * sum(lengths) for (name, _), lengths in self._expected.items())
        return f"; about {readable_seconds(work / self.n_workers)} left"
