"""Worker processes of this machine, started by loky: a message about a trial in, its record out.

Each process is a pool of one: loky ends all processes of a pool if one is killed, and here only its own trial fails.
The directory of the search holds the split. A search writes it without a test part, so that no trial of a search can
use one.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from joblib.externals.loky import ProcessPoolExecutor, process_executor
from joblib.externals.loky.process_executor import BrokenProcessPool

from truelike.data.splits import Split
from truelike.selection.records import save_arrays
from truelike.selection.references import NotImportableError
from truelike.selection.trials import Arrays, Record, Trial, run

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


# --- inside a worker ---


def prepare(nice: int) -> None:
    """Prepare a process for trials. Each line keeps a promise that loky does not make."""
    # a search that was killed leaves no process behind
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started the search
    os.dup2(2, 1)  # stdout has the results of the command line, so what a trial prints goes to stderr
    process_executor._USE_PSUTIL = (
        False  # a worker that keeps a large split is not taken for one that leaks memory
    )
    if nice and hasattr(os, "nice"):
        os.nice(nice)


def answer(directory: str, message: Record, n_jobs: int) -> Record:
    """Run the trial of a message. "not_importable" or "failed" in the record says why there is no result."""
    record, kept = run_message(message, lambda: _split(directory), n_jobs)
    if kept is not None:
        save_arrays(Path(directory), message["key"], kept)
    return record


def run_message(message: Record, split: Callable[[], Split], n_jobs: int) -> tuple[Record, Arrays | None]:
    """Run the trial of a message: its record, and the arrays that are kept beside it."""
    try:
        trial = Trial.from_message(message)
    except NotImportableError as error:
        return {"not_importable": str(error)}, None
    return run_safely(trial, split(), n_jobs)


def run_safely(trial: Trial, split: Split, n_jobs: int) -> tuple[Record, Arrays | None]:
    """Run a trial; an exception of a model becomes a record that describes it."""
    started = time.perf_counter()
    try:
        return run(trial, split, n_jobs=n_jobs)
    except Exception as error:  # a model of the user's own may raise anything
        return {
            "failed": f"{type(error).__name__}: {error}",
            "traceback": "".join(traceback.format_exception(error)),
            "seconds": round(time.perf_counter() - started, 3),
        }, None


@lru_cache(maxsize=1)
def _split(directory: str) -> Split:
    return Split.load(Path(directory) / "split")


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
