"""A process that runs trials: one JSON line in, one JSON line out, until its input ends.

    python -m truelike.tuning.worker DIRECTORY

The directory holds the split. A search writes it without a test part, so that no trial of a search can use one.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.splits import Split
from truelike.tuning.references import NotImportableError
from truelike.tuning.trials import Record, Trial, run

if TYPE_CHECKING:
    from truelike.evaluation.evaluate import Evaluation

Values = NDArray[np.float32]


def main() -> None:
    """Answer messages until stdin ends."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    directory = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # anything else that is printed must not get between the answers
    split = Split.load(directory / "split")
    sys.path[:] = json.loads(sys.stdin.readline())  # the parent's, so that its modules are found
    for line in sys.stdin:
        answer = _answer(json.loads(line), split, directory)
        try:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        except BrokenPipeError:  # the parent has ended
            os._exit(1)


def _answer(message: dict[str, Any], split: Split, directory: Path) -> Record:
    try:
        trial = Trial.from_message(message)
    except NotImportableError as error:
        return {"not_importable": str(error)}
    try:
        return run_and_save(trial, split, directory)
    except Exception as error:  # a model of the user's own may raise anything
        return failure(error)


def run_and_save(trial: Trial, split: Split, directory: Path, *, n_jobs: int | None = 1) -> Record:
    """Run a trial; the test figures of each user go to `users/` in the directory."""
    record, evaluation = run(trial, split, n_jobs=n_jobs)
    if evaluation is not None:
        save_users(directory, trial.key, values_of(evaluation))
    return record


def values_of(evaluation: Evaluation) -> Values:
    """The figures of each user, a column for each measure."""
    return np.stack(list(evaluation.values.values()), axis=1).astype(np.float32)


def save_users(directory: Path, key: str, values: Values) -> None:
    """Write the test figures of each user of a trial."""
    (directory / "users").mkdir(exist_ok=True)
    np.save(directory / "users" / f"{key}.npy", values, allow_pickle=False)


def failure(error: Exception) -> Record:
    """Describe an exception that a trial raised."""
    return {
        "failed": f"{type(error).__name__}: {error}",
        "traceback": "".join(traceback.format_exception(error)),
    }


def _end_with_parent(parent: int) -> None:
    """End this process when its parent is gone: a search that was killed cannot stop its workers."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
