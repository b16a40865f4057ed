"""Compiled functions that are kept on disk, and compiled in memory where that is not possible.

numba keeps an index and the code of a function in two files, and raises an error if it finds no directory to write
to, cannot write, or reads a damaged file. An error between the two writes leaves an index that names old code. Here
a function and its signature are one file with a checksum, written beside its place and renamed. Any failure means
that the function is compiled, and the first one of a process is logged.
"""

from __future__ import annotations

import glob
import hashlib
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, NullCache
from numba.core.serialize import dumps
from numba.extending import is_jitted

from truelike.errors import StorageError
from truelike.files import replacing_file
from truelike.progress import logger

FORMAT = 1
DIGEST = hashlib.sha256().digest_size
_IN_MEMORY = (
    "Every process compiles them again, which takes some seconds. "
    "Set NUMBA_CACHE_DIR to a directory that can be written."
)
_said = False


def cached_njit(signature: Any = None, **options: Any) -> Callable[[Any], Any]:
    """Compile a function as `numba.njit(signature, cache=True, **options)` does, with the cache of this module.

    With a signature the function is compiled now and for this signature only, otherwise at its first call.
    """

    def decorate(function: Any) -> Any:
        dispatcher = numba.njit(**options)(function)
        if not is_jitted(dispatcher):  # NUMBA_DISABLE_JIT is set
            return dispatcher
        dispatcher._cache = _cache(function)
        if signature is not None:
            dispatcher.compile(signature)
            dispatcher.disable_compile()
        return dispatcher

    return decorate


def _cache(function: Any) -> Any:
    try:
        return _Cache(function)
    except Exception:  # numba raises RuntimeError if there is no place, and the disk's errors
        _say_once(
            "Compiled functions are not kept on disk: no directory for them can be written (NUMBA_CACHE_DIR, "
            f"the installation, the cache directory of the user). {_IN_MEMORY}"
        )
        return NullCache()


class _Cache(FunctionCache):  # type: ignore[misc]
    """numba's cache of a function, which may fail. An interrupt is not a failure and passes through."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Entries(Path(self._cache_path), self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for a signature, or None if it must be compiled."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # a file that was not written here may raise anything
            problem = str(error).rstrip(".")
            _say_once(f"A compiled function on disk cannot be used: {problem}. It is compiled again.")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the compiled function for a signature if possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            if not _in_use(error):
                _say_once(f"Compiled functions are not kept on disk: {error}. {_IN_MEMORY}")


class _Entries:
    """The files of a function, one per signature: a checksum of the rest, the origin, the pickled code."""

    def __init__(self, directory: Path, name: str, source_stamp: Any) -> None:
        self.directory, self.name, self.source_stamp = directory, name, source_stamp

    def load(self, key: Any) -> Any:
        """Return the code of a key, or None if there is none or one of another origin."""
        path = self._path(key)
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # opening a FIFO would block
                raise StorageError(f"{str(path)!r} is not a file")
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        checksum, rest = content[:DIGEST], content[DIGEST:]
        if _digest(rest) != checksum:
            raise StorageError(f"{str(path)!r} is damaged or incomplete")
        return pickle.loads(rest[DIGEST:]) if rest[:DIGEST] == self._origin(key) else None

    def save(self, key: Any, data: Any) -> None:
        """Write the code of a key."""
        rest = self._origin(key) + dumps(data)
        with replacing_file(self._path(key)) as fresh:
            fresh.write_bytes(_digest(rest) + rest)

    def flush(self) -> None:
        """Remove all files of the function."""
        for path in self.directory.glob(f"{glob.escape(self.name)}.*.nbc"):
            path.unlink(missing_ok=True)

    def _path(self, key: Any) -> Path:
        return self.directory / f"{self.name}.{_digest(repr(key).encode()).hex()[:16]}.nbc"

    def _origin(self, key: Any) -> bytes:
        return _digest(repr((FORMAT, numba.__version__, self.source_stamp, key)).encode())


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _in_use(error: Exception) -> bool:
    """Whether another process reads the file: Windows does not replace it then."""
    return os.name == "nt" and isinstance(error.__cause__, PermissionError)


def _say_once(text: str) -> None:
    """Log a warning, the first time in a process."""
    global _said
    if not _said:
        _said = True
        logger.warning(text)
