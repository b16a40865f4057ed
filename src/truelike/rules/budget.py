"""The budget of a request: until when its answer may be computed, and how much its filters have compared.

It belongs to the context in which the answer is computed, so that what takes long looks at it wherever it is called.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf


@dataclass
class Budget:
    """Until when an answer may be computed, a time of `time.monotonic()`, and the comparisons of each filter so far."""

    until: float = inf
    comparisons: dict[str, int] = field(default_factory=dict)


_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextlib.contextmanager
def limited(until: float) -> Iterator[None]:
    """Compute an answer with a budget of its own.

    >>> with limited(time.monotonic() - 1):
    ...     check_time()
    Traceback (most recent call last):
    TimeoutError
    """
    token = _current.set(Budget(until))
    try:
        yield
    finally:
        _current.reset(token)


def check_time() -> None:
    """Raise a TimeoutError if the time is over: nobody waits for the answer any more."""
    budget = _current.get()
    if budget is not None and time.monotonic() > budget.until:
        raise TimeoutError


def compared(text: str, comparisons: int) -> int:
    """Note the comparisons of a filter, and return those of all filters of the request, each counted once."""
    budget = _current.get()
    if budget is None:
        return comparisons
    budget.comparisons[text] = comparisons
    return sum(budget.comparisons.values())
