"""Worker processes of this machine, started by loky.

Each is a pool of one process: loky ends all processes of a pool if one is killed, and here only its own trial fails.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import BrokenProcessPool

from truelike.selection.trials import Record
from truelike.selection.worker import answer, prepare

THREAD_LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


class Processes:
    """Processes that run one trial after another, each on `n_jobs` threads. The directory has the split."""

    def __init__(self, directory: Path, n_workers: int, n_jobs: int, nice: int) -> None:
        self.directory, self.n_workers, self.n_jobs, self.nice = directory.resolve(), n_workers, n_jobs, nice
        self._free: list[ProcessPoolExecutor] = []
        self._busy: dict[Future[Record], ProcessPoolExecutor] = {}

    def submit(self, message: Record) -> Future[Record]:
        """Start a trial in a free process, or in a new one."""
        call = answer, str(self.directory), message, self.n_jobs
        with _without_current_directory():
            worker = self._free.pop() if self._free else self._new()
            try:
                future: Future[Record] = worker.submit(*call)
            except BrokenProcessPool:  # it was killed while it was idle
                worker = self._new()
                future = worker.submit(*call)
        self._busy[future] = worker
        return future

    def record(self, future: Future[Record]) -> Record:
        """The record of a trial that is done; "failed" says why it has no result."""
        worker = self._busy.pop(future)
        try:
            record = future.result()
        except BrokenProcessPool as error:
            worker.shutdown(wait=False)
            codes = re.findall(r"\((-?\d+)\)", str(error))
            why = "it may have run out of memory" if "-9" in codes else "its output is above"
            return {"failed": f"its process ended with exit code {', '.join(codes) or 'unknown'}; {why}"}
        self._free.append(worker)
        return record

    def stop(self) -> None:
        """End the processes of unfinished trials at once."""
        for worker in self._busy.values():
            worker.shutdown(kill_workers=True)
        self._busy.clear()

    def close(self) -> None:
        """End all processes; idle ones end by themselves."""
        self.stop()
        for worker in self._free:
            worker.shutdown(wait=False)
        self._free.clear()

    def _new(self) -> ProcessPoolExecutor:
        limits = dict.fromkeys(THREAD_LIMITS, str(self.n_jobs))
        return ProcessPoolExecutor(max_workers=1, initializer=prepare, initargs=(self.nice,), env=limits)


@contextmanager
def _without_current_directory() -> Iterator[None]:
    """A context in which new processes import nothing from the current directory: a polars.py there is not run.

    loky starts its processes with `python -m` and `python -c`, which put the directory first. A worker then gets the
    path of this process, so that it finds the modules that are found here.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
