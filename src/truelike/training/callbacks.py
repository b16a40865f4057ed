"""Callbacks of the trainer: keep the best epoch, stop early, show progress. Each is called after an epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from truelike.errors import ParameterError
from truelike.training.trainer import State


class KeepBest:
    """Remember what was there at the best epoch of a metric, and stop after `patience` epochs without a better."""

    def __init__(self, monitor: str, snapshot: Callable[[], Any], patience: int | None) -> None:
        self.monitor, self.snapshot, self.patience = monitor, snapshot, patience
        self.best: Any = None
        self.best_value = float("-inf")
        self.best_epoch = -1

    def __call__(self, state: State) -> None:
        """Compare the epoch that has just ended with the best one."""
        if self.monitor not in state.last:
            raise ParameterError(f"monitor is {self.monitor!r}; there are {', '.join(state.last)}")
        value = state.last[self.monitor]
        if value > self.best_value:
            self.best_value, self.best_epoch, self.best = value, state.epoch, self.snapshot()
        elif self.patience is not None and state.epoch - self.best_epoch >= self.patience:
            state.stop = True


class Progress:
    """A bar on the terminal: epoch, loss, metric, samples a second."""

    def __init__(self, epochs: int, samples: int, monitor: str | None, *, show: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self.samples, self.monitor = samples, monitor
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(),
            TextColumn("{task.fields[words]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not (show and console.is_terminal),
            transient=True,
        )
        total = epochs * samples
        self.task = self.bar.add_task("", total=total, epoch=0, epochs=epochs, words="")
        self.bar.start()

    def within(self, epoch: int, done: int) -> None:
        """So many samples of this epoch are done."""
        self.bar.update(self.task, completed=epoch * self.samples + done, epoch=epoch + 1)

    def __call__(self, state: State) -> None:
        """Show the figures of the epoch that has just ended."""
        row = state.last
        words = f"loss {row['loss']:.4f}"
        if self.monitor in row:
            words += f"  {self.monitor} {row[self.monitor]:.4f}"
        words += f"  {self.samples / max(row['seconds'], 1e-9) / 1e6:.1f} M positives/s"
        self.bar.update(self.task, completed=(state.epoch + 1) * self.samples, words=words)

    def close(self) -> None:
        """Take the bar away."""
        self.bar.stop()
