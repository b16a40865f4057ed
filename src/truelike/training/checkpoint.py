"""Checkpoints: all that a training run needs to go on as if it had never stopped.

The random numbers of an epoch depend on the seed and its number alone, so tables, the best tables so far and
the history are the whole state. A checkpoint is a directory, written aside and renamed, like a model.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from truelike.data.dataset import Dataset
from truelike.errors import StorageError
from truelike.files import reading, replacing_directory, settled
from truelike.training.callbacks import KeepBest
from truelike.training.trainer import Engine, State, Trained

FORMAT = 1


def fingerprint(train: Dataset, parameters: dict[str, Any]) -> str:
    """A digest of the data and of every parameter that decides the result."""
    deciding = {name: value for name, value in parameters.items() if name not in ("epochs", "n_jobs", "patience")}
    digest = hashlib.sha256(json.dumps(deciding, sort_keys=True, default=str).encode())
    for array in (train.matrix.indptr, train.matrix.indices):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Checkpoint:
    """A callback that writes the state every so many epochs, or minutes, whichever comes first."""

    def __init__(
        self, place: Path, engine: Engine, best: KeepBest | None, mark: str, *, epochs: int, minutes: float
    ) -> None:
        self.place, self.engine, self.best, self.mark = Path(place), engine, best, mark
        self.epochs, self.seconds = epochs, 60 * minutes
        self.written = time.monotonic()

    def __call__(self, state: State) -> None:
        """Write where it is time to."""
        due = (state.epoch + 1) % self.epochs == 0 or time.monotonic() - self.written >= self.seconds
        if due or state.stop or state.epoch + 1 == state.epochs:
            self.write(state)

    def write(self, state: State) -> None:
        """Write the state now."""
        from safetensors.numpy import save_file

        arrays = self.engine.state()
        about: dict[str, Any] = {
            "format": FORMAT,
            "fingerprint": self.mark,
            "epoch": state.epoch,
            "stop": state.stop,
            "rows": state.rows,
        }
        if self.best is not None and self.best.best is not None:
            arrays = {**arrays, **{f"best_{name}": array for name, array in self.best.best.arrays().items()}}
            about["best"] = {"value": self.best.best_value, "epoch": self.best.best_epoch}
        with replacing_directory(self.place) as fresh:
            save_file(arrays, fresh / "arrays.safetensors")
            (fresh / "checkpoint.json").write_text(json.dumps(about) + "\n")
        self.written = time.monotonic()

    def read(self, trained: Trained) -> State | None:
        """Put back what the engine trains and the best of it, and give the state; None: nothing is there."""
        from safetensors.numpy import load_file

        place = settled(self.place)
        if not (place / "checkpoint.json").is_file():
            return None
        with reading(place, "checkpoint"):
            about = json.loads((place / "checkpoint.json").read_text())
            arrays = load_file(place / "arrays.safetensors")
            if about["format"] != FORMAT:
                raise StorageError(f"the checkpoint in {str(place)!r} has format {about['format']}, not {FORMAT}")
            if about["fingerprint"] != self.mark:
                raise StorageError(
                    f"the checkpoint in {str(place)!r} is of other data or other parameters. Delete it, or train "
                    "with those that it was made with."
                )
            self.engine.restore(arrays)
            if self.best is not None and "best" in about:
                self.best.best_value, self.best.best_epoch = about["best"]["value"], about["best"]["epoch"]
                self.best.best = trained.copy()
                self.best.best.take(arrays, prefix="best_")
        return State(about["epoch"], 0, about["rows"], about["stop"])
