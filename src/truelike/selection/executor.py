"""Runs trials in processes, on a cluster or in this process, and keeps each record on disk."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from truelike.core import progress
from truelike.core.parallel import cores, one_blas_thread
from truelike.data.dataset import Dataset
from truelike.data.splits import Split
from truelike.errors import WorkerError, muted
from truelike.selection.processes import Processes, run_safely
from truelike.selection.progress import TrialLog
from truelike.selection.records import Journal, array_file, save_arrays
from truelike.selection.references import NotImportableError, plain
from truelike.selection.trials import USERS, Record, Trial

if TYPE_CHECKING:
    from truelike.cluster import Cluster
    from truelike.selection.ray_workers import RayWorkers

Finished = tuple[Trial, Record]


class Executor:
    """Runs trials on one split, several at a time, and keeps their records in a directory (`records.py`).

    A search passes no test part. A model class, an objective or a network of the user's own reaches the workers by
    reference. The trials of one that they cannot import are run in this process, one at a time.

    `n_workers` processes, or a cluster, run trials on `n_jobs` threads each. None divides the cores among them, and a
    trial in this process has all. `report` is called with the record of each trial that was run, and `log` logs it.

    Examples
    --------
    >>> import tempfile, truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=60, n_items=40).dataset(), seed=0)
    >>> with Executor(tempfile.mkdtemp(), split.train, split.validation, n_workers=1) as executor:
    ...     [record] = executor.run([Trial("ItemPop")])
    >>> sorted(record["validation"])[:2]
    ['f1@10', 'f1@2']
    """

    def __init__(
        self,
        directory: str | Path,
        train: Dataset,
        validation: Dataset,
        test: Dataset | None = None,
        *,
        n_workers: int,
        n_jobs: int | None = None,
        nice: int = 0,
        report: Callable[[Record], None] | None = None,
        log: TrialLog | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.directory, self.report = Path(directory), report
        self.log = log or TrialLog("", n_workers, quiet=True)
        self._n_jobs_here = n_jobs or cores()
        nothing = validation.select(np.zeros(validation.n_interactions, dtype=bool))
        # trials use neither titles nor the caller's frame library
        parts = [
            part.with_parts(titles=None, library="polars")
            for part in (train, validation, nothing if test is None else test)
        ]
        with muted():  # the caller's split has warned already
            self._split = Split(parts[0], parts[1], parts[2])
        self.journal = Journal(self.directory, self._split)
        self.records = self.journal.records
        self._failed: set[str] = set()  # models of which a trial raised an exception or ended its process
        self._workers: Processes | RayWorkers
        if cluster is None:
            self._workers = Processes(self.directory, n_workers, n_jobs or max(1, cores() // n_workers), nice)
            return
        from truelike.selection.ray_workers import RayWorkers

        try:
            self._workers = RayWorkers(self.directory, cluster)
        except BaseException:
            self.journal.close()
            raise
        self.log.n_workers = self._workers.n_workers

    def run(self, trials: Sequence[Trial]) -> list[Record]:
        """Run the trials that are not known yet, give each its record, and return the records.

        A trial that raises an exception, or whose process ends, is a WorkerError.
        """
        with contextlib.closing(self._work(trials, set())) as work:
            for trial, record in work:
                if "failed" in record:
                    trace = f"\n\n{record['traceback']}" if "traceback" in record else ""
                    raise WorkerError(
                        f"a trial of {trial.name} failed: {record['failed']}. Finished trials are kept in "
                        f"{str(self.directory)!r}{trace}"
                    )
                self._add(trial, record)
        return self._assign(trials)

    def run_some(self, trials: Sequence[Trial]) -> list[Record]:
        """Do the same, but give a trial that fails a record with the error, and go on with other models.

        The further trials of its model are left out: their records are empty.
        """
        with contextlib.closing(self._work(trials, self._failed)) as work:
            for trial, record in work:
                if "traceback" in record:
                    progress.note(f"a trial of {trial.name} raised an exception\n{record['traceback']}")
                if "failed" in record:
                    self._failed.add(trial.name)
                self._add(trial, _failed(trial, record) if "failed" in record else record)
        return self._assign(trials)

    def per_user(self, trial: Trial) -> NDArray[np.float32]:
        """The test figures of each user. The columns are those of the record's "test"."""
        return self.array(trial, USERS)

    def array(self, trial: Trial, name: str) -> NDArray[Any]:
        """An array that was kept of a trial, one of `trial.kept`."""
        found: NDArray[Any] = np.load(array_file(self.directory, name, trial.key), allow_pickle=False)
        return found

    def forget_incomplete(self, trials: Sequence[Trial]) -> None:
        """Forget the records of trials of which an array is not there: in a copy of a directory, or not kept then."""
        for trial in trials:
            if not all(array_file(self.directory, name, trial.key).exists() for name in trial.kept):
                self.records.pop(trial.key, None)

    def close(self) -> None:
        """End the processes. Finished trials are on disk."""
        self._workers.close()
        self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _assign(self, trials: Sequence[Trial]) -> list[Record]:
        for trial in trials:
            trial.record = self.records.get(trial.key, {})
        return [trial.record for trial in trials]

    def _add(self, trial: Trial, record: Record) -> None:
        self.journal.add(trial, record)
        self.log.add(record, final=trial.test)
        if self.report is not None:
            self.report(record)

    def _missing(self, trials: Sequence[Trial]) -> deque[Trial]:
        missing: dict[str, Trial] = {}
        for trial in trials:
            if trial.key not in self.records and trial.key not in missing:
                missing[trial.key] = trial
            else:
                self.log.skip(trial.name, finished=True, final=trial.test)
        return deque(missing.values())

    def _work(self, trials: Sequence[Trial], skipped: set[str]) -> Generator[Finished, None, None]:
        """Yield each new trial with its record as it is finished; "failed" says why it has no result.

        Trials of `skipped` models are left out when their turn comes.
        """
        waiting, here = self._missing(trials), deque[Trial]()
        busy: dict[Future[Record], tuple[Trial, float]] = {}

        def start() -> None:
            """Give trials to free workers."""
            while waiting and len(busy) < self._workers.n_workers:
                trial = waiting.popleft()
                message = self._message(trial)
                if message is None:
                    here.append(trial)
                elif not self._is_skipped(trial, skipped):
                    busy[self._workers.submit(message)] = trial, time.perf_counter()

        try:
            start()
            while busy or here:
                if here and not self._is_skipped(trial := here.popleft(), skipped):
                    yield trial, self._run_here(trial)
                # short waits, so that Ctrl-C is noticed
                for future in wait(busy, 0.0 if here else 1.0, FIRST_COMPLETED).done:
                    trial, started = busy.pop(future)
                    record = self._workers.record(future)
                    if "not_importable" in record:
                        self._run_locally(trial, record["not_importable"])
                        here.append(trial)
                    else:
                        record.setdefault("seconds", round(time.perf_counter() - started, 3))
                        yield trial, record
                start()
        finally:
            if busy:  # stopped early: the results of unfinished trials must not reach the next call
                self._workers.stop()

    def _message(self, trial: Trial) -> Record | None:
        """The message for a worker; None for a trial that is to be run in this process."""
        if trial.name in self.log.local_models:
            return None
        try:
            return trial.message()
        except NotImportableError as error:
            self._run_locally(trial, str(error))
            return None

    def _run_locally(self, trial: Trial, why: str) -> None:
        if trial.name not in self.log.local_models:
            self.log.local_models.add(trial.name)
            progress.note(
                f"{trial.name}: worker processes cannot import what it needs ({why}), so its trials are run in "
                "this process, one at a time. Define it in a module of its own to run them in parallel."
            )

    def _run_here(self, trial: Trial) -> Record:
        # with one thread as in a worker: times are compared
        with one_blas_thread() if self._n_jobs_here == 1 else contextlib.nullcontext():
            record, kept = run_safely(trial, self._split, self._n_jobs_here)
        if kept is not None:
            save_arrays(self.directory, trial.key, kept)
            record["fit"]["mb"] = None  # this process holds more than the trial needs
        return record

    def _is_skipped(self, trial: Trial, skipped: set[str]) -> bool:
        if trial.name in skipped:
            self.log.skip(trial.name, finished=False, final=trial.test)
        return trial.name in skipped


def _failed(trial: Trial, record: Record) -> Record:
    """The record of a trial that raised an exception or whose process ended."""
    return {
        "key": trial.key,
        "model": trial.name,
        "parameters": {name: plain(value) for name, value in trial.parameters.items()},
        "error": record["failed"],
        "refused": True,
        "crashed": True,
        "seconds": record["seconds"],
    }
