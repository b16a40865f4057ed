"""What the benchmarks share: peak memory, the best of several runs, the machine in a line."""

from __future__ import annotations

import gc
import os
import platform
import threading
import time
from collections.abc import Callable
from typing import Any


def resident() -> int:
    """Bytes of memory that this process holds now."""
    with open("/proc/self/statm") as handle:
        return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class PeakMemory:
    """The most that the process held above its start, looked at every few milliseconds."""

    def __enter__(self) -> PeakMemory:
        gc.collect()
        self.start = self.peak = resident()
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def _look(self) -> None:
        while not self._stop.wait(0.002):
            self.peak = max(self.peak, resident())

    def __exit__(self, *_: Any) -> None:
        self.peak = max(self.peak, resident())
        self._stop.set()
        self._watch.join()

    @property
    def extra_mb(self) -> float:
        return (self.peak - self.start) / 2**20


def best_of(runs: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """The shortest time of several runs, and what the last one gave."""
    shortest, result = float("inf"), None
    for _ in range(runs):
        started = time.perf_counter()
        result = work()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest, result


def machine() -> str:
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as handle:
        model = next((line.split(":")[1].strip() for line in handle if "model name" in line), model)
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"
