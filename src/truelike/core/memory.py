"""Available memory, so that a model that does not fit is refused before it is trained."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from truelike.errors import TooLargeError

SHARE = 0.9  # share of the available memory that a model may use
_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container, where there is one
_USED = Path("/sys/fs/cgroup/memory.current")
_SIZE = Path("/proc/self/statm")


def available_memory() -> int:
    """Bytes that this process can still allocate: the system's estimate, limited by the container and by `ulimit -v`.

    >>> available_memory() > 2**20
    True
    """
    found = [_of_the_machine()]
    with suppress(OSError, ValueError):  # no container, or "max": no limit
        found.append(int(_LIMIT.read_text()) - int(_USED.read_text()))
    with suppress(ImportError, OSError, ValueError, IndexError):  # not Linux
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            found.append(limit - int(_SIZE.read_text().split()[0]) * resource.getpagesize())
    return max(0, min(found))


def _of_the_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        words = dict(line.split(":", 1) for line in lines)
        return int(words["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux: all that there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_memory(needed: int, what: str, instead: str) -> None:
    """Raise an error that says how much is needed, how much is available, and what to use instead."""
    there = available_memory()
    if needed > SHARE * there:
        raise TooLargeError(
            f"{what} would take {readable(needed)} of memory, and {readable(there)} are available. {instead}"
        )


def readable(n_bytes: int) -> str:
    """A number of bytes as text.

    >>> readable(5_000_000), readable(43_200_000_000)
    ('5.0 MB', '43.2 GB')
    """
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"
