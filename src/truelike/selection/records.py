"""The directory of a search: the records of its trials, so that no finished trial is run again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from truelike.core.files import check_place, lock_directory, replacing_file
from truelike.data.splits import Split
from truelike.engines.checkpoint import fingerprint
from truelike.errors import StorageError
from truelike.selection.trials import Arrays, Record, Trial


class Journal:
    """The trials of one split in a directory, which belongs to one search at a time.

    The directory holds `split/` (the data that trials may use), `trials.jsonl` (a line for each finished trial) and, of
    trials that were evaluated on test, `users/` (the figures of each user) and the lists that are to be kept.
    """

    def __init__(self, directory: Path, split: Split) -> None:
        self.directory = directory
        check_place(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self.close: Callable[[], None] = lock_directory(
            directory, f"another search is running in {str(directory)!r}; use another directory"
        )
        try:
            self._keep(split)
            self.records = read_records(directory / "trials.jsonl", repair=True)
        except BaseException:
            self.close()
            raise

    def _keep(self, split: Split) -> None:
        mark, known = "-".join(fingerprint(part, {}) for part in split.parts), self.directory / "data.txt"
        if known.exists() and known.read_text(encoding="utf-8").strip() != mark:
            raise StorageError(
                f"the trials in {str(self.directory)!r} are of another dataset or split; use another directory"
            )
        if not (self.directory / "split").is_dir():
            split.save(self.directory / "split")
        with replacing_file(known) as fresh:
            fresh.write_text(mark + "\n", encoding="utf-8")

    def add(self, trial: Trial, record: Record) -> None:
        """Keep the record of a trial."""
        self.records[trial.key] = record
        if record.get("refused"):  # these cost little to run again, and may work on another machine
            return
        with (self.directory / "trials.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())


def array_file(directory: Path, name: str, key: str) -> Path:
    """The file of an array that is kept of a trial, such as the test figures of each user."""
    return directory / name / f"{key}.npy"


def save_arrays(directory: Path, key: str, arrays: Arrays) -> None:
    """Write the arrays that are kept of a trial."""
    for name, array in arrays.items():
        path = array_file(directory, name, key)
        path.parent.mkdir(exist_ok=True)
        np.save(path, array, allow_pickle=False)


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
