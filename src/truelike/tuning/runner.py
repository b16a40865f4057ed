"""Trials in parallel processes, each result on disk as it comes; what is finished is never run again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, Self

import numpy as np

from truelike.data.dataset import Dataset
from truelike.data.splits import Split
from truelike.errors import StorageError, TruelikeError
from truelike.files import check_place, replacing_file
from truelike.parallel import threads
from truelike.training.checkpoint import fingerprint
from truelike.tuning.trials import Record, Trial

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


class WorkerError(TruelikeError):
    """A process that ran trials has ended before its time."""


class Runner:
    """Runs trials on one data set, some at a time, and remembers them in a directory.

    The directory holds `split/` (what the trials may see), `trials.jsonl` (a line for each finished one) and
    `users/` (the figures of each user, of trials that were judged on the test part). A search passes no test part.

    Examples
    --------
    >>> import tempfile, truelike as tl
    >>> split = tl.split.by_user(tl.synthetic.World(n_users=60, n_items=40).log(), seed=0)
    >>> with Runner(tempfile.mkdtemp(), split.train, split.validation, jobs=1) as runner:
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
        jobs: int | None = None,
        nice: int = 0,
        report: Callable[[Record], None] | None = None,
    ) -> None:
        self.directory, self.jobs, self.nice, self.report = Path(directory), threads(jobs), nice, report
        nothing = validation.select(np.zeros(validation.n_interactions, dtype=bool))
        self._split = Split(train, validation, nothing if test is None else test)
        self._workers: list[_Worker] = []
        self._lock: IO[str] | None = None
        try:
            self._prepare()
            self.records = read_records(self.directory / "trials.jsonl", mend=True)
        except BaseException:
            self.close()
            raise

    def run(self, trials: Sequence[Trial]) -> list[Record]:
        """The records of some trials, in their order; only those not known yet are run."""
        with contextlib.closing(self._work(self._missing(trials))) as work:
            for trial, record in work:
                if "ended" in record:
                    raise WorkerError(
                        f"a process that ran trials ended before its time (exit code {record['ended']}; what it "
                        f"said stands above); the trials that were finished are in {str(self.directory)!r}"
                    )
                self._add(trial, record)
        return [self.records[trial.key] for trial in trials]

    def run_some(self, trials: Sequence[Trial], skip: Callable[[Trial], bool]) -> list[Record]:
        """The same, but a trial that is to be skipped when its turn comes is not run: its record is empty.

        A process that ends before its time makes its trial one that was refused; the others go on.
        """
        with contextlib.closing(self._work(self._missing(trials), skip)) as work:
            for trial, record in work:
                self._add(trial, _crashed(trial, record) if "ended" in record else record)
        return [self.records.get(trial.key, {}) for trial in trials]

    def per_user(self, trial: Trial) -> np.ndarray[Any, Any]:
        """The test figures of each user: F1 at 2, 5, 10, 20, then NDCG at the same, and the trial's own metric.

        With a metric at another length there are more; the columns are those of the record's "test".
        """
        values: np.ndarray[Any, Any] = np.load(self._users(trial), allow_pickle=False)
        return values

    def has_users(self, trial: Trial) -> bool:
        """Whether the figures of each user are there."""
        return self._users(trial).exists()

    def _users(self, trial: Trial) -> Path:
        return self.directory / "users" / f"{trial.key}.npy"

    def close(self) -> None:
        """End the processes; nothing that is finished is lost."""
        self._end_workers()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _missing(self, trials: Sequence[Trial]) -> list[Trial]:
        return list({trial.key: trial for trial in trials if trial.key not in self.records}.values())

    def _end_workers(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def _work(
        self, trials: list[Trial], skip: Callable[[Trial], bool] = lambda trial: False
    ) -> Generator[tuple[Trial, Record], None, None]:
        """Each trial with its record as it comes; with its process's exit code where that has ended."""
        waiting, done = list(reversed(trials)), SimpleQueue[tuple[_Worker, Record | None]]()
        busy: dict[_Worker, tuple[Trial, float]] = {}

        def start() -> None:
            """Give work to whoever is free, as long as there is any."""
            while waiting and len(busy) < self.jobs:
                trial = waiting.pop()
                if skip(trial):
                    continue
                worker = next((each for each in self._workers if each not in busy), None)
                if worker is None:
                    worker = _Worker(self.directory, self.nice)
                    self._workers.append(worker)
                busy[worker] = trial, time.perf_counter()
                worker.start(trial, done)

        try:
            start()
            while busy:
                try:
                    worker, record = done.get(timeout=1.0)  # short waits, so that Ctrl-C is heard
                except Empty:
                    continue
                trial, started = busy.pop(worker)
                if record is None:
                    self._workers.remove(worker)
                    record = {"ended": worker.end(patience=5.0)}
                    record["seconds"] = round(time.perf_counter() - started, 3)
                yield trial, record
                start()
        finally:
            if busy:  # stopped in the middle: what they are at is of no use to the next call
                self._end_workers()

    # --- the directory --------------------------------------------------------------------------

    def _prepare(self) -> None:
        mark = "-".join(fingerprint(part, {}) for part in self._split.parts)
        known = self.directory / "data.txt"
        check_place(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.directory)
        if known.exists() and known.read_text(encoding="utf-8").strip() != mark:
            raise StorageError(f"the trials in {str(self.directory)!r} are of other data; name another directory")
        if not (self.directory / "split").is_dir():
            # nobody reads titles in a trial, nor a frame of the caller's library
            parts = [replace(part, titles=None, library="polars") for part in self._split.parts]
            Split(parts[0], parts[1], parts[2], self._split.info).save(self.directory / "split")
        with replacing_file(known) as fresh:
            fresh.write_text(mark + "\n", encoding="utf-8")

    def _add(self, trial: Trial, record: Record) -> None:
        self.records[trial.key] = record
        if not record.get("refused"):  # it costs nothing to ask again, and another machine may answer otherwise
            with (self.directory / "trials.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
        if self.report is not None:
            self.report(record)


def read_records(path: Path, *, mend: bool = False) -> dict[str, Record]:
    """The finished trials by their keys. A last line that a kill cut short is left out; `mend` removes it."""
    if not path.exists():
        return {}
    text = path.read_bytes()
    end = text.rfind(b"\n") + 1
    if mend and end != len(text):
        os.truncate(path, end)
    records = {}
    for number, line in enumerate(text[:end].splitlines(), 1):
        try:
            record = json.loads(line)
            records[record["key"]] = record
        except (ValueError, TypeError, KeyError) as error:
            raise StorageError(
                f"line {number} of {str(path)!r} is not the record of a trial; without it the trial is run again"
            ) from error
    return records


def _crashed(trial: Trial, record: Record) -> Record:
    """The record of a trial whose process has ended."""
    why = "for want of memory?" if record["ended"] == -9 else "what it said stands above"
    return {
        "key": trial.key,
        "model": trial.model,
        "parameters": trial.parameters,
        "error": f"its process ended before its time (exit code {record['ended']}; {why})",
        "refused": True,
        "crashed": True,
        "seconds": record["seconds"],
    }


def _lock(directory: Path) -> IO[str] | None:
    """Held while trials are run, so that no two searches write to one directory."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return None
    file = (directory / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise StorageError(f"another search is running in {str(directory)!r}") from error
    return file


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
            start_new_session=True,  # Ctrl-C is for the one who started the search
        )
        if nice and hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, self.process.pid, nice)

    def start(self, trial: Trial, done: SimpleQueue[tuple[_Worker, Record | None]]) -> None:
        """Run a trial, and put the record into the queue when it is there; None if the process has ended."""
        asked = json.dumps(asdict(trial))

        def wait() -> None:
            record = None
            try:
                assert self.process.stdin is not None
                assert self.process.stdout is not None
                self.process.stdin.write(asked + "\n")
                self.process.stdin.flush()
                record = json.loads(self.process.stdout.readline())
            except (OSError, ValueError):
                pass  # it has ended; the one who waits says so
            finally:
                done.put((self, record))

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
