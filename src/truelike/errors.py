"""Exceptions and warnings. Every message says what was found, what is expected and what to do."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class TruelikeError(Exception):
    """Base class of all exceptions that truelike raises."""


class DataError(TruelikeError, ValueError):
    """Rows, a file or a split cannot be used as they are."""


class DataWarning(UserWarning):
    """Data is used, but not all of it, or not as one might expect."""


class TrainingWarning(UserWarning):
    """A model was trained, but it ranks no better than a trivial one."""


class ParameterError(TruelikeError, ValueError):
    """A parameter is outside its allowed range."""


class FilterError(ParameterError):
    """A filter on the attributes of items cannot be used. The message says where and why."""


class ObjectiveError(TruelikeError):
    """A check of an objective failed."""


class ParameterWarning(UserWarning):
    """A parameter is used, but not as it was given."""


class DivergedError(TruelikeError, ArithmeticError):
    """Training diverged: a parameter or a score is not finite, or too large."""


class TooLargeError(TruelikeError, MemoryError):
    """A model needs more memory, or more threads, than there are. Raised before anything is trained."""


class UnknownMeasureError(ParameterError, KeyError):
    """A measure that an evaluation does not have."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class NotFittedError(TruelikeError, AttributeError):
    """The model has not been fitted yet."""


class UnknownIdError(TruelikeError, KeyError):
    """A user or an item that is not in the training data, or a dataset that was not compared."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0])


class StorageError(TruelikeError, OSError):
    """A directory of a model, split or checkpoint cannot be written or read."""


class EventsUnavailableError(StorageError):
    """The events cannot be read or written now: the file is locked, moved or read-only, or the disk is full."""


class NotFoundError(StorageError, FileNotFoundError):
    """There is no model, split or checkpoint in a directory."""


class FetchError(TruelikeError, OSError):
    """A public dataset cannot be downloaded, or its content is not as expected."""


class ForkError(TruelikeError, RuntimeError):
    """The process was forked from one that had used truelike."""


class ClusterError(TruelikeError, RuntimeError):
    """A Ray cluster cannot be reached or used, or a worker of it failed."""


class WorkerError(TruelikeError):
    """A trial failed with an exception, or its worker process ended unexpectedly."""


class MissingExtraError(TruelikeError, ImportError):
    """An optional package is not installed."""


__all__ = [name for name, each in globals().items() if isinstance(each, type) and each.__module__ == __name__]


def __dir__() -> list[str]:
    return __all__


_MUTED: ContextVar[bool] = ContextVar("muted", default=False)


@contextmanager
def muted() -> Iterator[None]:
    """A context in which `warn` is silent in this thread. Unlike `warnings.catch_warnings` it affects no other."""
    before = _MUTED.set(True)
    try:
        yield
    finally:
        _MUTED.reset(before)


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of the caller's own code that led here."""
    if _MUTED.get():
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "truelike":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def some(values: Iterable[object], limit: int = 5, longest: int = 80) -> str:
    """The first few of many values, for a message. A value of more than `longest` letters is cut.

    >>> some([1, 2, 3])
    '1, 2, 3'
    >>> some(range(10))
    '0, 1, 2, 3, 4 and 5 more'
    """
    shown = list(values)
    head = ", ".join(_cut(str(value), longest) for value in shown[:limit])
    return head if len(shown) <= limit else f"{head} and {len(shown) - limit:,} more"


def quoted(value: object) -> str:
    """A path or a name as it is shown in a message: in quotes, and cut if it is very long.

    >>> quoted("log.csv"), len(quoted("x" * 5_000))
    ("'log.csv'", 200)
    """
    return _cut(repr(str(value)), 200)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
