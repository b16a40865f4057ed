"""Threads wait for each other, and none waits for a thread that failed or will never come."""

from __future__ import annotations

import threading
from typing import Any

import numba
import numpy as np
import pytest

import truelike as tl
from truelike.engines.sgd import engine
from truelike.engines.sgd.barrier import abort, wait


@numba.njit(nogil=True)
def wait_for_two(counter: Any) -> Any:
    return wait(counter, 2)


def in_a_thread(counter: Any, found: list[bool]) -> threading.Thread:
    thread = threading.Thread(target=lambda: found.append(bool(wait_for_two(counter))), daemon=True)
    thread.start()
    return thread


@pytest.fixture
def counter() -> Any:
    return np.zeros(1, dtype=np.int64)


def test_threads_go_on_when_all_have_arrived(counter: Any) -> None:
    wait_for_two(np.full(1, 1, dtype=np.int64))  # compiles
    for _ in range(3):
        found: list[bool] = []
        threads = [in_a_thread(counter, found) for _ in range(2)]
        for thread in threads:
            thread.join(20)
        assert found == [True, True]


def test_an_abort_releases_those_who_wait_and_those_who_come_later(counter: Any) -> None:
    found: list[bool] = []
    waiting = in_a_thread(counter, found)
    abort(counter[None])
    waiting.join(20)
    assert found == [False]
    assert not wait_for_two(counter)


def test_a_thread_that_fails_ends_the_fit_and_leaves_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tl.read([(u, (u + i * i) % 23) for u in range(60) for i in range(6)])
    model = tl.BPR(factors=4, epochs=2, n_jobs=2).fit(data, progress=False)
    before = model.recommend(k=3)

    def kernel(thread: int, threads: int, counters: Any, *_: Any) -> None:
        if thread == 1:
            raise MemoryError("no memory for thread 1")
        wait_for_two(counters[0])

    monkeypatch.setattr(engine, "compiled_batches", lambda: kernel)
    with pytest.raises(MemoryError, match="thread 1"):
        model.fit(data, progress=False)
    assert model.recommend(k=3).equals(before)
