"""Runs trials in processes or on a cluster and keeps each result on disk, so that no finished trial is run again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from truelike import progress
from truelike.data.dataset import Dataset
from truelike.data.splits import Split
from truelike.errors import DataWarning, StorageError, WorkerError
from truelike.files import check_place, lock_directory, replacing_file
from truelike.parallel import one_blas_thread, threads
from truelike.training.checkpoint import fingerprint
from truelike.tuning.progress import TrialLog
from truelike.tuning.references import NotImportableError, plain
from truelike.tuning.trials import Record, Trial
from truelike.tuning.worker import failure, run_and_save

if TYPE_CHECKING:
    from truelike.cluster import Cluster
    from truelike.tuning.ray_jobs import RayJobs, RayWorker

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


class Runner:
    """Runs trials on one split, several at a time, and keeps their records in a directory.

    The directory holds `split/` (the data that trials may use), `trials.jsonl` (one line for each finished trial)
    and `users/` (the figures of each user, of trials that were evaluated on test). A search passes no test part.

    A model class, an objective or a network of the user's own reaches the processes by reference. The trials of
    one that they cannot import are run in this process, one at a time.

    Parameters
    ----------
    directory
        Where records are kept. It belongs to one split.
    train, validation, test
        The parts that trials may use.
    n_jobs
        Number of processes; -1 is one for each core, None is 1.
    nice
        The niceness of the processes.
    report
        Called with the record of each trial that was run.
    log
        Logs a line for each trial that was run.
    local_n_jobs
        Number of threads of a trial that is run in this process.
    cluster
        Run trials on a Ray cluster in place of `n_jobs` processes.

    Examples
    --------
    >>> import tempfile, truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=60, n_items=40).dataset(), seed=0)
    >>> with Runner(tempfile.mkdtemp(), split.train, split.validation, n_jobs=1) as runner:
    ...     [record] = runner.run([Trial("ItemPop")])
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
        n_jobs: int | None = -1,
        nice: int = 0,
        report: Callable[[Record], None] | None = None,
        log: TrialLog | None = None,
        local_n_jobs: int | None = 1,
        cluster: Cluster | None = None,
    ) -> None:
        self.directory, self.n_jobs, self.nice = Path(directory), threads(n_jobs), nice
        self.report, self.log, self.local_n_jobs = report, log, threads(local_n_jobs)
        nothing = validation.select(np.zeros(validation.n_interactions, dtype=bool))
        # trials use neither titles nor the caller's frame library
        parts = [
            part._with(titles=None, library="polars")
            for part in (train, validation, nothing if test is None else test)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # the caller's split has warned already
            self._split = Split(parts[0], parts[1], parts[2])
        # models whose trials are run in this process; runners that share a log share them
        self._local: set[str] = set() if log is None else log.local_models
        self._workers: list[_Worker | RayWorker] = []
        self._jobs: RayJobs | None = None
        self._unlock: Callable[[], None] | None = None
        try:
            self._prepare()
            self.records = read_records(self.directory / "trials.jsonl", repair=True)
            if cluster is not None:
                self._connect(cluster)
        except BaseException:
            self.close()
            raise

    def _connect(self, cluster: Cluster) -> None:
        from truelike.tuning.ray_jobs import RayJobs

        self._jobs = RayJobs(cluster, self.directory)
        self.n_jobs = self._jobs.n
        if self.log is not None:
            self.log.n_jobs = self.n_jobs

    def run(self, trials: Sequence[Trial]) -> list[Record]:
        """Return the records of trials, in their order; run those that are not known yet.

        A trial that raises an exception, or whose process ends, is a WorkerError.
        """
        with contextlib.closing(self._work(self._missing(trials))) as work:
            for trial, record in work:
                if "failed" in record:
                    raise self._error(trial, record) from record.get("exception")
                self._add(trial, record)
        return [self.records[trial.key] for trial in trials]

    def run_some(self, trials: Sequence[Trial], skip: Callable[[Trial], bool]) -> list[Record]:
        """Do the same, but leave out a trial where `skip` says so when its turn comes: its record is empty.

        A trial that fails gets a record with the error; the others go on.
        """
        with contextlib.closing(self._work(self._missing(trials), skip)) as work:
            for trial, record in work:
                if "traceback" in record:
                    progress.note(f"a trial of {trial.name} raised an exception\n{record['traceback']}")
                self._add(trial, _failed(trial, record) if "failed" in record else record)
        return [self.records.get(trial.key, {}) for trial in trials]

    def per_user(self, trial: Trial) -> np.ndarray[Any, Any]:
        """The test figures of each user: F1 at 2, 5, 10, 20, then NDCG at the same, then the trial's own metric.

        The columns are those of the record's "test".
        """
        values: np.ndarray[Any, Any] = np.load(self._users(trial), allow_pickle=False)
        return values

    def has_users(self, trial: Trial) -> bool:
        """Whether the test figures of each user are on disk."""
        return self._users(trial).exists()

    def _users(self, trial: Trial) -> Path:
        return self.directory / "users" / f"{trial.key}.npy"

    def close(self) -> None:
        """End the processes. Finished trials are on disk."""
        self._end_workers()
        if self._jobs is not None:
            self._jobs.close()
        if self._unlock is not None:
            self._unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _missing(self, trials: Sequence[Trial]) -> list[Trial]:
        missing: dict[str, Trial] = {}
        for trial in trials:
            if trial.key not in self.records and trial.key not in missing:
                missing[trial.key] = trial
            elif self.log is not None:
                self.log.skip(trial.name, finished=True, final=trial.test)
        return list(missing.values())

    def _end_workers(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    # --- running --------------------------------------------------------------------------------

    def _work(
        self, trials: list[Trial], skip: Callable[[Trial], bool] = lambda trial: False
    ) -> Generator[tuple[Trial, Record], None, None]:
        """Yield each trial with its record as it is finished; "failed" in the record says why it has no result."""
        waiting, here = deque(trials), deque[Trial]()
        done: SimpleQueue[tuple[_Worker | RayWorker, Record | None]] = SimpleQueue()
        busy: dict[_Worker | RayWorker, tuple[Trial, float]] = {}

        def start() -> None:
            """Give trials to free workers."""
            while waiting and len(busy) < self.n_jobs:
                trial = waiting.popleft()
                message = self._message(trial)
                if message is None:
                    here.append(trial)
                elif not self._skipped(trial, skip):
                    worker = next((each for each in self._workers if each not in busy), None) or self._new_worker()
                    busy[worker] = trial, time.perf_counter()
                    worker.start(message, partial(_put, done, worker))

        try:
            start()
            while busy or here:
                if here and not self._skipped(trial := here.popleft(), skip):
                    yield trial, self._run_here(trial)
                try:
                    # short waits, so that Ctrl-C is noticed
                    worker, answer = done.get(block=not here, timeout=1.0 if busy else 0.0)
                except Empty:
                    continue
                trial, started = busy.pop(worker)
                record = self._lost(worker) if answer is None else answer
                if "not_importable" in record:
                    self._run_locally(trial, record["not_importable"])
                    here.append(trial)
                else:
                    record.setdefault("seconds", round(time.perf_counter() - started, 3))
                    yield trial, record
                start()
        finally:
            if busy:  # stopped early: the results of unfinished trials must not reach the next call
                self._end_workers()

    def _lost(self, worker: _Worker | RayWorker) -> Record:
        """Describe a process that ended during a trial."""
        assert isinstance(worker, _Worker)  # Ray starts a lost trial again
        self._workers.remove(worker)
        code = worker.end(patience=5.0)
        why = "it may have run out of memory" if code == -9 else "its output is above"
        return {"failed": f"its process ended with exit code {code}; {why}"}

    def _new_worker(self) -> _Worker | RayWorker:
        if self._jobs is None:
            self._workers.append(_Worker(self.directory, self.nice))
        else:
            from truelike.tuning.ray_jobs import RayWorker

            self._workers.append(RayWorker(self._jobs))
        return self._workers[-1]

    def _message(self, trial: Trial) -> Record | None:
        """The message for a worker; None for a trial that is to be run in this process."""
        if trial.name in self._local:
            return None
        try:
            return trial.message()
        except NotImportableError as error:
            self._run_locally(trial, str(error))
            return None

    def _run_locally(self, trial: Trial, why: str) -> None:
        if trial.name not in self._local:
            self._local.add(trial.name)
            progress.note(
                f"{trial.name}: worker processes cannot import what it needs ({why}), so its trials are run in "
                "this process, one at a time. Define it in a module of its own to run them in parallel."
            )

    def _run_here(self, trial: Trial) -> Record:
        started = time.perf_counter()
        # with one thread as in a worker: times are compared
        limits = one_blas_thread() if self.local_n_jobs == 1 else contextlib.nullcontext()
        try:
            with limits:
                record = run_and_save(trial, self._split, self.directory, n_jobs=self.local_n_jobs)
        except Exception as error:  # a model of the user's own may raise anything
            seconds = round(time.perf_counter() - started, 3)
            return {**failure(error), "exception": error, "seconds": seconds}
        if "fit" in record:
            record["fit"]["mb"] = None  # this process holds more than the trial needs
        return record

    def _skipped(self, trial: Trial, skip: Callable[[Trial], bool]) -> bool:
        if not skip(trial):
            return False
        if self.log is not None:
            self.log.skip(trial.name, finished=False, final=trial.test)
        return True

    # --- the directory --------------------------------------------------------------------------

    def _prepare(self) -> None:
        mark = "-".join(fingerprint(part, {}) for part in self._split.parts)
        known = self.directory / "data.txt"
        check_place(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._unlock = lock_directory(
            self.directory, f"another search is running in {str(self.directory)!r}; use another directory"
        )
        if known.exists() and known.read_text(encoding="utf-8").strip() != mark:
            raise StorageError(
                f"the trials in {str(self.directory)!r} are of another dataset or split; use another directory"
            )
        if not (self.directory / "split").is_dir():
            self._split.save(self.directory / "split")
        with replacing_file(known) as fresh:
            fresh.write_text(mark + "\n", encoding="utf-8")

    def _add(self, trial: Trial, record: Record) -> None:
        self.records[trial.key] = record
        if not record.get("refused"):  # these cost little to run again, and may work on another machine
            with (self.directory / "trials.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
        if self.log is not None:
            self.log.add(record, final=trial.test)
        if self.report is not None:
            self.report(record)

    def _error(self, trial: Trial, record: Record) -> WorkerError:
        trace = f"\n\n{record['traceback']}" if "traceback" in record and "exception" not in record else ""
        return WorkerError(
            f"a trial of {trial.name} failed: {record['failed']}. Finished trials are kept in "
            f"{str(self.directory)!r}{trace}"
        )


def read_records(path: Path, *, repair: bool = False) -> dict[str, Record]:
    """Read finished trials by their keys, except an incomplete last line; `repair` removes it from the file."""
    if not path.exists():
        return {}
    text = path.read_bytes()
    end = text.rfind(b"\n") + 1
    if repair and end != len(text):
        os.truncate(path, end)
    records = {}
    for number, line in enumerate(text[:end].splitlines(), 1):
        try:
            record = json.loads(line)
            records[record["key"]] = record
        except (ValueError, TypeError, KeyError) as error:
            raise StorageError(
                f"line {number} of {str(path)!r} is not the record of a trial. Remove the line; its trial is then "
                "run again"
            ) from error
    return records


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


def _put(
    done: SimpleQueue[tuple[_Worker | RayWorker, Record | None]],
    worker: _Worker | RayWorker,
    record: Record | None,
) -> None:
    done.put((worker, record))


class _Worker:
    """A process that runs one trial after another."""

    def __init__(self, directory: Path, nice: int) -> None:
        environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "truelike.tuning.worker", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
            start_new_session=True,  # Ctrl-C is for the process that started the search
        )
        self._first = json.dumps([path for path in sys.path if isinstance(path, str)]) + "\n"
        if nice and hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, self.process.pid, nice)

    def start(self, message: Record, done: Callable[[Record | None], None]) -> None:
        """Run a trial and call `done` with the answer when it is there; with None if the process has ended."""
        text = self._first + json.dumps(message) + "\n"
        self._first = ""

        def wait() -> None:
            record = None
            try:
                assert self.process.stdin is not None
                assert self.process.stdout is not None
                self.process.stdin.write(text)
                self.process.stdin.flush()
                record = json.loads(self.process.stdout.readline())
            except (OSError, ValueError):
                pass  # the process has ended; the one who waits reports it
            finally:
                done(record)

        threading.Thread(target=wait, daemon=True).start()

    def end(self, patience: float = 0.0) -> int:
        """Stop at once, or after some seconds if it does not end by itself; an unfinished trial is run again."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        self.process.kill()
        code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        return code
