"""Work on threads comes back in order, whole, with its errors."""

from __future__ import annotations

import threading
import time

import pytest

from truelike.errors import ParameterError
from truelike.parallel import cores, for_each, threads


def test_n_jobs_follows_scikit_learn() -> None:
    assert threads(-1) == cores() >= 1
    assert threads(-2) == max(1, cores() - 1)
    assert threads(-1_000) == 1
    assert threads(None) == 1
    assert threads(5) == 5


def test_no_thread_is_an_error() -> None:
    with pytest.raises(ParameterError, match="n_jobs is 0"):
        threads(0)


@pytest.mark.parametrize("n_jobs", [1, 2, 7, None, -1])
def test_results_come_in_the_order_of_the_pieces(n_jobs: int | None) -> None:
    def work(piece: int) -> int:
        time.sleep(0.002 * (piece % 3))
        return piece * piece

    assert for_each(work, range(20), n_jobs) == [piece * piece for piece in range(20)]
    assert for_each(work, [], n_jobs) == []


def test_two_threads_work_at_the_same_time() -> None:
    both_here = threading.Barrier(2, timeout=20)
    for_each(lambda _: both_here.wait(), range(2), 2)


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
