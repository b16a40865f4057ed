"""The machine and the versions that a report was made with."""

from __future__ import annotations

import os
import platform

from truelike._version import __version__


def machine() -> str:
    """Return the versions of truelike and Python and the processor, in one line."""
    model = platform.processor() or platform.machine()
    return f"truelike {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores ({model})"
