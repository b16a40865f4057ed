"""What the supervisor and its workers tell each other, in files of the runtime directory.

`state.json` is the supervisor's: which snapshots to serve. A worker looks at it some times a second, switches, and says
in `workers/PID.json` which generation it serves. A file in `requests/` asks the supervisor to reload the models, and is
removed when all workers serve what came of it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from truelike.serving.settings import FILE as SETTINGS
from truelike.serving.settings import read_json, write_json

PREFIX = "truelike-serve-"  # of runtime directories
LOCK = "lock"
STATE, WORKERS, REQUESTS, SNAPSHOTS, METRICS = "state.json", "workers", "requests", "snapshots", "metrics"


@dataclass
class State:
    """What is served: models by their names."""

    generation: int = 0  # grows by one with every change
    snapshots: dict[str, str] = field(default_factory=dict)  # directories
    versions: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # why a model was refused; the one before it is served

    def write(self, runtime: Path) -> None:
        """Write the state."""
        write_json(runtime / STATE, asdict(self))

    @classmethod
    def read(cls, runtime: Path) -> Self:
        """Read the state."""
        return cls(**read_json(runtime / STATE))


def make_runtime(runtime: Path) -> None:
    """Make the directories of a runtime directory."""
    for name in (WORKERS, REQUESTS, SNAPSHOTS, METRICS):
        (runtime / name).mkdir(mode=0o700)


def lock_runtime(runtime: Path) -> int:
    """Lock a runtime directory for as long as this process lives, and return the descriptor of the lock."""
    import fcntl

    fresh = runtime / f".{LOCK}"
    descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    fresh.rename(runtime / LOCK)  # seen by others when it is locked
    return descriptor


def remove_abandoned() -> None:
    """Remove the runtime directories of supervisors that were killed: they have copies of models."""
    import fcntl

    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        try:
            if not _is_runtime(lock.parent):
                continue
            with lock.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:  # the supervisor lives, or it is another user's
            continue


def _is_runtime(directory: Path) -> bool:
    """Whether a directory was made by a supervisor of this user, and has nothing else in it."""
    about, names = directory.lstat(), {path.name for path in directory.iterdir()}
    own = {LOCK, STATE, WORKERS, REQUESTS, SNAPSHOTS, METRICS, SETTINGS}
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and SETTINGS in names and names <= own


def say_generation(runtime: Path, generation: int) -> None:
    """Say which generation this worker serves."""
    write_json(runtime / WORKERS / f"{os.getpid()}.json", {"generation": generation})


def generation_of(runtime: Path, worker: int) -> int:
    """The generation that a worker serves; -1: none yet."""
    try:
        return int(read_json(runtime / WORKERS / f"{worker}.json")["generation"])
    except (OSError, KeyError, json.JSONDecodeError):
        return -1


def ask_to_reload(runtime: Path) -> Path:
    """Ask the supervisor to reload the models; returns the request, a file which is removed when all workers have."""
    request = runtime / REQUESTS / secrets.token_hex(8)
    request.touch()
    return request
