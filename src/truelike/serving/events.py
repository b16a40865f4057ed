"""Events: what users did after the training, in one SQLite file.

Several processes append to the file and read it. An event is there for good when `append` returns: the file is in WAL
mode, and each commit is flushed to the disk. SQLite has one writer at a time, and AUTOINCREMENT never uses a number
twice, so numbers become visible in their order.

What counts for a user is read from the file at each request, by an index: a lookup takes some microseconds, no process
keeps events in memory, and all processes see the same.

`PRAGMA application_id` says that a file is ours; any other is left as it is. `PRAGMA user_version` is the version of
the schema: what a later version adds is a column, and a step from one version to the next in `_open`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import polars as pl

from truelike.core.files import check_file, new_file, replacing_file
from truelike.core.forks import check_not_forked
from truelike.errors import EventsUnavailableError, StorageError, TruelikeError, quoted

FILE = "events.sqlite"
APPLICATION, VERSION = 0x74726C6B, 1  # "trlk"
REMOVE = "remove"
ONLY_KEPT = ("view", "impression")  # types that are kept, and are no interactions
DAYS = 90.0  # for which an event counts in lists
MOST_OF_A_USER, MOST_READ = 500, 2_000  # items that count for a user, and the latest events that are looked at
WAIT, WAIT_TO_READ = 5.0, 0.25  # seconds for which another process may hold a lock
TOLD = 10.0  # seconds for which it is told that events were not written
CHUNK = 100_000  # rows that are read at once

_CREATE = """
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id TEXT NOT NULL,
    item_id TEXT NOT NULL,
    type TEXT NOT NULL,
    time INTEGER,
    request_id TEXT,
    model TEXT,
    version TEXT
)"""
_COUNTS = (
    "type NOT IN ('view', 'impression')"  # as ONLY_KEPT; the text of the index and of the query must be the same
)
_INDEX = f"CREATE INDEX IF NOT EXISTS events_of_users ON events (user_id) WHERE {_COUNTS}"
_OF_USER = f"SELECT item_id, type, time FROM events WHERE user_id = ? AND {_COUNTS} ORDER BY number DESC LIMIT ?"
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


class Event(NamedTuple):
    """An event as it is kept; `time` is in microseconds since 1970, UTC."""

    user_id: str
    item_id: str
    type: str
    time: int | None = None
    request_id: str | None = None
    model: str | None = None
    version: str | None = None


SCHEMA: dict[str, type[pl.DataType] | pl.DataType] = {
    **dict.fromkeys(Event._fields, pl.String),
    "time": pl.Datetime("us", "UTC"),
}
_COLUMNS = ", ".join(Event._fields)
_INSERT = f"INSERT INTO events ({_COLUMNS}) VALUES ({', '.join('?' * len(Event._fields))})"


class EventStore:
    """The events of a directory, in the order in which they were appended. The directory is made if there is none.

    Examples
    --------
    >>> import tempfile
    >>> store = EventStore(tempfile.mkdtemp())
    >>> store.append([Event("ann", "tea", "click"), Event("ann", "rum", "view")])
    >>> store.of("ann")
    {'tea': 'click'}
    >>> store.close()
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).absolute()
        self.path = self.directory / FILE
        self._lock = threading.Lock()  # of the reader: several threads ask
        with _explained(self.path):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._reader = _open(self.path)
            self._writer = _open(self.path)
            self._reader.execute(f"PRAGMA busy_timeout = {round(1_000 * WAIT_TO_READ)}")
            self._file = _identity(self.path)

    def check(self) -> None:
        """Raise if the file is damaged, or events cannot be written."""
        with _explained(self.path):
            for (found,) in self._reader.execute("PRAGMA quick_check(1)"):
                if found != "ok":
                    raise _damaged(self.path, found)
            self._write([])

    def append(self, events: Sequence[Event]) -> None:
        """Write events in one transaction, and flush them to the disk. They are there for good then."""
        with _explained(self.path):
            if _identity(self.path) != self._file:
                raise _unavailable(self.path, "another file is in its place. Put the old one back.")
            self._write(events)

    def _write(self, events: Sequence[Event]) -> None:
        """Write events in one transaction, or nothing of them."""
        with self._writer:
            self._writer.execute("BEGIN IMMEDIATE")
            self._writer.executemany(_INSERT, events)

    def of(self, user: str, days: float = DAYS) -> dict[str, str]:
        """The items of a user's events that count now, the latest last, and the type of the last event with each.

        An event counts if it is no view or impression, happened in the last `days` days, and no `remove` of its item
        was appended after it, whatever time that has: so it is when a model is trained, too.
        """
        with _explained(self.path), self._lock:
            rows = self._reader.execute(_OF_USER, (user, MOST_READ)).fetchall()
        found: dict[str, str] = {}
        removed: set[str] = set()
        oldest = 1e6 * (time.time() - 86_400 * days) if rows else 0.0
        for item, kind, when in rows:
            if kind == REMOVE:
                removed.add(item)
            elif item not in removed and item not in found and (when is None or when >= oldest):
                found[item] = kind
                if len(found) == MOST_OF_A_USER:
                    break
        return dict(reversed(found.items()))

    def close(self) -> None:
        """Close the file. The last process that does so leaves a single file behind."""
        self._reader.close()
        self._writer.close()


class EventWriter:
    """Appends events on a thread. What comes while the disk is busy is written together, in one transaction."""

    def __init__(self, store: EventStore) -> None:
        self._store, self._thread = store, ThreadPoolExecutor(1, thread_name_prefix="events")
        self._lock = threading.Lock()
        self._waiting: list[Event] = []
        self._problem, self._until = "", 0.0  # why the last events were not written, and how long that is told
        self._next: Future[None] | None = None

    async def append(self, events: Sequence[Event]) -> None:
        """Append events; returns when they are on disk."""
        with self._lock:
            written = self._next = self._next or self._thread.submit(self._write)
            self._waiting += events
        await asyncio.shield(asyncio.wrap_future(written))  # others wait for it, too

    def _write(self) -> None:
        with self._lock:
            events, self._waiting, self._next = self._waiting, [], None
        try:
            self._store.append(events)
        except StorageError as error:
            self._problem, self._until = str(error), time.monotonic() + TOLD
            raise
        self._until = 0.0

    @property
    def problems(self) -> dict[str, str]:
        """Why the last events were not written, if that was lately."""
        return {"events": self._problem} if time.monotonic() < self._until else {}


def read_events(directory: str | Path) -> pl.DataFrame:
    """All events of a directory, the oldest first. A server may write to it meanwhile.

    Parameters
    ----------
    directory
        The directory of `truelike serve --events`.

    Examples
    --------
    >>> import tempfile
    >>> place = tempfile.mkdtemp()
    >>> EventStore(place).append([Event("ann", "tea", "click")])
    >>> read_events(place).select("user_id", "item_id", "type").rows()
    [('ann', 'tea', 'click')]
    """
    path = _existing(directory)
    frames = [pl.DataFrame(schema=SCHEMA)]
    with _explained(path), contextlib.closing(_open(path, read_only=True)) as connection:
        rows = connection.execute(f"SELECT {_COLUMNS} FROM events ORDER BY number")
        while chunk := rows.fetchmany(CHUNK):
            frames.append(pl.DataFrame(chunk, schema=SCHEMA, orient="row"))
    return pl.concat(frames)


def export_events(directory: str | Path, file: str | Path) -> int:
    """Write all events of a directory into a Parquet file, and return their number. A server may run meanwhile.

    Parameters
    ----------
    directory
        The directory of `truelike serve --events`.
    file
        The Parquet file. One that exists is replaced when the new one is complete.

    Examples
    --------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> EventStore(place).append([Event("ann", "tea", "click")])
    >>> export_events(place, place / "events.parquet")
    1
    """
    check_file(Path(file), (".parquet",))
    found = read_events(directory)
    with replacing_file(Path(file)) as fresh:
        found.write_parquet(fresh)
    return found.height


def prune_events(directory: str | Path, days: float) -> int:
    """Delete the oldest events of a directory, and return their number. A server may run meanwhile.

    They are deleted in the order in which they were appended, up to the first one that happened in the last `days`
    days: so a `remove` is never deleted before what it takes back. The file does not shrink; its room is used again.

    Parameters
    ----------
    directory
        The directory of `truelike serve --events`.
    days
        Days for which events are kept.

    Examples
    --------
    >>> import tempfile
    >>> place = tempfile.mkdtemp()
    >>> EventStore(place).append([Event("ann", "tea", "click", 10**15), Event("ann", "rum", "click", 4 * 10**15)])
    >>> prune_events(place, 365)
    1
    """
    path = _existing(directory)
    oldest = round(1e6 * (time.time() - 86_400 * days))
    deleted = 0
    with _explained(path), contextlib.closing(_open(path)) as connection:
        first = "SELECT number FROM events WHERE time IS NULL OR time >= ? ORDER BY number LIMIT 1"
        after = "SELECT max(number) + 1 FROM events"
        (end,) = connection.execute(first, (oldest,)).fetchone() or connection.execute(after).fetchone()
        chunk = "DELETE FROM events WHERE number IN (SELECT number FROM events WHERE number < ? LIMIT ?)"
        while (n := connection.execute(chunk, (end, CHUNK // 10)).rowcount) > 0:  # others write in between
            deleted += n
    return deleted


def _existing(directory: str | Path) -> Path:
    """The file of events of a directory, which must be there."""
    check_not_forked()
    path = Path(directory).absolute() / FILE
    if not path.is_file():
        raise StorageError(
            f"there are no events in {quoted(directory)}: expected the directory of `truelike serve --events`, which "
            f"has a file {FILE}"
        )
    return path


# --- the file -------------------------------------------------------------------------------------


def _open(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection to a file of events, which is made if there is none. What is not ours is not touched."""
    if not read_only and not path.exists():
        _make(path)
    _check_header(path)
    mode = "rw"
    if read_only:  # SQLite makes two files beside it, where it can
        beside = path.with_name(f"{FILE}-wal").exists() or os.access(path.parent, os.W_OK)
        mode = "ro" if beside else "ro&immutable=1"
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", timeout=WAIT, isolation_level=None, check_same_thread=False, uri=True
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        _check_version(connection, path)
        if not read_only:
            connection.execute(_INDEX)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version != VERSION:
        raise StorageError(
            f"{quoted(path)} has version {version} of the event store; this truelike reads {VERSION}. Use the truelike "
            "that wrote it, or another directory."
        )


def _make(path: Path) -> None:
    """Make a file without events. It appears whole, so no other process ever reads the beginning of one."""
    with new_file(path) as fresh, contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(_CREATE)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StorageError(
                "events need a file system on which processes can share memory, not one of the network"
            )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check_header(path: Path) -> None:
    """Raise if a file is not ours, before it is opened for writing: SQLite might change it.

    SQLite reads it, not `open`: to close a file that SQLite has open elsewhere in a process ends the locks of that
    process, and another one would remove the WAL under it.
    """
    if not path.exists():
        return
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        try:
            # while another process writes its WAL back, the first page may be there before the last: no damage
            connection.execute("PRAGMA writable_schema = ON")
            (application,) = connection.execute("PRAGMA application_id").fetchone()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            application = 0
    if application != APPLICATION:
        raise StorageError(
            f"{quoted(path)} is not a file of events, or damaged. Move it away, or use another directory."
        )


def _identity(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_dev, about.st_ino


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Errors of SQLite and of the system, as what they are."""
    try:
        yield
    except sqlite3.Error as error:
        if _is_damage(error):
            raise _damaged(path, error) from error
        if isinstance(error, sqlite3.OperationalError):
            raise _unavailable(path, error) from error
        raise
    except TruelikeError:  # some are errors of the system, too
        raise
    except OSError as error:
        raise _unavailable(path, error.strerror or error) from error


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def _unavailable(path: Path, reason: object) -> EventsUnavailableError:
    return EventsUnavailableError(f"the events in {quoted(path)} cannot be read or written now: {reason}")


def _damaged(path: Path, found: object) -> StorageError:
    return StorageError(
        f"{quoted(path)} is damaged: {found}. Move it away; `sqlite3 {FILE} .recover` may save what can be read."
    )
