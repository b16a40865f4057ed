"""The runtime directory of a server: snapshots of models, and counts of the workers. It belongs to one server alone.

It is held by a lock on the directory itself, which ends with the server, in whatever namespace it runs, and which
systemd-tmpfiles respects. The files of the counts have all their bytes from the start: a page of a mapped file for
which the disk has no room would end the process that writes to it.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from truelike.core.progress import logger
from truelike.errors import ParameterError, quoted

PREFIX = "truelike-serve-"
SNAPSHOTS, METRICS = "snapshots", "metrics"
KINDS = ("counter", "histogram", "gauge_livemostrecent")  # of metrics, as prometheus_client names their files
SIZE = 2**20  # bytes of such a file, as prometheus_client makes it


class Runtime:
    """A new directory in the directory `place`, for as long as this process lives."""

    def __init__(self, place: Path) -> None:
        self.place = place
        try:
            _remove_abandoned(place)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        except OSError as error:
            raise ParameterError(
                f"cannot make a runtime directory in {quoted(place)}: {error.strerror}. Choose another "
                "--runtime-directory."
            ) from error
        self._lock = os.open(self.path, os.O_RDONLY)
        _lock(self._lock)
        for name in (SNAPSHOTS, METRICS):
            (self.path / name).mkdir(mode=0o700)

    @property
    def snapshots(self) -> Path:
        """The directory of snapshots."""
        return self.path / SNAPSHOTS

    def is_there(self) -> bool:
        """Whether nobody has removed it."""
        return self._is_mine() and self.snapshots.is_dir()

    def _is_mine(self) -> bool:
        """Whether what is at the path is the directory that was made."""
        try:
            here, mine = self.path.lstat(), os.fstat(self._lock)
        except OSError:
            return False
        return (here.st_dev, here.st_ino) == (mine.st_dev, mine.st_ino)

    def allocate(self, slot: int) -> str:
        """The directory for the counts of a worker, whose files have all their bytes then; "": there is no room."""
        directory = self.path / METRICS
        try:
            for kind in KINDS:
                file = directory / f"{kind}_{slot}.db"
                if not file.exists() or file.stat().st_size < SIZE:
                    file.write_bytes(bytes(SIZE))
        except OSError as error:
            logger.warning("worker %d is not counted in /metrics: %s", slot, error)
            return ""
        return str(directory)

    def remove(self) -> None:
        """Remove it."""
        if self._is_mine():
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _lock(descriptor: int) -> None:
    """Lock a directory until the descriptor is closed, or raise an OSError at once."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_abandoned(place: Path) -> None:
    """Remove the runtime directories of servers that were killed: they have copies of models."""
    for directory in place.glob(f"{PREFIX}*"):
        try:
            if not _is_runtime(directory):
                continue
            descriptor = os.open(directory, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                _lock(descriptor)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)
        except OSError:  # the server lives, or it is another user's
            continue


def _is_runtime(directory: Path) -> bool:
    """Whether a directory was made by a server of this user, and has nothing else in it."""
    about, names = directory.lstat(), {path.name for path in directory.iterdir()}
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and names == {SNAPSHOTS, METRICS}
