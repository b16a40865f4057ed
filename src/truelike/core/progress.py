"""Progress: bars in terminals and notebooks, lines of the logger "truelike" elsewhere. Bars go to stderr.

To see the lines in a script, set up logging: ``logging.basicConfig(level="INFO")``. To silence lines and bars alike,
raise the level: ``logging.getLogger("truelike").setLevel("WARNING")``.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

logger = logging.getLogger("truelike")


def interactive() -> bool:
    """Whether progress is shown to a person: stderr is a terminal, or this is a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def quiet() -> bool:
    """Whether the logger was set to show warnings and errors only."""
    return logger.level > logging.INFO


def progress_bar(text: str, *, show: bool) -> Any:
    """Create a bar with a text before it and a field `words` after it.

    It is disabled where `show` is False, where no person would see it, and where the logger is quiet.
    """
    from rich.progress import BarColumn, TextColumn

    return _bar(TextColumn(text), BarColumn(), TextColumn("{task.fields[words]}"), show=show, transient=True)


def _bar(*columns: Any, show: bool, transient: bool = False) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    hidden = not show or not interactive() or quiet()
    # rich 14 ends a disabled bar with an empty line, so the console is quiet, too
    return Progress(*columns, console=Console(stderr=True, quiet=hidden), disable=hidden, transient=transient)


class Download:
    """The progress of a download, in the interface that pooch expects."""

    def __init__(self, what: str, *, show: bool = True) -> None:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self.bar = _bar(*columns, show=show)
        self.task = self.bar.add_task(what, total=None)
        self.bar.start()
        if show and self.bar.disable:
            note(f"downloading {what} ...")

    @property
    def total(self) -> Any:
        """The number of bytes in all."""
        return self.bar.tasks[0].total

    @total.setter
    def total(self, value: Any) -> None:
        self.bar.update(self.task, total=value)

    def update(self, step: int) -> None:
        """Add a number of bytes."""
        self.bar.update(self.task, advance=step)

    def reset(self) -> None:
        """Start again."""
        self.bar.reset(self.task)

    def close(self) -> None:
        """Stop the bar."""
        self.bar.stop()


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """Note that code is being compiled if it takes more than a second. It happens once per installation."""
    notice = threading.Timer(1.0, note, [f"compiling {what} for this machine (once, some seconds) ..."])
    notice.daemon = True
    with suppress(RuntimeError):  # no thread can be started: no notice
        notice.start()
    try:
        yield
    finally:
        notice.cancel()


def note(text: str) -> None:
    """Log a line at level INFO; write it to stderr for a person where logging is not set up."""
    logger.info(text)
    if interactive() and not quiet() and not logger.hasHandlers():
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
