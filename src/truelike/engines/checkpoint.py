"""Checkpoints: the state that training continues from, to the same bits as without an interruption.

The random numbers of an epoch depend on the seed and the number of the epoch only. So the parameters, those of the
best epoch and the history are the whole state. A checkpoint is a directory, replaced in one step, like a model.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from truelike.core.array_files import write_arrays
from truelike.core.files import (
    OpenDirectory,
    check_place,
    reading,
    replacing_directory,
    write_description,
)
from truelike.data.dataset import Dataset
from truelike.engines.callbacks import KeepBest
from truelike.engines.engine import Engine, State, Trained
from truelike.errors import NotFoundError, StorageError

FORMAT = 4
FILES = ("checkpoint.json", "arrays.safetensors")


def check_checkpoint_place(directory: Path) -> None:
    """Fail before training if checkpoints could not be written."""
    check_place(directory, FILES)


def fingerprint(train: Dataset, parameters: dict[str, Any]) -> str:
    """A digest of the data and of every parameter that decides the result."""
    deciding = {name: value for name, value in parameters.items() if name not in ("epochs", "n_jobs", "patience")}
    digest = hashlib.sha256(json.dumps(deciding, sort_keys=True, default=str).encode())
    train.digest_into(digest)
    return digest.hexdigest()


class Checkpoint:
    """A callback that writes the state every few epochs or minutes, whichever comes first."""

    def __init__(
        self, place: Path, engine: Engine, best: KeepBest | None, mark: str, epochs: int, minutes: float
    ) -> None:
        self.place, self.engine, self.best, self.mark = Path(place), engine, best, mark
        self.epochs, self.seconds = epochs, 60 * minutes
        self.written = time.monotonic()

    def __call__(self, state: State) -> None:
        """Write the state if it is due."""
        due = (state.epoch + 1) % self.epochs == 0 or time.monotonic() - self.written >= self.seconds
        if due or state.stop or state.epoch + 1 == state.epochs:
            self.write(state)

    def write(self, state: State) -> None:
        """Write the state now."""
        arrays = self.engine.state()
        about: dict[str, Any] = {
            "format": FORMAT,
            "fingerprint": self.mark,
            "epoch": state.epoch,
            "rows": state.rows,
        }
        if self.best is not None and self.best.best is not None:
            arrays = {**arrays, **{f"best_{name}": array for name, array in self.best.best.arrays().items()}}
            about["best"] = {"value": self.best.best_value, "epoch": self.best.best_epoch}
        with replacing_directory(self.place) as fresh:
            about["arrays"] = write_arrays(fresh / FILES[1], arrays)
            write_description(fresh / FILES[0], about)
        self.written = time.monotonic()

    def read(self, trained: Trained) -> State | None:
        """Restore the engine and the best epoch, and return the state; None if there is no checkpoint."""
        try:
            opened = OpenDirectory(self.place, "checkpoint", FILES[0], FILES[1:])
        except NotFoundError:
            return None
        with opened as files:
            with reading(files.place, "checkpoint"):
                about = files.about(FORMAT)
                arrays = files.read_arrays(FILES[1])
                if about["fingerprint"] != self.mark:
                    raise StorageError(
                        f"the checkpoint in {str(files.place)!r} is of other data or other parameters. Delete it, or "
                        "train with the same."
                    )
                _check_history(about)
                self.engine.restore(arrays)
                if self.best is not None and "best" in about:
                    self.best.best_value, self.best.best_epoch = about["best"]["value"], about["best"]["epoch"]
                    self.best.best = trained.copy()
                    self.best.best.take(arrays, prefix="best_")
            return State(about["epoch"], 0, about["rows"])


def _check_history(about: dict[str, Any]) -> None:
    """Raise ValueError if the epoch, the history and the best epoch of a checkpoint do not fit together."""
    epoch, rows = about["epoch"], about["rows"]
    if not rows or type(epoch) is not int or [row["epoch"] for row in rows] != list(range(len(rows))):
        raise ValueError("the history does not have a row for each epoch")
    if epoch + 1 != len(rows):
        raise ValueError(f"the history does not have a row for each epoch up to {epoch!r}")
    for row in rows:
        if not {"seconds", "loss"} <= set(row) == set(rows[0]) or not all(map(_is_number, row.values())):
            raise ValueError(f"the history has a row without a number in each column: {str(row)[:80]}")
    if "best" in about:
        best = about["best"]
        if not _is_number(best["value"]) or best["epoch"] not in range(epoch + 1):
            raise ValueError(f"the best epoch is {str(best)[:80]}, after epoch {epoch}")


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)
