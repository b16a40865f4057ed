"""The trainer: it counts epochs, and knows nothing of what it trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import polars as pl
from numpy.typing import NDArray

from truelike.errors import TruelikeError

Callback = Callable[["State"], None]


class DivergedError(TruelikeError, ArithmeticError):
    """The numbers grew beyond all bounds."""


class Trained(Protocol):
    """What an engine trains: arrays by name, that can be set aside and brought back."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """All that is trained and saved, by name."""

    def take(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> None:
        """Put numbers in the place of those that are there."""

    def copy(self) -> Self:
        """The same numbers in memory of their own."""

    def largest(self) -> float:
        """The greatest absolute value; NaN where there is one."""


class Engine(Protocol):
    """Anything that can do an epoch."""

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Do epoch `number`; call progress with the samples done."""

    def loss(self) -> float:
        """What is minimised, now."""

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays that training goes on from."""

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""


class ArrayEngine:
    """An engine whose state is its very arrays: what is written into them counts."""

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays that training goes on from."""
        raise NotImplementedError

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        for name, room in self.state().items():
            room[:] = arrays[name]


class Watched(Engine, Protocol):
    """An engine that is looked at after each epoch."""

    def check(self) -> None:
        """Raise DivergedError where a number is not finite or absurdly large."""


@dataclass
class State:
    """What a callback sees after each epoch, and may change: set `stop` to end the training.

    Attributes
    ----------
    epoch
        The number of the epoch that has just ended, from 0.
    epochs
        How many there are to be.
    rows
        One dict an epoch: epoch, seconds, loss, and the validation metrics.
    stop
        Set it to end after this epoch.
    """

    epoch: int
    epochs: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    stop: bool = False

    @property
    def last(self) -> dict[str, Any]:
        """The row of the epoch that has just ended."""
        return self.rows[-1]

    def history(self) -> pl.DataFrame:
        """All rows as a frame."""
        return pl.DataFrame(self.rows or {"epoch": [], "seconds": [], "loss": []})


def train(
    engine: Watched,
    epochs: int,
    *,
    callbacks: Sequence[Callback] = (),
    measure: Callable[[], dict[str, float]] | None = None,
    within_epoch: Callable[[int, int], None] | None = None,
    state: State | None = None,
) -> State:
    """Run epochs until there are enough or a callback says stop.

    Parameters
    ----------
    engine
        What does an epoch.
    epochs
        How many in all.
    callbacks
        Called after each epoch, in this order.
    measure
        Gives the validation metrics after an epoch.
    within_epoch
        Told (epoch, samples done) now and then.
    state
        Where to go on from; None: the start.
    """
    state = state or State(epoch=-1, epochs=epochs)
    state.epochs = epochs
    for number in range(state.epoch + 1, epochs):
        started = time.perf_counter()
        engine.epoch(number, None if within_epoch is None else lambda done, n=number: within_epoch(n, done))  # type: ignore[misc]
        seconds = time.perf_counter() - started
        engine.check()
        row = {"epoch": number, "seconds": seconds, "loss": engine.loss(), **(measure() if measure else {})}
        state.epoch = number
        state.rows.append(row)
        for callback in callbacks:
            callback(state)
        if state.stop:
            break
    return state
