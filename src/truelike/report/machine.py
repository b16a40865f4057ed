"""The machine that a report is written on."""

from __future__ import annotations

import os
import platform

from truelike._version import __version__


def machine() -> str:
    """In a line: the version, Python, and the cores."""
    model = platform.processor() or platform.machine()
    return f"truelike {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores ({model})"
