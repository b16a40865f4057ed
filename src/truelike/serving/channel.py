"""What the supervisor and a worker tell each other: lines of JSON over a pair of sockets.

A line says all there is to know, and is said again each second. So a line that is lost does no harm, silence is a sign,
and nothing depends on files, which can be removed, or on a disk, which can be full.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from dataclasses import asdict, dataclass, field

from truelike.serving.schemas import Answer

BEAT = 1.0  # seconds between two lines
SILENT = 2.5  # seconds without a line after which `/readyz` says so
DEAD = 20.0  # seconds without a line after which a worker is replaced
LONGEST = 2**24  # bytes of a line


@dataclass
class State:
    """What the supervisor says: the models that are served, by their names."""

    generation: int = 0  # grows by one with every change of models
    snapshots: dict[str, str] = field(default_factory=dict)  # directories
    versions: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # why a model was refused; the one before it is served
    reloads: int = 0  # how many times this worker asked for a reload, and all workers serve what came of it


@dataclass
class Report:
    """What a worker says."""

    generation: int = -1  # that it serves; -1: none yet
    reloads: int = 0  # how many times it asked for a reload


class Channel:
    """The supervisor's end."""

    def __init__(self) -> None:
        self._mine, self.theirs = socket.socketpair()
        self._mine.setblocking(False)
        self._unsent = self._unread = b""
        self.report, self.heard = Report(), time.monotonic()

    def say(self, state: State) -> None:
        """Say the state, unless the worker has not read what was said before."""
        with contextlib.suppress(OSError):  # it does not read, or is gone
            self._flush()
            if not self._unsent:
                self._unsent = line(asdict(state))
                self._flush()

    def _flush(self) -> None:
        while self._unsent:
            self._unsent = self._unsent[self._mine.send(self._unsent) :]

    def hear(self) -> None:
        """Take the last report."""
        with contextlib.suppress(OSError):
            while found := self._mine.recv(65_536):
                self._unread += found
        *lines, self._unread = self._unread.split(b"\n")
        if lines:
            self.report, self.heard = Report(**json.loads(lines[-1])), time.monotonic()

    def silence(self) -> float:
        """The seconds since the last report."""
        return time.monotonic() - self.heard

    def close(self) -> None:
        """End it."""
        self._mine.close()
        self.theirs.close()


def line(content: Answer) -> bytes:
    """A line of JSON."""
    return json.dumps(content).encode() + b"\n"
