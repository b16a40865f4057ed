"""Real servers for the trials of `truelike serve`: started as processes, asked by HTTP, killed, started again."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil

PATIENCE = 120.0  # seconds until a server must be ready, on a loaded machine
KEY = "a-key-for-the-tests-0123456789"


class Reply(NamedTuple):
    """An answer: its status, its headers in lower case, and its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        found: str = self.json["error"]["code"]
        return found


class Server:
    """A server on a free port of this machine, with its processes, and its log in `place`."""

    def __init__(self, place: Path, *arguments: str | Path, key: str | None = None) -> None:
        self.arguments, self.key, self.port = [str(argument) for argument in arguments], key, 0
        self._log = place / f"server-{os.getpid()}-{time.monotonic_ns()}.log"
        self.start()

    def start(self) -> None:
        """Start, and wait until it serves; again on the port that it had."""
        environment = {name: value for name, value in os.environ.items() if name != "TRUELIKE_API_KEY"}
        if self.key is not None:
            environment["TRUELIKE_API_KEY"] = self.key
        command = [sys.executable, "-m", "truelike", "serve", *self.arguments, "--port", str(self.port)]
        before = len(self.log())
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )
        self.main = psutil.Process(self.process.pid)
        until = time.monotonic() + PATIENCE
        while (found := re.search(r"serving on http://127\.0\.0\.1:(\d+)", self.log()[before:])) is None:
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise AssertionError(f"the server did not start: {self.log()[before:][-3000:]}")
            time.sleep(0.05)
        self.port = int(found[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    # --- processes ------------------------------------------------------------------------------

    def workers(self) -> list[psutil.Process]:
        """The worker processes, without those that are starting to exist."""
        found = []
        for child in self.main.children():
            with contextlib.suppress(psutil.Error):
                if "truelike.serving.worker" in child.cmdline():
                    found.append(child)
        return found

    def memory(self) -> int:
        """Bytes of memory that the workers have for themselves."""
        return sum(worker.memory_full_info().uss for worker in self.workers())

    def stop(self) -> int:
        """End in order."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def kill(self) -> None:
        """kill -9 of all processes, the supervisor first."""
        everyone = [self.main, *self.main.children(recursive=True)] if self.main.is_running() else []
        for process in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        psutil.wait_procs(everyone, 60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- requests -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def connection(self, timeout: float = PATIENCE) -> Iterator[http.client.HTTPConnection]:
        """A connection, which one worker has."""
        made = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            yield made
        finally:
            made.close()

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: dict[str, str] | None = None,
        through: http.client.HTTPConnection | None = None,
    ) -> Reply:
        """Ask, through a connection of its own if none is given; a body that is not bytes is sent as JSON."""
        if through is None:
            with self.connection() as through:
                return self.ask(path, body, method=method, headers=headers, through=through)
        sent = {} if self.key is None else {"x-api-key": self.key}
        if body is not None:
            sent["content-type"] = "application/json"
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        through.request(method or ("GET" if body is None else "POST"), path, body, {**sent, **(headers or {})})
        response = through.getresponse()
        content = response.read()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, content)


class Load:
    """Threads that ask all the time, each through a connection of its own, while a block of code runs.

    `ask` gets a connection and a number and returns what is counted; a connection error is counted by its name. They
    end after `most` seconds in any case, and wait `pause` seconds between two questions.
    """

    def __init__(
        self,
        server: Server,
        ask: Callable[[http.client.HTTPConnection, int], str],
        threads: int,
        most: float,
        pause: float = 0.0,
    ) -> None:
        self._server, self._ask, self._until, self._pause = server, ask, time.monotonic() + most, pause
        self.counts: Counter[str] = Counter()
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(threads)]

    def _work(self, number: int) -> None:
        made = None
        while not self._stop.is_set() and time.monotonic() < self._until:
            try:
                if made is None:
                    made = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=30)
                found = self._ask(made, number)
            except (OSError, http.client.HTTPException) as error:
                found = type(error).__name__
                if made is not None:
                    made.close()
                made = None
            with self._lock:
                self.counts[found] += 1
            number += len(self._threads)
            if self._pause:
                time.sleep(self._pause)
        if made is not None:
            made.close()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def make_models(place: Path) -> dict[str, Path]:
    """Small models of the same users and items; `other_items` has others. And items.csv with attributes."""
    import polars as pl

    import truelike as tl

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = tl.synthetic.World(n_users=300, n_items=120).dataset()
        items = data.items.values.to_list()
        data = data.with_titles({item: f"Title of {item}" for item in items})
        tl.IALS(factors=8, seed=1).fit(data, progress=False).save(place / "first")
        tl.NBPO(factors=8, epochs=2, seed=2).fit(data, progress=False).save(place / "second")
        tl.ItemPop().fit(data, progress=False).save(place / "popular")
        rows = data.to_frame().select("user_id", "item_id").with_columns(pl.col("item_id") + 1_000)
        tl.ItemPop().fit(tl.read(rows), progress=False).save(place / "other_items")
    rows = [f"{item},{('tea', 'rum')[number % 2]},{number}" for number, item in enumerate(items)]
    (place / "items.csv").write_text("\n".join(["item_id,category,price", *rows]) + "\n")
    return {name: place / name for name in ("first", "second", "popular", "other_items")}
