"""Directories of models, splits and checkpoints, and files: written and read as a whole.

Writing: a file or directory is written beside its place and renamed. A crash leaves the old or the new one. A directory
is never changed once it is in its place.

Reading: all files of a directory are opened before any is read, from one and the same directory, so that a reader gets
one state while another process replaces it. One of the files, the description (`model.json`, `split.json`,
`checkpoint.json`), has checksums of the others: the CRC-32 of a file, or one for each of its arrays. So files of
another model, or damaged ones, are found.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from truelike.core.array_files import Arrays, checksum, read_arrays
from truelike.core.forks import check_not_forked
from truelike.errors import (
    DataError,
    ForkError,
    MissingExtraError,
    NotFoundError,
    ParameterError,
    StorageError,
    TooLargeError,
    TruelikeError,
    some,
)

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TRIES = 100  # of replacing a directory that another process replaces, too
LARGEST_DESCRIPTION = 2**28  # bytes
MISSES = 5  # looks at a directory after which a file counts as missing: it may be replaced just then
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")  # of the directories that `_owned` makes
LOCK = "lock"  # the file of a directory that its owner locks
LONGEST_PATH = 3_800  # bytes
LONGEST_NAME = 180  # bytes of the name of a directory: temporary names beside it are longer


def as_place(directory: Any) -> Path:
    """The absolute path of a directory that is to be written or read; an error if no system could have it."""
    try:
        path = Path(directory).resolve()
    except TypeError as error:
        raise StorageError(
            f"a directory is expected; {type(directory).__name__} was given. Pass a path."
        ) from error
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a loop of links
        raise StorageError(f"{_cut(str(directory))!r} cannot be a directory: {_cut(str(error))}") from error
    if not is_utf8(path):
        raise StorageError(
            f"{_cut(ascii(str(directory)))} cannot be a directory: its name is not valid UTF-8. Use another name."
        )
    if not path.name:
        raise StorageError(f"{str(path)!r} is the root of the file system. Name a directory of its own.")
    if len(os.fsencode(path.name)) > LONGEST_NAME or len(os.fsencode(path)) > LONGEST_PATH:
        raise StorageError(f"{_cut(str(path))!r} is too long for the name of a directory. Use a shorter one.")
    return path


def file_name(name: str) -> str:
    """A name that a file or a directory can have on any system; other names stay different.

    >>> file_name("BPR, 5 negatives"), file_name("a/b")
    ('BPR, 5 negatives', 'a%2Fb')
    """
    safe = quote(name, safe=" ,=+()@")
    if len(safe) > LONGEST_NAME:
        safe = f"{safe[: LONGEST_NAME - 20]}-{zlib.crc32(name.encode()):08x}"
    return safe if safe.strip(". ") == safe else f"_{safe}_"


def _cut(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."


def _previous(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.previous")


def _sweep(path: Path) -> None:
    """Remove temporary directories beside `path` whose writers were killed: nobody holds their lock."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.tmp")
    for left in path.parent.iterdir():
        if ours.fullmatch(left.name):
            with contextlib.suppress(OSError, NotImplementedError), (left / LOCK).open("w") as lock:
                if _try_lock(lock):
                    shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _owned(path: Path) -> Iterator[Path]:
    """Yield a new temporary directory beside `path`, locked by this process for as long as it lives."""
    while True:
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        fresh.mkdir()
        try:
            lock = (fresh / LOCK).open("w")
        except FileNotFoundError:  # swept before it was locked
            continue
        try:
            with contextlib.suppress(NotImplementedError):  # without locks nobody sweeps either
                if not _try_lock(lock):
                    continue
            yield fresh
            return
        finally:
            lock.close()  # first: Windows removes no open file
            shutil.rmtree(fresh, ignore_errors=True)


def _try_lock(file: IO[str]) -> bool:
    """Lock an open file, and return whether it was free and is still there; NotImplementedError without locks."""
    if fcntl is None:
        raise NotImplementedError("this system has no locks")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise NotImplementedError(f"this file system has no locks: {error}") from error
    return os.fstat(file.fileno()).st_nlink > 0  # otherwise the other process has just removed it


def check_place(directory: Path, names: Collection[str] = (), *, own: re.Pattern[str] | None = None) -> None:
    """Raise before the work if a directory with the files `names`, or such that match `own`, cannot be written."""
    directory = as_place(directory)
    _refuse_working_directory(directory)
    standing = next(place for place in (directory, *directory.parents) if _exists(place))
    if not standing.is_dir():
        raise StorageError(f"{str(standing)!r} is a file; a directory is to be written there. Name another place.")
    _check_writable(directory, standing if standing != directory else directory.parent)
    if names or own:
        _refuse_to_delete_others(directory, names, own)


def check_file(path: Any, endings: Collection[str]) -> Path:
    """The absolute path of a file that is to be written; an error before the work if it could not be after it."""
    try:
        place = Path(path).absolute()
    except (TypeError, OSError, ValueError) as error:
        raise StorageError(f"the output is {_cut(repr(path))}; expected the name of a file") from error
    if place.suffix not in endings:
        raise ParameterError(f"the output is {_cut(str(path))!r}; its name must end in {', '.join(endings)}")
    _refuse_undecodable(place)
    try:
        is_directory, standing = place.is_dir(), next(each for each in place.parents if each.exists())
    except (OSError, ValueError) as error:
        raise StorageError(f"{_cut(str(path))!r} cannot be written: {error}") from error
    if is_directory:
        raise StorageError(f"{str(path)!r} is a directory; expected the name of a file")
    refuse_special(place)
    if not standing.is_dir():
        raise StorageError(f"{str(path)!r} cannot be written: {str(standing)!r} is a file")
    _check_writable(path, standing)
    return place


def refuse_special(path: Path) -> None:
    """Raise if a pipe, a socket or a device has the name of a file that is to be written: it would be replaced."""
    if _exists(path) and not path.is_file():
        raise StorageError(
            f"{_cut(str(path))!r} is a pipe, a socket or a device, which would be replaced. Name a regular file."
        )


def _refuse_undecodable(path: Path) -> None:
    if not is_utf8(path):
        raise StorageError(
            f"{_cut(ascii(str(path)))} cannot be written: its name is not valid UTF-8. Use another name."
        )


def is_utf8(path: str | Path) -> bool:
    """Whether the name of a file is text, which polars and DuckDB need to open it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_writable(path: Any, parent: Path) -> None:
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError(f"{str(path)!r} cannot be written: {str(parent)!r} does not allow it")


def lock_directory(directory: Path, refusal: str) -> Callable[[], None]:
    """Lock a directory for this process, and return the function that unlocks it. A process that ends unlocks it.

    A file `lock` is written in it. `refusal` is the message of the error if another process has locked it.
    """
    file = (directory / LOCK).open("w")
    with contextlib.suppress(NotImplementedError):
        if not _try_lock(file):
            file.close()
            raise StorageError(refusal)
    return file.close


def _refuse_working_directory(directory: Path) -> None:
    """Raise if a directory is the working directory or above it: it is replaced, not filled."""
    try:
        here = Path.cwd().resolve()
    except FileNotFoundError:  # it was removed
        return
    if directory == here or directory in here.parents:
        raise StorageError(
            f"{str(directory)!r} is the working directory, or holds it or other files, which would be lost. Name a "
            "directory of its own."
        )


@contextlib.contextmanager
def replacing_directory(directory: str | Path, *, own: re.Pattern[str] | None = None) -> Iterator[Path]:
    """Yield a new directory to fill. It replaces the old one when everything is written.

    The old one may hold files with the names of the new ones, and such that match `own`.
    """
    check_not_forked()
    directory = as_place(directory)  # a link keeps pointing where it points
    _refuse_working_directory(directory)
    if directory.is_file():
        raise StorageError(f"{str(directory)!r} is a file; a directory is to be written there")
    with _beside(directory) as fresh:
        fresh.mkdir()
        yield fresh
        _refuse_to_delete_others(directory, [path.name for path in fresh.iterdir()], own)
        # the umask is what took rights from the new directory; some writers give their files fewer
        mode = fresh.stat().st_mode & 0o666
        for path in fresh.iterdir():
            if path.is_file():  # a directory inside was flushed when it was written
                path.chmod(mode)
                _flush(path)
        _swap(fresh, directory)


@contextlib.contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield a new file name to write. It replaces the old file when everything is written."""
    path = path.absolute()
    _refuse_undecodable(path)
    with _beside(path) as fresh:
        yield fresh
        _flush(fresh)
        fresh.replace(path)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a new file name to write. It becomes the file when everything is written, unless there is one by then."""
    path = path.absolute()
    with _beside(path) as fresh:
        yield fresh
        _flush(fresh)
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)


@contextlib.contextmanager
def scratch_directory(directory: str | Path, parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Yield a new directory for what the writer of `directory` keeps for a time. It is removed at the end.

    It is made in `parent`; by default beside `directory`. Those of writers that were killed are removed.
    """
    place = as_place(directory)
    beside = (place.parent if parent is None else as_place(parent)) / f"{place.name}.scratch"
    with _beside(beside, shown=beside.parent) as fresh:
        fresh.mkdir()
        yield fresh


@contextlib.contextmanager
def _beside(path: Path, shown: Path | None = None) -> Iterator[Path]:
    """Yield a temporary name beside a path. What is left there at the end, and by killed writers, is removed.

    Errors of the disk become one that names the path, or the one that is `shown` in its place.
    """
    place = shown or path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        with _owned(path) as own:
            yield own / path.name
    except TruelikeError:
        raise
    except Exception as error:
        # safetensors and polars give the disk's errors as their own, with Rust's words for them
        if not isinstance(error, OSError) and "os error" not in str(error):
            raise
        left = "what was there before is untouched" if _exists(place) else "nothing was written"
        raise StorageError(f"cannot write {str(place)!r}: {error}; {left}") from error


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, a directory that may not be looked into
        return False


def _refuse_to_delete_others(directory: Path, names: Collection[str], own: re.Pattern[str] | None = None) -> None:
    """Raise if the directory holds other files than those that are replaced."""
    others = sorted(_others(directory, names, own))
    if others:
        raise StorageError(
            f"{str(directory)!r} holds other files, which would be lost: {some(others)}. "
            "Name a directory of its own."
        )


def _others(directory: Path, names: Collection[str], own: re.Pattern[str] | None) -> Iterator[str]:
    """What a directory has beside files with these names, and files and directories whose names match `own`."""
    with contextlib.suppress(FileNotFoundError):  # not there, or another process replaces it just then
        for path in directory.iterdir():
            ours = own is not None and own.fullmatch(path.name) is not None
            if not path.is_dir():
                if not ours and path.name not in names:
                    yield path.name
            elif ours:
                yield from (f"{path.name}/{name}" for name in _others(path, (), own))
            else:
                yield f"{path.name}/"


def _swap(fresh: Path, directory: Path) -> None:
    previous = _previous(directory)
    for left in reversed(range(TRIES)):
        try:
            if directory.exists():
                shutil.rmtree(previous, ignore_errors=True)
                directory.rename(previous)
            fresh.rename(directory)
            break
        except OSError:  # another process replaces the same directory
            if not left or not fresh.exists():
                raise
            time.sleep(0.01)
    shutil.rmtree(previous, ignore_errors=True)


def _flush(path: Path) -> None:
    with path.open("r+b") as handle:  # Windows flushes only what can be written
        os.fsync(handle.fileno())


def settled(directory: str | Path) -> Path:
    """The directory to read: the given one, or the previous one if a crash came between the two renames."""
    directory = as_place(directory)
    previous = _previous(directory)
    return previous if not _exists(directory) and _exists(previous) else directory


def has_file(directory: Path, name: str) -> bool:
    """Whether a file exists; raises if the directory cannot be read."""
    try:
        return stat.S_ISREG((directory / name).stat().st_mode)  # is_file() of Python 3.14 hides what is wrong
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError as error:
        raise StorageError(f"{str(directory)!r} cannot be read: {error.strerror}") from error


def write_description(path: Path, about: Mapping[str, Any]) -> None:
    """Write the description of a directory as JSON, with a CRC-32 of itself."""
    rest = {name: value for name, value in about.items() if name != "crc32"}
    path.write_text(json.dumps({**rest, "crc32": _crc(rest)}, indent=2) + "\n", encoding="utf-8")


def _crc(about: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(about, sort_keys=True).encode())


def describe_files(place: Path, names: Collection[str]) -> dict[str, dict[str, int]]:
    """The size and the CRC-32 of files, for the description of their directory."""
    return {name: _described((place / name).read_bytes()) for name in names}


def _described(content: bytes) -> dict[str, int]:
    return {"bytes": len(content), "crc32": zlib.crc32(content)}


class OpenDirectory:
    """The files of a directory as they were when it was opened: a context.

    The files stay readable when another process replaces the directory. `what` is the word for it in messages, and
    `description` is the file that describes the others, `names`.
    """

    def __init__(self, directory: str | Path, what: str, description: str, names: Collection[str]) -> None:
        check_not_forked()
        self.what, self.description = what, description
        self._open: dict[str, int] = {}
        self._about: dict[str, Any] = {}
        missed = 0
        while True:
            self.place = settled(directory)
            try:
                self._open_all((description, *names))
                break
            except FileNotFoundError as error:  # not there, or replaced meanwhile
                self.close()
                opened = Path(str(error.filename)).name
                gone = opened if opened in names else description
                missed += not has_file(settled(directory), gone)
                if missed == MISSES and gone == description:
                    raise NotFoundError(f"there is no {what} in {str(directory)!r}: {gone} is missing") from error
                if missed == MISSES:
                    raise self.damage(f"{gone} is missing") from error
                time.sleep(0.001)
            except BaseException:
                self.close()
                raise

    def _open_all(self, names: Collection[str]) -> None:
        by_descriptor = os.open in os.supports_dir_fd
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a pipe does not block it
        try:
            directory = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY) if by_descriptor else None
            try:
                for name in names:
                    self._open[name] = os.open(
                        name if by_descriptor else self.place / name, flags, dir_fd=directory
                    )
                    if not stat.S_ISREG(os.fstat(self._open[name]).st_mode):
                        raise self.damage(f"{name} is not a regular file")
            finally:
                if directory is not None:
                    os.close(directory)
        except (FileNotFoundError, StorageError):
            raise
        except NotADirectoryError as error:
            raise StorageError(f"there is no {self.what} in {str(self.place)!r}: it is a file") from error
        except OSError as error:
            raise StorageError(f"{str(self.place)!r} cannot be read: {error.strerror}") from error

    def damage(self, why: str) -> StorageError:
        """The error for a directory whose files are damaged or do not belong together."""
        return StorageError(
            f"the {self.what} in {str(self.place)!r} is damaged or incomplete: {why}. Recreate it."
        )

    def read(self, name: str) -> bytes:
        """The content of a file, compared with its description."""
        size = os.fstat(self._open[name]).st_size
        expected = LARGEST_DESCRIPTION
        if name != self.description:
            about = self._described("files").get(name)
            expected = about["bytes"] if isinstance(about, dict) and isinstance(about.get("bytes"), int) else -1
        if size > expected:  # before it is read
            raise self.damage(f"{name} has {size:,} bytes, which cannot belong to {self.description}")
        os.lseek(self._open[name], 0, os.SEEK_SET)
        with os.fdopen(self._open[name], "rb", closefd=False) as handle:
            content = handle.read()
        if name != self.description and self._described("files").get(name) != _described(content):
            raise self.damage(
                f"{name} cannot belong to {self.description}, which has another size or CRC-32 of it"
            )
        return content

    def read_arrays(
        self, name: str, *, mapped: bool = False, empty: Callable[..., NDArray[Any]] = np.empty
    ) -> Arrays:
        """The arrays of a file, compared with their description; see `array_files.read_arrays`."""
        identity, arrays = read_arrays(self._open[name], mapped=mapped, empty=empty)
        described = self._described("arrays")
        if described.get("id") != identity:
            raise self.damage(f"{name} cannot belong to {self.description}: it has another id")
        checksums = {each: checksum(array) for each, array in arrays.items()}
        if described.get("checksums") != checksums:
            raise self.damage(f"the arrays of {name} cannot belong to {self.description}")
        return arrays

    def _described(self, part: str) -> Mapping[str, Any]:
        described = self._about.get(part)
        if not isinstance(described, Mapping):
            raise self.damage(f"{self.description} does not describe the other files")
        return described

    def about(self, format: int) -> dict[str, Any]:
        """The description, whose format and CRC-32 are checked. It must be read first."""
        found = json.loads(self.read(self.description))
        if not isinstance(found, dict) or "format" not in found:
            raise self.damage(f"{self.description} has no format")
        if found["format"] != format:
            by = f", written by truelike {found['library_version']}" if "library_version" in found else ""
            raise StorageError(
                f"the {self.what} in {str(self.place)!r} has format {found['format']}{by}; this version reads format "
                f"{format}. Recreate it."
            )
        if found.pop("crc32", None) != _crc(found):
            raise self.damage(f"{self.description} is not as it was written")
        self._about = found
        return found

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def reading(directory: Path, what: str) -> Iterator[None]:
    """Turn errors from a damaged file into one that names the directory; those of the system stay what they are."""
    try:
        yield
    except (DataError, ForkError, MissingExtraError, StorageError, TooLargeError):
        raise
    except MemoryError as error:
        raise TooLargeError(
            f"there is not enough memory to read the {what} in {str(directory)!r} ({error}). Use a larger machine, or "
            "end other programs, and try again."
        ) from error
    except Exception as error:
        if isinstance(error, OSError) or "os error" in str(error):  # polars has its own class for them
            raise StorageError(f"the {what} in {str(directory)!r} cannot be read now: {error}") from error
        raise StorageError(
            f"the {what} in {str(directory)!r} is damaged or incomplete "
            f"({type(error).__name__}: {error}). Recreate it."
        ) from error
