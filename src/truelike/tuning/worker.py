"""A process that runs trials: one JSON line in, one JSON line out, until its input ends.

    python -m truelike.tuning.worker DIRECTORY

The directory holds the split that it may see. A search writes it without a test part, so that no trial of a search
can look at one.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np

from truelike.data.splits import Split
from truelike.errors import TrainingWarning
from truelike.tuning.trials import Trial, run


def main() -> None:
    """Serve until stdin ends."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    directory = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed does not belong between the answers
    warnings.simplefilter("ignore", TrainingWarning)  # a search tries bad settings, too, and sees what they bring
    split = Split.load(directory / "split")
    for line in sys.stdin:
        asked = json.loads(line)
        trial = Trial(**asked)
        record, judged = run(trial, split)
        if judged is not None:
            values = np.stack(list(judged.values.values()), axis=1).astype(np.float32)
            (directory / "users").mkdir(exist_ok=True)
            np.save(directory / "users" / f"{trial.key}.npy", values, allow_pickle=False)
        try:
            answers.write(json.dumps(record) + "\n")
            answers.flush()
        except BrokenPipeError:  # nobody waits for it any more
            os._exit(1)


def _end_with_parent(parent: int) -> None:
    """A search that was killed cannot tell its processes to stop."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
