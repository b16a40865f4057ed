"""Work in fixed pieces on several threads. The result does not depend on the number of threads."""

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
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads(n_jobs: int | None) -> int:
    """The number of threads that `n_jobs` asks for, by scikit-learn's convention.

    -1 is all cores, -2 all but one, None is 1.

    >>> threads(3), threads(None)
    (3, 1)
    """
    if n_jobs is None:
        return 1
    if n_jobs == 0:
        raise ParameterError("n_jobs is 0; it is a number of threads, or -1 for all cores")
    return n_jobs if n_jobs > 0 else max(1, cores() + 1 + n_jobs)


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
    """A context in which a matrix product runs on the calling thread only.

    BLAS splits a product by the number of threads, which changes the rounding. Work whose result must not depend on
    it is split into fixed pieces here, and the pieces run on several threads.
    """
    limits: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limits


@lru_cache(maxsize=1)
def _libraries() -> Any:
    """The BLAS libraries of NumPy and SciPy. Finding them takes milliseconds, so it is done once."""
    import scipy.linalg  # noqa: F401  so that its library is among those found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
