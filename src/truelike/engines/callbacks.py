"""Callbacks of the epoch loop: keep the best epoch and stop early; show progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from truelike.core.progress import logger, progress_bar
from truelike.errors import ParameterError

if TYPE_CHECKING:
    from truelike.engines.engine import State

SECONDS_BETWEEN_LINES = 10.0


class KeepBest:
    """Keep a snapshot of the best epoch; stop after `patience` epochs without a better one.

    Training is never stopped while the best value is not above `floor`, the value of the popularity ranking: many
    models stay on a plateau below it in their first epochs.
    """

    def __init__(
        self, metric: str, snapshot: Callable[[], Any], patience: int | None, floor: float = float("-inf")
    ) -> None:
        self.metric, self.snapshot, self.patience, self.floor = metric, snapshot, patience, floor
        self.best: Any = None
        self.best_value = float("-inf")
        self.best_epoch = -1

    def __call__(self, state: State) -> None:
        """Compare the epoch that has just ended with the best one."""
        if self.metric not in state.last:
            raise ParameterError(f"metric is {self.metric!r}; there are {', '.join(state.last)}")
        value = state.last[self.metric]
        if value > self.best_value:
            self.best_value, self.best_epoch, self.best = value, state.epoch, self.snapshot()
        elif self.exhausted(state.epoch):
            state.stop = True

    def exhausted(self, epoch: int) -> bool:
        """Whether training stops after this epoch."""
        waited = self.patience is not None and epoch - self.best_epoch >= self.patience
        return waited and self.best_value > self.floor


class Progress:
    """A context with a bar in a terminal or notebook, log lines elsewhere: epoch, loss, metric, time left.

    The time left is estimated from whole epochs, so that it includes the evaluation after each of them.
    """

    def __init__(
        self, model: str, epochs: int, samples: int, metric: str | None, *, show: bool, first: int = 0
    ) -> None:
        self.model, self.epochs, self.samples, self.metric = model, epochs, samples, metric
        self.first, self.show = first, show
        self.started = self.said = time.monotonic()
        self.done = 0  # epochs since `started`, without the first, which may wait for the compiler
        self.bar = progress_bar("epoch {task.fields[epoch]}/{task.fields[epochs]}", show=show)
        self.task = self.bar.add_task("", total=epochs * samples, epoch=0, epochs=epochs, words="")

    def within(self, epoch: int, done: int) -> None:
        """Show the number of samples of this epoch that are done."""
        number = epoch - self.first
        self.bar.update(self.task, completed=number * self.samples + done, epoch=number + 1)

    def __call__(self, state: State) -> None:
        """Show the figures of the epoch that has just ended."""
        row, number, now = state.last, state.epoch - self.first + 1, time.monotonic()
        shown = {name: row[name] for name in ("loss", self.metric) if name in row and not math.isnan(row[name])}
        words = "  ".join(f"{name} {value:.4f}" for name, value in shown.items())
        last = state.stop or number == self.epochs
        if self.done and not last:
            left = (now - self.started) / self.done * (self.epochs - number)
            words += f"  {readable_seconds(left)} left"
        elif not self.done:
            self.started = now
        self.done += 1
        self.bar.update(self.task, completed=number * self.samples, words=words)
        if self.bar.disable and self.show and (last or now - self.said >= SECONDS_BETWEEN_LINES):
            self.said = now
            logger.info("%s: epoch %d of %d  %s", self.model, number, self.epochs, words)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


@contextmanager
def step_bar(model: str, steps: int, *, show: bool) -> Iterator[Callable[[int], None]]:
    """A bar, or log lines, for a model that is trained in steps. Call the result with the number of steps done."""
    bar, started = progress_bar("step {task.completed}/{task.total}", show=show), time.monotonic()
    task, said = bar.add_task("", total=steps, words=""), started

    def done(number: int) -> None:
        nonlocal said
        now = time.monotonic()
        left = readable_seconds((now - started) / number * (steps - number))
        bar.update(task, completed=number, words=f"{left} left")
        if bar.disable and show and (number == steps or now - said >= SECONDS_BETWEEN_LINES):
            said = now
            logger.info("%s: step %d of %d  %s left", model, number, steps, left)

    with bar:
        yield done


def readable_seconds(seconds: float) -> str:
    """A duration for people to read.

    >>> readable_seconds(4.2), readable_seconds(200), readable_seconds(7_300)
    ('4 s', '3 min', '2 h 2 min')
    """
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
