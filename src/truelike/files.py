"""Writing aside and renaming into place: after a crash the old thing is there, or the new one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from truelike.errors import DataError, StorageError, TruelikeError, some


def _previous(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.previous")


@contextlib.contextmanager
def replacing_directory(directory: Path) -> Iterator[Path]:
    """Give a fresh directory to fill; it takes the place of the old one only when all is written."""
    directory = directory.resolve()  # a link keeps pointing where it points
    if directory.exists() and not directory.is_dir():
        raise StorageError(f"{str(directory)!r} is a file; a directory is to be written there")
    fresh: Path | None = None
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        yield fresh
        _refuse_to_delete_others(directory, fresh)
        for path in fresh.iterdir():
            _flush(path)
        fresh.chmod(0o755)
        _swap(fresh, directory)
    except TruelikeError:
        raise
    except Exception as error:
        # safetensors and polars give the disk's errors as their own, with Rust's words for them
        if not isinstance(error, OSError) and "os error" not in str(error):
            raise
        left = "what was there before is untouched" if directory.exists() else "nothing was written"
        raise StorageError(f"cannot write {str(directory)!r}: {error}; {left}") from error
    finally:
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)


@contextlib.contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Give a fresh file name to write; it takes the place of the old file only when all is written."""
    path = path.absolute()
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield fresh
        _flush(fresh)
        fresh.replace(path)
    except TruelikeError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write {str(path)!r}: {error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def _refuse_to_delete_others(directory: Path, fresh: Path) -> None:
    """Only an older version of the same thing may be replaced, never somebody's other files."""
    there = {path.name for path in directory.iterdir()} if directory.exists() else set()
    others = sorted(there - {path.name for path in fresh.iterdir()})
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
    """Where to read: the directory, or its predecessor if a crash fell between the two renames."""
    directory = directory.resolve()
    previous = _previous(directory)
    return previous if not directory.exists() and previous.is_dir() else directory


@contextlib.contextmanager
def reading(directory: Path, what: str) -> Iterator[None]:
    """Turn whatever a damaged file causes into one error that names the place."""
    try:
        yield
    except (DataError, StorageError):
        raise
    except Exception as error:
        raise StorageError(
            f"the {what} in {str(directory)!r} is damaged or incomplete "
            f"({type(error).__name__}: {error}). Make it anew."
        ) from error
