"""Trials as tasks of a Ray cluster. A trial whose worker or node is lost is run again, elsewhere.

The split goes to each node once, as the files of its directory, and each worker reads it once.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from truelike.cluster import TASK_TRIES, Cluster, cause_of, check_store, is_lost
from truelike.core.parallel import one_blas_thread
from truelike.data.splits import Split
from truelike.selection.processes import run_message
from truelike.selection.records import save_arrays
from truelike.selection.trials import Arrays, Record

AS_MANY_AS_FIT = 10_000  # workers


class RayWorkers:
    """A connection to a cluster on which trials are run; the directory has the split.

    Without a number of workers, there is one for each CPU; without a number of threads too, each has one thread.
    """

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self.directory = directory
        self._busy: dict[Future[Any], tuple[Any, str]] = {}  # the task and the key of the trial
        self._connection = ExitStack()
        self.ray = self._connection.enter_context(cluster.connected())
        try:
            if cluster.workers is None:
                cluster = replace(cluster, workers=AS_MANY_AS_FIT, threads=cluster.threads or 1)
            self.n_workers, self.n_jobs = cluster.layout(self.ray)
            paths = [path for path in sorted((directory / "split").iterdir()) if path.is_file()]
            files = {path.name: np.fromfile(path, dtype=np.uint8) for path in paths}
            check_store(self.ray, sum(each.nbytes for each in files.values()))
            # in a list, so that a worker that has read it does not get it again
            self.given = [self.ray.put(files)]
            options = {"max_retries": TASK_TRIES, "scheduling_strategy": "SPREAD"}
            self.task = self.ray.remote(num_cpus=self.n_jobs, **options)(_run)
        except BaseException:
            self.close()
            raise

    def submit(self, message: Record) -> Future[Any]:
        """Start a trial."""
        paths = [path for path in sys.path if isinstance(path, str)]
        task = self.task.remote(self.given, self.given[0].hex(), paths, message, self.n_jobs)
        future: Future[Any] = task.future()
        self._busy[future] = task, message["key"]
        return future

    def record(self, future: Future[Any]) -> Record:
        """The record of a trial that is done; "failed" says why it has no result."""
        _, key = self._busy.pop(future)
        try:
            record, kept = future.result()
        except Exception as error:  # of Ray, or of a network
            return {"failed": self._why(error)}
        if kept is not None:
            save_arrays(self.directory, key, kept)
        return dict(record)

    def _why(self, error: Exception) -> str:
        cause = cause_of(error)
        words = " ".join(str(cause).split())[:300]
        if is_lost(self.ray, error) or isinstance(cause, self.ray.exceptions.OutOfMemoryError):
            return f"its worker on the cluster was lost {TASK_TRIES + 1} times; it may have run out of memory ({words})"
        return f"the cluster did not run it ({type(cause).__name__}: {words})"

    def stop(self) -> None:
        """Stop unfinished trials."""
        for task, _ in self._busy.values():
            self.ray.cancel(task, force=True)
        self._busy.clear()

    def close(self) -> None:
        """Leave the cluster."""
        self.stop()
        self._connection.close()


_loaded: dict[str, Split] = {}  # the split that this worker has read


def _run(
    given: list[Any], mark: str, paths: list[str], message: Record, n_jobs: int
) -> tuple[Record, Arrays | None]:
    """Run a trial in a worker of the cluster."""
    sys.path.extend(path for path in paths if path not in sys.path)  # so that the caller's modules are found
    with one_blas_thread():  # as in a process of this machine
        return run_message(message, lambda: _split(given, mark), n_jobs)


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
