"""Atomic writes: a file or directory is written beside its place and renamed. A crash leaves the old or the new one."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from truelike.errors import DataError, MissingExtraError, StorageError, TruelikeError, some

DAY = 24 * 60 * 60


def _previous(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.previous")


def _aside(path: Path) -> Path:
    """A temporary name beside `path` that holds the host and process of the writer."""
    return path.with_name(f".{path.name}.{_host()}.{os.getpid()}.{secrets.token_hex(4)}")


def _sweep(path: Path) -> None:
    """Remove temporary files of writers of `path` that were killed."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.(\w+)\.(\d+)\.[0-9a-f]{{8}}")
    for left in path.parent.iterdir():
        found = ours.fullmatch(left.name)
        if found and _abandoned(left, host=found[1], process=int(found[2])):
            _remove(left)


def _host() -> str:
    return re.sub(r"\W", "_", socket.gethostname()) or "here"


def _abandoned(left: Path, *, host: str, process: int) -> bool:
    """Whether the writer has ended; for another machine's file, whether it is older than a day."""
    try:
        if host != _host() or os.name != "posix":  # on Windows os.kill would end the process
            return time.time() - left.stat().st_mtime > DAY
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def check_place(directory: Path, names: Collection[str] = ()) -> None:
    """Raise before the work if a directory with the files `names` cannot be written."""
    directory = directory.resolve()
    standing = next(place for place in (directory, *directory.parents) if _exists(place))
    if not standing.is_dir():
        raise StorageError(f"{str(standing)!r} is a file; a directory is to be written there. Name another place.")
    parent = standing if standing != directory else directory.parent
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError(f"{str(directory)!r} cannot be written: {str(parent)!r} does not allow it")
    if names:
        _refuse_to_delete_others(directory, names)


@contextlib.contextmanager
def replacing_directory(directory: Path) -> Iterator[Path]:
    """Yield a new directory to fill. It replaces the old one when everything is written."""
    directory = directory.resolve()  # a link keeps pointing where it points
    if _exists(directory) and not directory.is_dir():
        raise StorageError(f"{str(directory)!r} is a file; a directory is to be written there")
    fresh = _aside(directory)
    with _explained(directory, fresh):
        directory.parent.mkdir(parents=True, exist_ok=True)
        _sweep(directory)
        fresh.mkdir()
        yield fresh
        _refuse_to_delete_others(directory, [path.name for path in fresh.iterdir()])
        # the umask is what took rights from the new directory; some writers give their files fewer
        mode = fresh.stat().st_mode & 0o666
        for path in fresh.iterdir():
            path.chmod(mode)
            _flush(path)
        _swap(fresh, directory)


@contextlib.contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield a new file name to write. It replaces the old file when everything is written."""
    path = path.absolute()
    fresh = _aside(path)
    with _explained(path, fresh):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        yield fresh
        _flush(fresh)
        fresh.replace(path)


@contextlib.contextmanager
def _explained(path: Path, fresh: Path) -> Iterator[None]:
    """Turn errors of the disk into one that names the path, and remove what was half written."""
    try:
        yield
    except TruelikeError:
        raise
    except Exception as error:
        # safetensors and polars give the disk's errors as their own, with Rust's words for them
        if not isinstance(error, OSError) and "os error" not in str(error):
            raise
        left = "what was there before is untouched" if _exists(path) else "nothing was written"
        raise StorageError(f"cannot write {str(path)!r}: {error}; {left}") from error
    finally:
        _remove(fresh)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, a directory that may not be looked into
        return False


def _refuse_to_delete_others(directory: Path, names: Collection[str]) -> None:
    """Raise if the directory holds other files than those that are replaced."""
    there = {path.name for path in directory.iterdir()} if directory.exists() else set()
    others = sorted(there - set(names))
    if others:
        raise StorageError(
            f"{str(directory)!r} holds other files, which would be lost: {some(others)}. "
            "Name a directory of its own."
        )


def _swap(fresh: Path, directory: Path) -> None:
    previous = _previous(directory)
    if directory.exists():
        shutil.rmtree(previous, ignore_errors=True)
        directory.rename(previous)
    fresh.rename(directory)
    shutil.rmtree(previous, ignore_errors=True)


def _flush(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def settled(directory: Path) -> Path:
    """The directory to read: the given one, or the previous one if a crash came between the two renames."""
    directory = directory.resolve()
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


@contextlib.contextmanager
def reading(directory: Path, what: str) -> Iterator[None]:
    """Turn errors from a damaged file into one that names the directory."""
    try:
        yield
    except (DataError, MissingExtraError, StorageError):
        raise
    except Exception as error:
        raise StorageError(
            f"the {what} in {str(directory)!r} is damaged or incomplete "
            f"({type(error).__name__}: {error}). Recreate it."
        ) from error
