"""Compiled functions that are kept on disk, and compiled in memory where that is not possible.

numba raises an error if it finds no directory to write to, cannot write, or reads a damaged file, and it would run
damaged machine code. Here each of its files ends in a checksum, which also covers the version of the source. Any
failure means that the function is compiled, and the first one of a process is logged.

Compiling runs on a thread of its own while the main thread waits, so that Ctrl-C is noticed at once.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.extending import is_jitted

from truelike.core.files import replacing_file
from truelike.core.parallel import in_background
from truelike.core.progress import logger

# Options of numba.njit. `_nrt=False`: without counting references to the arguments. The functions are not cached
# by themselves: the cache of one file does not notice a change of a function that is inlined from another
# file (see `uniquely_named`).
LOOP = {"nogil": True, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
INLINE = {**LOOP, "forceinline": True}
FAST_SUMS = {"reassoc", "contract", "nsz"}  # sums may use vector lanes; the lanes are always the same
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
        try:
            dispatcher._cache = _Cache(function)
        except Exception:  # numba raises RuntimeError if there is no place, and the disk's errors
            dispatcher._cache = NullCache()
            _say_once(
                "Compiled functions are not kept on disk: no directory for them can be written (NUMBA_CACHE_DIR, "
                f"the installation, the cache directory of the user). {_IN_MEMORY}"
            )
        dispatcher.compile = _interruptible(dispatcher.compile)
        if signature is not None:
            dispatcher.compile(signature)
            dispatcher.disable_compile()
        return dispatcher

    return decorate


def uniquely_named(function: Any, *contents: object) -> Any:
    """Give a function a name that depends on everything it is compiled from, and return it.

    The cache on disk finds a compiled function by its name. It notices a change of the function's own file,
    but not of functions that are inlined from other files, and it numbers functions of the same name again in each
    process. So the name contains a hash of the sources of the function's package and of `contents`.
    """
    root = Path(__file__).parents[1]
    package = root / Path(function.__code__.co_filename).relative_to(root).parts[0]
    sources = [path.read_bytes() for path in (Path(__file__), *_sources(package))]
    digest = hashlib.sha256(b"".join(sources) + repr(contents).encode()).hexdigest()[:16]
    function.__name__ = function.__qualname__ = f"{function.__code__.co_name}_{digest}"
    return function


def _sources(package: Path) -> list[Path]:
    """The source files of a package. Its caches are not looked into: other processes write them meanwhile."""
    found = []
    for place, directories, names in os.walk(package):
        directories[:] = [name for name in directories if name != "__pycache__"]
        found += [Path(place, name) for name in names if name.endswith(".py")]
    return sorted(found)


def _interruptible(compile: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on another thread if this is the main thread, which gets interrupts: LLVM would lose one.

    A function that is compiled for another one is compiled on its thread, which holds numba's lock.
    """

    def work(*signature: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return in_background(lambda: compile(*signature))
        return compile(*signature)

    return work


class _Cache(FunctionCache):  # type: ignore[misc]
    """numba's cache of a function, which may fail. An interrupt is not a failure and passes through."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        # another name than numba's own, whose files have no checksum
        self._cache_file = _Files(self._cache_path, f"{self._impl.filename_base}.checked", stamp)

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
            # Windows does not replace a file that another process reads
            if not (os.name == "nt" and isinstance(error.__cause__, PermissionError)):
                _say_once(f"Compiled functions are not kept on disk: {error}. {_IN_MEMORY}")


class _DamagedError(Exception):
    """A file of the cache is not as it was written."""


class _Files(IndexDataCacheFile):  # type: ignore[misc]
    """numba's files of a function, an index and one of code for each signature, each with a checksum at its end.

    numba ignores what follows its own content. The checksum of code covers the version of its source, too: an
    interrupt between the two writes can leave an index that names old code.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write the code of a key; an index that cannot be read is replaced."""
        try:
            super().save(key, data)
        except Exception:  # if the disk is the reason, it raises again
            self.flush()
            super().save(key, data)

    def _load_index(self) -> Any:
        self._check(self._index_path)
        return super()._load_index()

    def _load_data(self, name: str) -> Any:
        self._check(self._data_path(name))
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        content = io.BytesIO()
        yield content
        with replacing_file(Path(filepath)) as fresh:
            fresh.write_bytes(content.getvalue() + self._digest(filepath, content.getvalue()))

    def _check(self, filepath: str) -> None:
        path = Path(filepath)
        try:
            regular = stat.S_ISREG(path.stat().st_mode)  # opening a FIFO would block
        except FileNotFoundError:
            return
        if not regular:
            raise _DamagedError(f"{filepath!r} is not a file")
        content = path.read_bytes()
        if self._digest(filepath, content[:-DIGEST]) != content[-DIGEST:]:
            raise _DamagedError(f"{filepath!r} is damaged or incomplete")

    def _digest(self, filepath: str, content: bytes) -> bytes:
        # an index of another version is not damaged: numba finds it by itself
        origin = "" if filepath == self._index_path else repr((self._version, self._source_stamp))
        return hashlib.sha256(origin.encode() + content).digest()


def _say_once(text: str) -> None:
    """Log a warning, the first time in a process."""
    global _said
    if not _said:
        _said = True
        logger.warning(text)
