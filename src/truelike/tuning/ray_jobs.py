"""Trials as tasks of a Ray cluster. A trial whose worker or node is lost is run again, elsewhere.

The split goes to each node once, as the files of its directory, and each worker reads it as `tuning/worker.py` does.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.cluster import TASK_TRIES, Cluster, cause_of, check_store, is_lost
from truelike.data.splits import Split
from truelike.parallel import one_blas_thread
from truelike.tuning.references import NotImportableError
from truelike.tuning.trials import Record, Trial, run
from truelike.tuning.worker import Values, failure, save_users, values_of

ALL = 10_000  # workers: as many as there is room for
Files = dict[str, NDArray[np.uint8]]


class RayJobs:
    """A connection to a cluster on which trials are run.

    Parameters
    ----------
    cluster
        The cluster. Without a number of workers, there is one for each CPU; without a number of threads too, each has
        one thread.
    directory
        That of the `Runner`, with the split.
    """

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.directory = directory
        self._connection = ExitStack()
        self.ray = self._connection.enter_context(cluster.connected())
        try:
            if cluster.workers is None:
                cluster = replace(cluster, workers=ALL, threads=cluster.threads or 1)
            self.n, self.threads = cluster.layout(self.ray)
            files = _read(directory / "split")
            check_store(self.ray, sum(each.nbytes for each in files.values()))
            # in a list, so that a worker that has read it does not get it again
            self.given = [self.ray.put(files)]
            options = {"max_retries": TASK_TRIES, "scheduling_strategy": "SPREAD"}
            self.task = self.ray.remote(num_cpus=self.threads, **options)(_run)
        except BaseException:
            self.close()
            raise

    def submit(self, message: Record) -> Any:
        """Start a trial."""
        paths = [path for path in sys.path if isinstance(path, str)]
        return self.task.remote(self.given, self.given[0].hex(), paths, message, self.threads)

    def result(self, task: Any, message: Record) -> Record:
        """Wait for a trial; "failed" in the record says why it has no result."""
        try:
            record, values = self.ray.get(task)
        except Exception as error:  # of Ray, or of a network
            return {"failed": self._why(error)}
        if values is not None:
            save_users(self.directory, message["key"], values)
        return dict(record)

    def _why(self, error: Exception) -> str:
        cause = cause_of(error)
        words = " ".join(str(cause).split())[:300]
        if is_lost(self.ray, error) or isinstance(cause, self.ray.exceptions.OutOfMemoryError):
            return f"its worker on the cluster was lost {TASK_TRIES + 1} times; it may have run out of memory ({words})"
        return f"the cluster did not run it ({type(cause).__name__}: {words})"

    def close(self) -> None:
        """Leave the cluster."""
        self._connection.close()


class RayWorker:
    """A place for one trial after another, as `runner._Worker` is."""

    def __init__(self, jobs: RayJobs) -> None:
        self.jobs = jobs
        self._task: Any = None
        self._thread: threading.Thread | None = None

    def start(self, message: Record, done: Callable[[Record], None]) -> None:
        """Run a trial and call `done` with its record."""
        task = self._task = self.jobs.submit(message)
        self._thread = threading.Thread(target=lambda: done(self.jobs.result(task, message)), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop an unfinished trial."""
        if self._thread is not None and self._thread.is_alive():
            self.jobs.ray.cancel(self._task, force=True)
            self._thread.join(10.0)


def _read(directory: Path) -> Files:
    return {each.name: np.fromfile(each, dtype=np.uint8) for each in sorted(directory.iterdir()) if each.is_file()}


_loaded: dict[str, Split] = {}  # the split that this worker has read


def _run(
    given: list[Any], mark: str, paths: list[str], message: Record, n_jobs: int
) -> tuple[Record, Values | None]:
    """Run a trial in a worker: its record, and the test figures of each user."""
    sys.path.extend(path for path in paths if path not in sys.path)  # so that the caller's modules are found
    try:
        trial = Trial.from_message(message)
    except NotImportableError as error:
        return {"not_importable": str(error)}, None
    split = _split(given, mark)
    try:
        with one_blas_thread():  # as in a process of `runner.py`
            record, evaluation = run(trial, split, n_jobs=n_jobs)
    except Exception as error:  # a model of the user's own may raise anything
        return failure(error), None
    return record, None if evaluation is None else values_of(evaluation)


def _split(given: list[Any], mark: str) -> Split:
    if mark not in _loaded:
        import ray

        with tempfile.TemporaryDirectory() as place:
            for name, content in ray.get(given[0]).items():
                content.tofile(Path(place) / name)
            split = Split.load(place)
        _loaded.clear()
        _loaded[mark] = split
    return _loaded[mark]
