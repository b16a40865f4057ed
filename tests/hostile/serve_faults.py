"""What a server depends on fails under load: nothing acknowledged is lost, the rest serves on, and /readyz tells it.

    python tests/hostile/serve_faults.py --times 20

Each turn, on one server with two workers: a worker is killed, a worker is stopped, there are more connections than
descriptors, the disk of the runtime directory is full while a new model is saved, and the disk of the events is full.
/readyz must say so (idle connections are closed, and nothing is wrong then), and say that all is well afterwards. The exit
code is 1 if it ever took more than 5 seconds. It needs root, who can mount small file systems.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from serve_reloads import save
from servers import KEY, Load, Server, make_models

from truelike.serving.events import read_events

TOLD = 5.0  # seconds
MENDED = 120.0
DESCRIPTORS, IDLE = 128, 200  # of each process, and connections without a request


@contextlib.contextmanager
def small_disk(place: Path, size: int = 16) -> Iterator[Path]:
    """A file system of some MB in memory; an OSError if it cannot be mounted."""
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(place)], check=False
    ).returncode:
        raise OSError("file systems cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """Fill a disk for as long as a block of code runs."""
    file = disk / "full"
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as out:
        while out.write(bytes(4_096)):
            pass
    assert shutil.disk_usage(disk).free < 4_096
    try:
        yield
    finally:
        file.unlink()


def wait(fits: Callable[[], bool]) -> float:
    """Wait until something is so, and return the seconds. A connection may end meanwhile: its worker has."""
    started = time.monotonic()
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if fits():
                return time.monotonic() - started
        assert time.monotonic() - started < MENDED
        time.sleep(0.05)


class Trial:
    """A server under load, on two small disks."""

    def __init__(self, place: Path, models: dict[str, Path]) -> None:
        self.place, self.models, self.counts = place, models, Counter[str]()
        self.acknowledged: list[str] = []
        self.slowest = 0.0

    def run(self, times: int) -> Counter[str]:
        """Let everything fail, as often as asked. Counts what was answered."""
        served = self.place / "served"
        save(self.models["popular"], served)
        with small_disk(self.place / "run") as run, small_disk(self.place / "events", 16 * times) as events:
            options = ("--workers", "2", "--watch", "0.3", "--runtime-directory", run, "--events", events / "kept")
            with Server(self.place, served, *options, key=KEY) as self.server:
                self._limit_descriptors()
                with Load(self.server, self._ask, 3, 600.0 * times, 0.02) as load:
                    for turn in range(times):
                        self._kill(self.server.workers()[0])
                        self._stop()
                        self._exhaust_descriptors()
                        self._fill_runtime(run, served, turn)
                        self._fill_events(events)
                        self.counts["turns"] += 1
                answered = {each for each in load.counts if " " in each}  # others are connections that broke
                assert answered <= {"list 200", "event 201", "event 503"}, load.counts
                self.counts += load.counts
            kept = read_events(events / "kept")["item_id"].to_list()
        assert len(kept) == len(set(kept)), "an event is there twice"
        assert set(self.acknowledged) <= set(kept), "an acknowledged event is lost"
        self.counts["acknowledged"] = len(self.acknowledged)
        return self.counts

    def _ask(self, made: http.client.HTTPConnection, number: int) -> str:
        if number % 3:
            return f"list {self.server.ask('/v1/recommend?user=1', through=made).status}"
        item = f"e{number}-{time.monotonic_ns()}"
        answer = self.server.ask(
            "/v1/events", {"events": [{"user": f"u{number % 50}", "item": item}]}, through=made
        )
        if answer.status == 201:
            self.acknowledged.append(item)
        return f"event {answer.status}"

    def _state(self) -> dict[str, object]:
        with self.server.connection(timeout=2) as made:
            found: dict[str, object] = self.server.ask("/readyz", through=made).json
        return found

    def _says(self, name: str) -> None:
        """/readyz has a problem of a name soon."""
        self.slowest = max(self.slowest, wait(lambda: name in str(self._state()["problems"])))

    def _is_well(self) -> None:
        wait(lambda: len(self.server.workers()) == 2 and not self._state()["problems"])

    def _limit_descriptors(self) -> None:
        """Replace the workers by some with few descriptors."""
        self.server.main.rlimit(psutil.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        for worker in self.server.workers():
            self._kill(worker)

    def _exhaust_descriptors(self) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(IDLE):
                stack.enter_context(socket.create_connection(("127.0.0.1", self.server.port), timeout=30))
            for _ in range(20):
                assert self.server.ask("/v1/recommend?user=1").status == 200
            self.slowest = max(self.slowest, wait(lambda: self._state()["ready"] is True))
        self._is_well()

    def _kill(self, victim: psutil.Process) -> None:
        victim.kill()
        self._says("is starting")
        self._is_well()

    def _stop(self) -> None:
        victim = self.server.workers()[0]
        victim.send_signal(signal.SIGSTOP)
        self._says("no sign of life")
        wait(lambda: not victim.is_running())
        self._is_well()

    def _fill_runtime(self, run: Path, served: Path, turn: int) -> None:
        before = self._state()["models"]
        with full(run):
            save(self.models["first" if turn % 2 == 0 else "popular"], served)
            wait(lambda: "served" in str(self._state()["problems"]))  # it is loaded before
            assert self._state()["models"] == before
        assert self.server.ask("/v1/admin/reload", {}).status == 200
        assert self._state()["models"] != before
        self._is_well()

    def _fill_events(self, disk: Path) -> None:
        refused = False
        with full(disk):
            started = time.monotonic()
            while not refused and time.monotonic() - started < MENDED:  # the room that SQLite has is used up
                events = [
                    {"user": "u", "item": f"full-{time.monotonic_ns()}-{n}-{'x' * 800}"} for n in range(1_000)
                ]
                answer = self.server.ask("/v1/events", {"events": events})
                refused = answer.status == 503
                if not refused:
                    self.acknowledged += [each["item"] for each in events]
            assert refused, answer
            self._says("disk is full")
            assert self.server.ask("/v1/recommend?user=1").status == 200
        wait(lambda: self._event(f"after-{time.monotonic_ns()}") == 201)

    def _event(self, item: str) -> int:
        status = self.server.ask("/v1/events", {"events": [{"user": "u", "item": item}]}).status
        if status == 201:
            self.acknowledged.append(item)
        return status


def main() -> None:
    """Let everything fail as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        trial = Trial(Path(place), make_models(Path(place)))
        counts = trial.run(arguments.times)
        print(f"told after at most {trial.slowest:.1f} s: {json.dumps(counts)}", flush=True)
    sys.exit(trial.slowest > TOLD)


if __name__ == "__main__":
    main()
