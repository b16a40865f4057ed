"""Progress on stderr, and only on a terminal: a file or a pipe gets data, never a bar."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Download:
    """A progress bar in the shape that pooch asks for."""

    def __init__(self, what: str, *, show: bool = True) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console,
            disable=not (show and console.is_terminal),
        )
        self.task = self.bar.add_task(what, total=None)
        self.bar.start()

    @property
    def total(self) -> Any:
        """How many bytes there are in all."""
        return self.bar.tasks[0].total

    @total.setter
    def total(self, value: Any) -> None:
        self.bar.update(self.task, total=value)

    def update(self, step: int) -> None:
        """So many bytes more."""
        self.bar.update(self.task, advance=step)

    def reset(self) -> None:
        """From the start again."""
        self.bar.reset(self.task)

    def close(self) -> None:
        """No more comes."""
        self.bar.stop()


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """Say that loops are being compiled, where that takes a while: once for each installation."""
    notice = threading.Timer(1.0, note, [f"compiling {what} for this machine (once, some seconds) ..."])
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()


def note(text: str) -> None:
    """A word to the person at the terminal, if there is one."""
    if sys.stderr.isatty():
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
