"""A trial inside a worker, which may be a process of this machine or of a cluster: a message in, a record out.

The directory of the search holds the split. A search writes it without a test part, so that no trial of a search can
use one.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from truelike.data.splits import Split
from truelike.selection.records import Values, save_users
from truelike.selection.references import NotImportableError
from truelike.selection.trials import Record, Trial, run


def prepare(nice: int) -> None:
    """Prepare a process for trials. Each line keeps a promise that loky does not make."""
    from joblib.externals.loky import process_executor

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
    record, values = run_message(message, lambda: _split(directory), n_jobs)
    if values is not None:
        save_users(Path(directory), message["key"], values)
    return record


def run_message(message: Record, split: Callable[[], Split], n_jobs: int) -> tuple[Record, Values | None]:
    """Run the trial of a message: its record, and the test figures of each user where it has some."""
    try:
        trial = Trial.from_message(message)
    except NotImportableError as error:
        return {"not_importable": str(error)}, None
    return run_safely(trial, split(), n_jobs)


def run_safely(trial: Trial, split: Split, n_jobs: int) -> tuple[Record, Values | None]:
    """Run a trial; an exception of a model becomes a record that describes it."""
    started = time.perf_counter()
    try:
        record, evaluation = run(trial, split, n_jobs=n_jobs)
    except Exception as error:  # a model of the user's own may raise anything
        return {
            "failed": f"{type(error).__name__}: {error}",
            "traceback": "".join(traceback.format_exception(error)),
            "seconds": round(time.perf_counter() - started, 3),
        }, None
    if evaluation is None:
        return record, None
    return record, np.stack(list(evaluation.values.values()), axis=1).astype(np.float32)


@lru_cache(maxsize=1)
def _split(directory: str) -> Split:
    return Split.load(Path(directory) / "split")


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
