"""Work in fixed pieces on several threads. The result does not depend on the number of threads.

The calling thread only waits, because it alone gets interrupts (Ctrl-C), and one must not stop it inside a lock or a
barrier. If a piece fails, or the calling thread is interrupted, no further piece is begun.
"""

from __future__ import annotations

import builtins
import contextvars
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from numbers import Integral
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeVar

from truelike.core.forks import check_not_forked
from truelike.errors import ParameterError, ParameterWarning, TooLargeError, warn

T = TypeVar("T")
R = TypeVar("R")

MOST_THREADS = 16  # on a machine with few cores: more threads than cores only wait for each other
WAIT = 0.5  # seconds after which a waiting thread looks for an interrupt, where a system does not wake it


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads(n_jobs: int | None) -> int:
    """The number of threads that `n_jobs` asks for, by scikit-learn's convention.

    -1 is all cores, -2 all but one, None is 1. More than twice the cores, and more than 16, are not started.

    >>> threads(3), threads(None)
    (3, 1)
    """
    if n_jobs is None:
        return 1
    if not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0:
        raise ParameterError(f"n_jobs is {n_jobs!r}; it is a number of threads, -1 for all cores, or None for 1")
    n_jobs = int(n_jobs)
    if n_jobs < 0:
        return max(1, cores() + 1 + n_jobs)
    most = max(MOST_THREADS, 2 * cores())
    if n_jobs > most:
        warn(f"n_jobs is {n_jobs}; {most} threads are used, because {cores()} cores are there", ParameterWarning)
    return min(n_jobs, most)


class _Job:
    """A function that every thread of a team calls once with its number."""

    def __init__(self, work: Callable[[int], None]) -> None:
        self.work = work
        self.context = contextvars.copy_context()  # the caller's, e.g. of np.errstate
        self.ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(self, thread: int) -> None:
        error: BaseException | None = None
        try:
            self.context.copy().run(self.work, thread)
        except BaseException as raised:
            error = raised
        self.ended.put(error)


class Team:
    """`n` threads that are all started before any of them works: a context. They do not keep the process alive.

    >>> with Team(2) as team:
    ...     team.map(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self._inboxes: list[SimpleQueue[_Job | None]] = []
        self._threads: list[threading.Thread] = []
        self._abort: Callable[[], object] = lambda: None  # no work is running yet

    def __enter__(self) -> Self:
        check_not_forked()
        try:
            for number in range(self.n):
                inbox: SimpleQueue[_Job | None] = SimpleQueue()
                thread = threading.Thread(target=_serve, args=(number, inbox), daemon=True)
                self._inboxes.append(inbox)
                thread.start()
                self._threads.append(thread)
        except BaseException as error:
            self._end()
            if isinstance(error, (RuntimeError, MemoryError)):
                raise TooLargeError(
                    f"only {len(self._threads)} of {self.n} threads could be started ({error}). Use a smaller "
                    "n_jobs, or allow this process more threads or memory."
                ) from error
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._abort()  # once more: a second interrupt may have come before the first was dealt with
        self._end()
        for thread in self._threads:
            thread.join()

    def _end(self) -> None:
        for inbox in self._inboxes:
            inbox.put(None)

    def run(self, work: Callable[[int], None], abort: Callable[[], None]) -> None:
        """Call `work` with 0, 1, ... n - 1, each on a thread of its own, and wait for all.

        If one raises an exception, or this thread is interrupted, `abort` is called, which must let the others
        return soon, and the exception is raised. The team does not work again then.
        """
        self._abort = abort
        job = _Job(work)
        try:
            for inbox in self._inboxes:
                inbox.put(job)
            for _ in self._inboxes:
                _wait(job.ended)
        except BaseException:
            abort()
            raise

    def map(self, work: Callable[[T], R], pieces: Iterable[T]) -> list[R]:
        """The results of `work` on each piece, in the order of the pieces."""
        if self.n == 1:
            return [work(piece) for piece in pieces]
        todo = list(pieces)
        results: dict[int, R] = {}
        numbers, lock, stopped = iter(range(len(todo))), threading.Lock(), threading.Event()

        def share(_: int) -> None:
            while not stopped.is_set():
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                results[number] = work(todo[number])

        self.run(share, stopped.set)
        return [results[number] for number in range(len(todo))]


def _serve(number: int, inbox: SimpleQueue[_Job | None]) -> None:
    while (job := inbox.get()) is not None:
        job.run(number)
        del job  # it holds the caller's arrays


def _wait(ended: SimpleQueue[BaseException | None]) -> None:
    """Wait for the next answer, and raise it if it is an error; an interrupt is noticed meanwhile."""
    while True:
        try:
            error = ended.get(timeout=WAIT)
        except Empty:
            continue
        if error is not None:
            raise error
        return


def for_each(work: Callable[[T], R], pieces: Iterable[T], n_jobs: int | None) -> list[R]:
    """The results of `work` on each piece, in the order of the pieces.

    >>> for_each(abs, [-1, 2], n_jobs=2)
    [1, 2]
    """
    todo = list(pieces)
    n = min(threads(n_jobs), len(todo))
    if n <= 1:
        return [work(piece) for piece in todo]
    with Team(n) as team:
        return team.map(work, todo)


class _Asking:
    """A context of a shared setting. It leaves at its end, or when it is forgotten because its end was interrupted."""

    def __init__(self, setting: SharedSetting) -> None:
        self.setting = setting

    def leave(self) -> None:
        setting = self.setting
        with setting._lock:
            setting._inside.discard(id(self))
            if not setting._inside and setting._before:
                setting._set(setting._before[0])
                setting._before = []

    def __del__(self) -> None:
        self.leave()


class SharedSetting:
    """A setting of the whole process that several threads may change for a time.

    The first who changes it remembers what it was, and the last who leaves restores that. So contexts may nest, and
    those of several threads may overlap. If an interrupt hits the end of a context, the setting is restored as soon
    as the exception has been handled. `get` and `set` read and write the setting.
    """

    def __init__(self, get: Callable[[], Any], set: Callable[[Any], object]) -> None:
        self._get, self._set = get, set
        self._lock = threading.RLock()  # a context may be forgotten while its thread holds it
        self._inside: builtins.set[int] = builtins.set()
        self._before: list[Any] = []

    @contextmanager
    def changed(self, value: Any) -> Iterator[None]:
        """A context in which the setting has a value, as long as no other thread changes it."""
        who = _Asking(self)
        try:
            with self._lock:
                self._inside.add(id(who))
                if not self._before:
                    self._before = [self._get()]
                self._set(value)
            yield
        finally:
            who.leave()


def _set_blas_threads(numbers: list[int]) -> None:
    for library, n in zip(_libraries(), numbers, strict=True):
        _set_threads(library, n)


def _blas_threads() -> list[int]:
    return [library.num_threads for library in _libraries()]


_blas = SharedSetting(_blas_threads, _set_blas_threads)


def one_blas_thread() -> AbstractContextManager[None]:
    """A context in which a matrix product runs on the calling thread only.

    BLAS splits a product by the number of threads, which changes the rounding. Work whose result must not depend on
    it is split into fixed pieces here, and the pieces run on several threads.
    """
    return _blas.changed([1] * len(_libraries()))


def _set_threads(library: Any, n: int) -> None:
    """Set the threads of a BLAS library from any thread.

    Newer versions of threadpoolctl ignore all threads but the one that set it first, until that one is forgotten.
    """
    forget = getattr(library, "clear_controlling_thread", lambda force: None)
    forget(force=True)
    library.set_num_threads(n)
    forget(force=True)


@lru_cache(maxsize=1)
def _libraries() -> list[Any]:
    """The BLAS libraries of NumPy and SciPy. Finding them takes milliseconds, so it is done once."""
    import scipy.linalg  # noqa: F401  so that its library is among those found
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def in_background(work: Callable[[], R]) -> R:
    """The result of `work`, which runs on a thread of its own while this thread waits for it.

    An interrupt is raised here at once; the other thread ends when it is done, and its result is lost. For work that
    cannot be interrupted in any other way, such as compiling: an interrupt inside a callback of LLVM is lost.

    >>> in_background(lambda: 2 + 3)
    5
    """
    check_not_forked()
    results: list[R] = []
    job = _Job(lambda _: results.append(work()))
    try:
        threading.Thread(target=job.run, args=(0,), daemon=True).start()
    except RuntimeError:  # no thread can be started
        return work()
    _wait(job.ended)
    return results[0]
