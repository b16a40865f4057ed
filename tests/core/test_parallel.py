"""Work on threads comes back in order, whole, with its errors."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from truelike.core.parallel import SharedSetting, Team, cores, for_each, in_background, one_blas_thread, threads
from truelike.errors import ParameterError, ParameterWarning, TooLargeError


def test_n_jobs_follows_scikit_learn() -> None:
    assert [threads(n) for n in (-1, -2, -1_000, None, 5)] == [cores(), max(1, cores() - 1), 1, 1, 5]
    with pytest.raises(ParameterError, match="n_jobs is 0"):
        threads(0)


@pytest.mark.parametrize("n_jobs", [1, 2, 7, None, -1])
def test_results_come_in_the_order_of_the_pieces(n_jobs: int | None) -> None:
    def work(piece: int) -> int:
        time.sleep(0.002 * (piece % 3))
        return piece * piece

    assert for_each(work, range(20), n_jobs) == [piece * piece for piece in range(20)]
    assert for_each(work, [], n_jobs) == []


def test_one_thread_is_the_callers_own() -> None:
    assert set(for_each(lambda _: threading.get_ident(), range(5), 1)) == {threading.get_ident()}


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_error_in_a_piece_reaches_the_caller_and_the_rest_is_not_begun(n_jobs: int) -> None:
    begun = []

    def work(piece: int) -> None:
        begun.append(piece)
        if piece == 0:
            raise KeyError("piece 0")
        time.sleep(0.005)

    with pytest.raises(KeyError, match="piece 0"):
        for_each(work, range(1_000), n_jobs)
    assert len(begun) < 500


def test_more_threads_than_help_are_not_started() -> None:
    with pytest.warns(ParameterWarning, match=r"n_jobs is 9999999; \d+ threads are used"):
        assert threads(9_999_999) == max(16, 2 * cores())


# --- teams ----------------------------------------------------------------------------------------


def test_all_threads_of_a_team_work_at_the_same_time() -> None:
    together = threading.Barrier(5, timeout=20)
    with Team(5) as team:
        team.run(lambda thread: together.wait() and None, abort=together.abort)


def test_a_thread_that_fails_aborts_the_others() -> None:
    aborted = threading.Event()

    def work(thread: int) -> None:
        if thread == 1:
            raise KeyError("thread 1")
        assert aborted.wait(20)

    with pytest.raises(KeyError, match="thread 1"), Team(3) as team:
        team.run(work, abort=aborted.set)
    assert not any(thread.is_alive() for thread in team._threads)


@pytest.mark.parametrize("startable", [0, 1, 4])
def test_a_thread_that_cannot_be_started_is_an_error_and_no_thread_works(
    startable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started, worked = threading.Thread.start, [], []

    def limited(thread: threading.Thread) -> None:
        if len(started) == startable:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(TooLargeError, match=f"only {startable} of 5 threads could be started"):
        for_each(worked.append, range(5), 5)
    for thread in started:
        thread.join(20)
        assert not thread.is_alive()
    assert not worked


def test_threads_work_in_the_context_of_the_caller() -> None:
    def divide(_: int) -> float:
        return float(np.float32(1.0) / np.float32(0.0))

    with np.errstate(divide="ignore"):  # otherwise a warning, which is an error in tests
        assert for_each(divide, range(4), 2) == [np.inf] * 4


def test_work_in_the_background_returns_its_result_or_its_error() -> None:
    assert in_background(lambda: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(KeyError, match="lost"):
        in_background(lambda: {}["lost"])


# --- BLAS -----------------------------------------------------------------------------------------


def blas_threads() -> set[int]:
    """The threads of the BLAS libraries of NumPy and SciPy. faiss, which other tests import, has one for itself."""
    np.ones((2, 2)) @ np.ones((2, 2))
    own = [each for each in threadpool_info() if each["user_api"] == "blas" and "faiss" not in each["filepath"]]
    return {library["num_threads"] for library in own}


def test_the_limit_of_blas_nests() -> None:
    before = blas_threads()
    with one_blas_thread():
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == before


def test_an_error_restores_the_threads_of_blas() -> None:
    before = blas_threads()
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert blas_threads() == before


def test_an_interrupt_at_the_end_of_a_context_still_restores_the_setting() -> None:
    value, interrupted = [2], []

    def write(n: int) -> None:
        if n == 2 and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        value[0] = n

    with pytest.raises(KeyboardInterrupt), SharedSetting(lambda: value[0], write).changed(1):
        assert value == [1]
    gc.collect()
    assert value == [2]


def test_without_threads_work_in_the_background_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert in_background(threading.get_ident) == threading.get_ident()
