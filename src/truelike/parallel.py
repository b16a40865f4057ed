"""Work cut into fixed pieces and spread over threads; which thread did a piece never shows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeVar

from truelike.errors import ParameterError

T = TypeVar("T")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads(n_jobs: int | None) -> int:
    """How many threads are asked for; None: one for each core.

    >>> threads(3)
    3
    """
    if n_jobs is None:
        return cores()
    if n_jobs < 1:
        raise ParameterError(f"n_jobs is {n_jobs}; it is a number of threads, or None for all cores")
    return n_jobs


def for_each(work: Callable[[T], Any], pieces: Iterable[T], n_jobs: int | None) -> list[Any]:
    """The results of `work` on each piece, in the order of the pieces.

    >>> for_each(abs, [-1, 2], n_jobs=2)
    [1, 2]
    """
    n = threads(n_jobs)
    if n == 1:
        return [work(piece) for piece in pieces]
    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(work, pieces))


def one_blas_thread() -> AbstractContextManager[Any]:
    """Within it a matrix product runs on the thread that asks for it.

    A product that BLAS spreads over threads is cut, and so rounded, by their number. Work whose result must not
    depend on it is cut into fixed pieces by us, and the pieces are spread.
    """
    limits: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limits


@lru_cache(maxsize=1)
def _libraries() -> Any:
    """The BLAS of NumPy and that of SciPy. Looking for them takes milliseconds, so it is done once."""
    import scipy.linalg  # noqa: F401  so that its library is among those found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
