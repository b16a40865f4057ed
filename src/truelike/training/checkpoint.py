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

import numpy as np

from truelike.data.dataset import Dataset
from truelike.errors import StorageError
from truelike.files import reading, replacing_directory, settled
from truelike.training.callbacks import KeepBest
from truelike.training.engine import Engine, State, Trained

FORMAT = 2


def fingerprint(train: Dataset, parameters: dict[str, Any]) -> str:
    """A digest of the data and of every parameter that decides the result."""
    deciding = {name: value for name, value in parameters.items() if name not in ("epochs", "n_jobs", "patience")}
    digest = hashlib.sha256(json.dumps(deciding, sort_keys=True, default=str).encode())
    for array in (train.matrix.indptr, train.matrix.indices):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Checkpoint:
    """A callback that writes the state every few epochs or minutes, whichever comes first."""

    def __init__(
        self, place: Path, engine: Engine, best: KeepBest | None, mark: str, *, epochs: int, minutes: float
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
        from safetensors.numpy import save_file

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
            save_file(arrays, fresh / "arrays.safetensors")
            (fresh / "checkpoint.json").write_text(json.dumps(about) + "\n")
        self.written = time.monotonic()

    def read(self, trained: Trained) -> State | None:
        """Restore the engine and the best epoch, and return the state; None if there is no checkpoint."""
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
                    "with the same."
                )
            self.engine.restore(arrays)
            if self.best is not None and "best" in about:
                self.best.best_value, self.best.best_epoch = about["best"]["value"], about["best"]["epoch"]
                self.best.best = trained.copy()
                self.best.best.take(arrays, prefix="best_")
        return State(about["epoch"], 0, about["rows"])
