"""Events: what users did after the training. A directory of Parquet files, and what of them counts now.

Appending is atomic and durable. Rows that arrive together become one file: it is written beside its place, flushed,
and linked to the first free number (`events-000000000017.parquet`), which fails if another process took it. So all
processes see the same files in the same order, and one that has read up to a number needs to look for the next only.

Compaction writes the rows of many files into one (`events-000000000001-000000000256.parquet`) and removes them
afterwards. The file `compacted` has the last number that was compacted. It is changed under an exclusive lock, and
files are numbered under a shared one, so that no number is used twice. A file whose numbers another covers is ignored.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from truelike.data.frames import POLARS_ERRORS
from truelike.errors import StorageError, quoted
from truelike.progress import logger

try:
    import fcntl
except ImportError:  # Windows: one process, no compaction
    fcntl = None  # type: ignore[assignment]

SCHEMA: dict[str, Any] = {
    "user_id": pl.String,
    "item_id": pl.String,
    "type": pl.String,
    "time": pl.Datetime("us", "UTC"),
    "request_id": pl.String,
    "model": pl.String,
    "version": pl.String,
}
REMOVE = "remove"
ONLY_KEPT = ("view", "impression")  # types that are kept, and are no interactions
ABANDONED = 3_600.0  # seconds after which a file that was not given a number is nobody's
DAYS = 90.0  # for which an event counts in lists
MANY = 256  # files that are worth a compaction
MOST_PAIRS = 5_000_000  # (user, item) that are kept in memory
MOST_OF_A_USER = 500
_NAME = re.compile(r"events-(\d{12})(?:-(\d{12}))?\.parquet")


class _File(NamedTuple):
    first: int
    last: int
    path: Path


class EventLog:
    """The events of a directory, in the order in which they were appended.

    Parameters
    ----------
    directory
        Where the events are; it is made if it does not exist.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).absolute()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._compacted = os.open(self.directory / "compacted", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StorageError(f"events cannot be kept in {quoted(directory)}: {error.strerror}") from error
        self._prefix = f"{self.directory}{os.sep}events-"
        self._read, self._begun = 0, False  # the last number that was read
        with _locked(self.directory, exclusive=True):
            files = _files(self.directory)
            self._last = max((file.last for file in files), default=0)  # numbers up to it are not given again
            ranges = [file.last for file in files if file.last > file.first]
            if ranges and max(ranges) > self._compacted_to():  # a compaction was killed before it said so
                self._set_compacted(max(ranges))

    # --- appending ------------------------------------------------------------------------------

    def append(self, rows: Sequence[Any]) -> int:
        """Write rows, flush them to the disk, and return their number. They are there for good then."""
        frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
        fresh = self.directory / f".events-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            frame.write_parquet(fresh)
            _flush(fresh)
            with _locked(self.directory, exclusive=False):
                number = max(self._read, self._last, self._compacted_to()) + 1
                while True:
                    try:
                        os.link(fresh, self._path(number))
                        break
                    except FileExistsError:
                        number += 1
            _flush_directory(self.directory)
        except (OSError, *POLARS_ERRORS) as error:
            raise StorageError(f"events cannot be written to {quoted(self.directory)}: {error}") from error
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink()
        return number

    # --- reading --------------------------------------------------------------------------------

    def read_new(self) -> Iterator[pl.DataFrame]:
        """The rows that were appended since the last call, by any process, file by file.

        Where files were compacted meanwhile, rows before them come again, with all that followed them.
        """
        if not self._begun:  # numbers may be missing, if somebody moved files away
            yield from self._read_files(_listed(self.directory))
            self._begun = True
        while True:
            number = self._read + 1
            # at each request; twice as fast as a stat
            if os.access(f"{self._prefix}{number:012}.parquet", os.F_OK):
                files = [_File(number, number, self._path(number))]
            elif self._compacted_to() > self._read:
                files = [file for file in _listed(self.directory) if file.last > self._read]
            else:
                return
            yield from self._read_files(files)

    def _read_files(self, files: list[_File]) -> Iterator[pl.DataFrame]:
        """The rows of files, until one is not there because it was compacted meanwhile."""
        for file in files:
            try:
                frame = _read(file.path)
            except FileNotFoundError:
                return
            except StorageError as error:  # one bad file must not stop the others
                logger.error("%s", error)
                frame = pl.DataFrame(schema=SCHEMA)
            self._read = file.last
            yield frame

    def check(self) -> None:
        """Raise if events cannot be written."""
        probe, linked = (self.directory / f".events-{os.getpid()}-{name}" for name in ("probe", "linked"))
        try:
            probe.write_bytes(b"")
            os.link(probe, linked)
        except OSError as error:
            raise StorageError(
                f"events cannot be kept in {quoted(self.directory)}: {error.strerror}. It must be a directory that can "
                "be written, of a file system with hard links."
            ) from error
        finally:
            for path in (probe, linked):
                with contextlib.suppress(OSError):
                    path.unlink()

    # --- compaction -----------------------------------------------------------------------------

    def compact(self, *, at_least: int = MANY) -> int:
        """Write the rows of many small files into one, and return how many files there were; 0: too few."""
        if fcntl is None:
            return 0
        turn = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)  # one process at a time
            self._remove_leftovers()
            return self._compact(at_least)
        except BlockingIOError:
            return 0
        finally:
            os.close(turn)

    def _remove_leftovers(self) -> None:
        """Remove what killed processes left behind: files that others cover, and files that were never numbered."""
        for file in set(_numbered(self.directory)) - set(_files(self.directory)):
            file.path.unlink(missing_ok=True)
        for path in self.directory.glob(".events-*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    path.unlink()

    def _compact(self, at_least: int) -> int:
        files = _files(self.directory)
        if sum(file.first == file.last for file in files) < at_least:
            return 0
        old: list[_File] = []
        rows: list[pl.DataFrame] = []
        for file in reversed(files):
            try:
                frame = _read(file.path)
            except StorageError:  # a damaged file stays as it is, for somebody to look at
                break
            if file.first < file.last and frame.height > 2 * sum(each.height for each in rows):
                break  # an older file that is not much larger is rewritten, too
            old, rows = [file, *old], [frame, *rows]
        if len(old) < 2:
            return 0
        fresh = self.directory / f".events-{os.getpid()}-{secrets.token_hex(4)}"
        target = self.directory / f"events-{old[0].first:012}-{old[-1].last:012}.parquet"
        try:
            pl.concat(rows).write_parquet(fresh)
            _flush(fresh)
            with _locked(self.directory, exclusive=True):
                fresh.rename(target)
                _flush_directory(self.directory)
                self._set_compacted(old[-1].last)
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink()
        for file in old:
            file.path.unlink(missing_ok=True)
        return len(old)

    def _path(self, number: int) -> Path:
        return self.directory / f"events-{number:012}.parquet"

    def _compacted_to(self) -> int:
        return int.from_bytes(os.pread(self._compacted, 8, 0), "little")

    def _set_compacted(self, number: int) -> None:
        os.pwrite(self._compacted, number.to_bytes(8, "little"), 0)
        os.fsync(self._compacted)


def read_events(directory: str | Path) -> pl.DataFrame:
    """All events of a directory, the oldest first. A server may write to it meanwhile."""
    place = Path(directory)
    if not place.is_dir():
        raise StorageError(f"there is no directory of events {quoted(directory)}")
    for _ in range(100):
        try:
            return pl.concat([pl.DataFrame(schema=SCHEMA), *(_read(file.path) for file in _listed(place))])
        except FileNotFoundError:  # compacted meanwhile
            continue
    raise StorageError(f"the events in {quoted(directory)} change all the time. Stop the server first.")


def _listed(directory: Path) -> list[_File]:
    """The files in their order, at a moment at which no compaction puts one in the place of others."""
    with _locked(directory, exclusive=False):
        return _files(directory)


def _files(directory: Path) -> list[_File]:
    """The files of events in their order, without those that others cover."""
    kept: list[_File] = []
    for file in sorted(_numbered(directory), key=lambda file: (file.first, -file.last)):
        if not kept or file.last > kept[-1].last:
            kept.append(file)
    return kept


def _numbered(directory: Path) -> list[_File]:
    names = [(path, _NAME.fullmatch(path.name)) for path in directory.iterdir()]
    return [_File(int(name[1]), int(name[2] or name[1]), path) for path, name in names if name]


@contextlib.contextmanager
def _locked(directory: Path, *, exclusive: bool) -> Iterator[None]:
    """A lock of a directory of events, which ends with the process that holds it."""
    place = directory / "compacted"
    if fcntl is None or not place.exists():  # no server ever wrote there
        yield
        return
    lock = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


def _read(path: Path) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(path.read_bytes())
        return frame.select(frame[name].cast(dtype) for name, dtype in SCHEMA.items())
    except FileNotFoundError:
        raise
    except (OSError, *POLARS_ERRORS) as error:
        raise StorageError(f"{quoted(path)} is no file of events, or damaged: {error}. Move it away.") from error


def _flush(path: Path) -> None:
    with path.open("r+b") as handle:
        os.fsync(handle.fileno())


def _flush_directory(directory: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Recent:
    """The items of each user in events, the latest last. The users who did nothing for longest are forgotten first.

    >>> recent = Recent()
    >>> recent.add("ann", "tea", "click")
    >>> recent.add("ann", "rum", "purchase")
    >>> recent.add("ann", "tea", "remove")
    >>> recent.of("ann")
    {'rum': 'purchase'}
    """

    def __init__(self, most_pairs: int = MOST_PAIRS, days: float = DAYS) -> None:
        self._days = days
        self._users: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._most, self.pairs = most_pairs, 0

    def of(self, user: str) -> dict[str, str]:
        """The items of a user, and the type of the last event with each."""
        return dict(self._users.get(user, {}))  # another thread may add events

    def add(self, user: str, item: str, kind: str) -> None:
        """Count an event."""
        mine = self._users.get(user)
        if mine is None:
            if kind == REMOVE:
                return
            mine = self._users[user] = {}
        self._users.move_to_end(user)
        self.pairs -= len(mine)
        mine.pop(item, None)
        if kind != REMOVE:
            mine[item] = kind
            if len(mine) > MOST_OF_A_USER:
                del mine[next(iter(mine))]
        self.pairs += len(mine)
        if not mine:
            del self._users[user]
        while self.pairs > self._most:
            self.pairs -= len(self._users.popitem(last=False)[1])

    def take(self, frame: pl.DataFrame) -> None:
        """Count the events of a frame, in its order: those that are not too old, and are interactions."""
        oldest = datetime.now(UTC) - timedelta(days=self._days)
        frame = frame.filter((frame["time"] >= oldest).fill_null(True) & ~frame["type"].is_in(ONLY_KEPT))
        for user, item, kind in frame.select("user_id", "item_id", "type").iter_rows():
            self.add(user, item, kind)
