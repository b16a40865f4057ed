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
import json
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import polars as pl

from truelike.core.files import check_file, new_file, replacing_file
from truelike.core.forks import check_not_forked
from truelike.data import replay
from truelike.data.checks import check_number
from truelike.errors import EventsUnavailableError, StorageError, TruelikeError, quoted

FILE = "events.sqlite"
APPLICATION, VERSION = 0x74726C6B, 2  # "trlk"
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
    version TEXT,
    quantity REAL,
    event_id TEXT
)"""
# A version that an older truelike wrote has neither of these columns.
_STEPS = {1: ("ALTER TABLE events ADD COLUMN quantity REAL", "ALTER TABLE events ADD COLUMN event_id TEXT")}
_INDEXES = (
    "DROP INDEX IF EXISTS events_of_users",
    "CREATE INDEX IF NOT EXISTS events_by_user_and_type ON events (user_id, type)",
    "CREATE UNIQUE INDEX IF NOT EXISTS events_by_id ON events (event_id) WHERE event_id IS NOT NULL",
)
_OF_USER = """
SELECT item_id, type, time, quantity FROM (
    SELECT number, item_id, type, time, quantity FROM events
    WHERE user_id = ? AND type NOT IN (SELECT value FROM json_each(?)) ORDER BY number DESC LIMIT ?
) ORDER BY number"""
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
    quantity: float | None = None
    event_id: str | None = None


SCHEMA: dict[str, type[pl.DataType] | pl.DataType] = {
    **dict.fromkeys(Event._fields, pl.String),
    "time": pl.Datetime("us", "UTC"),
    "quantity": pl.Float64,
}
_COLUMNS = ", ".join(Event._fields)
_INSERT = f"""
INSERT INTO events ({_COLUMNS}) VALUES ({", ".join("?" * len(Event._fields))})
ON CONFLICT (event_id) WHERE event_id IS NOT NULL DO NOTHING"""


class EventStore:
    """The events of a directory, in the order in which they were appended. The directory is made if there is none.

    Examples
    --------
    >>> import tempfile
    >>> store = EventStore(tempfile.mkdtemp())
    >>> new = store.append([Event("ann", "tea", "click"), Event("ann", "rum", "view")])
    >>> store.of("ann", leave_out=("view",))
    [Event(item='tea', kind='click', time=None, quantity=None)]
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

    def append(self, events: Sequence[Event]) -> list[bool]:
        """Write events in one transaction, and flush them to the disk. They are there for good then.

        Returns whether each was new: one whose id is there already is left out.
        """
        with _explained(self.path):
            if _identity(self.path) != self._file:
                raise _unavailable(self.path, "another file is in its place. Put the old one back.")
            return self._write(events)

    def _write(self, events: Sequence[Event]) -> list[bool]:
        """Write events in one transaction, or nothing of them."""
        with self._writer:
            self._writer.execute("BEGIN IMMEDIATE")
            return [self._writer.execute(_INSERT, event).rowcount > 0 for event in events]

    def of(self, user: str, *, leave_out: Collection[str] = ()) -> list[replay.Event[str]]:
        """The latest events of a user, in the order in which they were appended, without those of some types."""
        with _explained(self.path), self._lock:
            rows = self._reader.execute(_OF_USER, (user, json.dumps(list(leave_out)), MOST_READ)).fetchall()
        return [replay.Event(*row) for row in rows]

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
        self._next: Future[list[bool]] | None = None

    async def append(self, events: Sequence[Event]) -> int:
        """Append events, and return when they are on disk how many were new."""
        with self._lock:
            written = self._next = self._next or self._thread.submit(self._write)
            mine = slice(len(self._waiting), len(self._waiting) + len(events))
            self._waiting += events
        new = await asyncio.shield(asyncio.wrap_future(written))  # others wait for it, too
        return sum(new[mine])

    def _write(self) -> list[bool]:
        with self._lock:
            events, self._waiting, self._next = self._waiting, [], None
        try:
            new = self._store.append(events)
        except StorageError as error:
            self._problem, self._until = str(error), time.monotonic() + TOLD
            raise
        self._until = 0.0
        return new

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
    >>> new = EventStore(place).append([Event("ann", "tea", "click")])
    >>> read_events(place).select("user_id", "item_id", "type").rows()
    [('ann', 'tea', 'click')]
    """
    path = _existing(directory)
    frames = [pl.DataFrame(schema=SCHEMA)]
    with _explained(path), contextlib.closing(_open(path, read_only=True)) as connection:
        there = {name for _, name, *_ in connection.execute("PRAGMA table_info(events)")}
        columns = ", ".join(name if name in there else f"NULL AS {name}" for name in Event._fields)
        rows = connection.execute(f"SELECT {columns} FROM events ORDER BY number")
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
    >>> new = EventStore(place).append([Event("ann", "tea", "click")])
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
    >>> new = EventStore(place).append([Event("ann", "tea", "click", 10**15), Event("ann", "rum", "click", 4 * 10**15)])
    >>> prune_events(place, 365)
    1
    """
    check_number("days", days, low=0, high=36_500)
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


def forget_events(directory: str | Path, users: Sequence[str]) -> int:
    """Delete all events of some users of a directory, and return their number. A server may run meanwhile.

    The file is written anew without them, so that none of its bytes tells of the users: neither of their events nor of
    those that were deleted earlier. This takes seconds for millions of events, in which nobody else can write.

    Parameters
    ----------
    directory
        The directory of `truelike serve --events`.
    users
        Their ids, as text.

    Examples
    --------
    >>> import tempfile
    >>> place = tempfile.mkdtemp()
    >>> new = EventStore(place).append([Event("ann", "tea", "click"), Event("bob", "rum", "click")])
    >>> forget_events(place, ["ann"]), read_events(place)["user_id"].to_list()
    (1, ['bob'])
    """
    path = _existing(directory)
    with _explained(path), contextlib.closing(_open(path)) as connection:
        deleted = 0
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            for user in users:
                deleted += connection.execute("DELETE FROM events WHERE user_id = ?", (user,)).rowcount
        connection.execute("VACUUM")  # what is deleted stays in the pages of the file, until they are written anew
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()  # and what was, in the WAL
    if busy:
        raise _unavailable(path, "the events are deleted, but another process still reads the old ones. Try again")
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
            _bring_up_to_date(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version != VERSION and version not in _STEPS:
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


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Give a file that an older version wrote the columns and indexes of this one."""
    if _version(connection) != VERSION:
        with connection:
            connection.execute("BEGIN EXCLUSIVE")  # another process may do the same
            for version in range(_version(connection), VERSION):
                for step in _STEPS[version]:
                    connection.execute(step)
            connection.execute(f"PRAGMA user_version = {VERSION}")
    for index in _INDEXES:
        connection.execute(index)


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
