"""What the epoch loop asks of an engine and of the parameters that it trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import polars as pl
from numpy.typing import NDArray

from truelike.errors import DataError


class Trained(Protocol):
    """Learned parameters: arrays by name that can be copied, saved and restored."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The arrays that are trained and saved, by name."""

    def take(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> None:
        """Overwrite the arrays with saved ones."""

    def copy(self) -> Self:
        """A copy with memory of its own."""

    def largest(self) -> float:
        """The largest absolute value; NaN if there is one."""


class Engine(Protocol):
    """Anything that can run an epoch."""

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Run epoch `number`; call `progress` with the number of samples done."""

    def loss(self) -> float:
        """The current value of what is minimised."""

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays that training continues from."""

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""


class ArrayEngine(ABC):
    """An engine whose state is a set of arrays that are trained in place."""

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays that training continues from."""

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        own = self.state()
        for name, array in own.items():
            if arrays[name].shape != array.shape or arrays[name].dtype != array.dtype:
                raise DataError(
                    f"the array {name} has shape {arrays[name].shape} and type {arrays[name].dtype}; expected "
                    f"{array.shape} and {array.dtype}"
                )
        for name, array in own.items():
            array[...] = arrays[name]


@contextmanager
def closing(engine: Engine) -> Iterator[Engine]:
    """A context at whose end what an engine holds beside memory is released, if it does."""
    try:
        yield engine
    finally:
        release = getattr(engine, "close", None)
        if release is not None:
            release()


@dataclass
class State:
    """The state of training after an epoch, as callbacks see it.

    Attributes
    ----------
    epoch
        Number of the epoch that has just ended, from 0.
    epochs
        Number of epochs in all.
    rows
        One dict per epoch: epoch, seconds, loss and the validation metrics.
    stop
        Set it to True to stop after this epoch.
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
