"""A worker: a process that answers requests. It switches to new models between two requests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import uvicorn
import uvloop

from truelike.rules.rules import Rules
from truelike.serving.app import make_app
from truelike.serving.channel import BEAT, LONGEST, SILENT, Report, State, line
from truelike.serving.events import EventStore
from truelike.serving.gate import RefusedError
from truelike.serving.metrics import Metrics, share_counts
from truelike.serving.protocol import protocol_class
from truelike.serving.schemas import Answer, ListOptions, RankOptions
from truelike.serving.served_model import ServedModel
from truelike.serving.service import Service
from truelike.serving.settings import KEY, Settings

LOOK = 0.1  # seconds between two looks at the state
AGAIN = 5.0  # seconds after which a worker that could not switch tries again
RELOAD_TIMEOUT = 900.0  # seconds
MOST_UNREAD = 65_536  # bytes of reports that wait for the supervisor
OTHER_DESCRIPTORS = 64  # beside those of connections
WARM_FOLD_IN = 20_000_000  # items x factors up to which fold-in is tried before a model is served


class Worker:
    """Answers requests on a socket that the supervisor has bound, and talks with it over another one."""

    def __init__(self, settings: Settings, state: State, key: str | None) -> None:
        self.settings, self.state, self.metrics = settings, state, Metrics()
        self._said, self._heard, self._report = state, time.monotonic(), Report()
        self._problems: dict[str, str] = {}
        events = None if settings.events is None else EventStore(settings.events)
        self.service = Service(
            load(state.snapshots), settings.shares, events, days=settings.events_days, salt=settings.salt,
            rules=None if settings.rules is None else Rules.of(settings.rules),
        )  # fmt: skip
        self.app = make_app(
            self.service, settings, key=key, metrics=self.metrics, status=self.status, reload=self.reload
        )

    @property
    def problems(self) -> dict[str, str]:
        """Why models are not served as they are, by name; "worker" is this process, "supervisor" the one above."""
        found = {**self._said.problems, **self._problems}
        if self.age > SILENT:
            found["supervisor"] = f"it has given no sign of life for {self.age:.0f} s: no model is replaced"
        return found

    @property
    def age(self) -> float:
        """The seconds since the supervisor said what is served."""
        return time.monotonic() - self._heard

    def status(self) -> Answer:
        """What `/readyz` shows beside the models."""
        return {"generation": self.state.generation, "age": round(self.age, 1), "problems": self.problems}

    async def reload(self) -> Answer:
        """Ask the supervisor to reload the models, and wait until all workers have switched."""
        self._report.reloads += 1
        mine, until = self._report.reloads, time.monotonic() + RELOAD_TIMEOUT
        self._tell()
        while self.state.reloads < mine:
            if time.monotonic() > until:
                raise RefusedError(504, "took_too_long", f"the models were not loaded within {RELOAD_TIMEOUT:g} s")
            await asyncio.sleep(LOOK / 2)
        return {"models": self.state.versions, "problems": self.problems}

    async def serve(self, listening: socket.socket, supervisor: socket.socket) -> None:
        """Answer requests until the supervisor says stop, or is gone."""
        config = uvicorn.Config(
            self.app,
            http=protocol_class(self.settings.timeout, most_connections()),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=int(self.settings.timeout) + 1,
        )
        server = uvicorn.Server(config)
        reader, self._writer = await asyncio.open_connection(sock=supervisor, limit=LONGEST)
        self._report.generation = self.state.generation
        tasks = [asyncio.create_task(loop) for loop in (self._hear(reader, server), self._beat(), self._look())]
        await server.serve(sockets=[listening])
        for task in tasks:
            task.cancel()

    # --- loops: what fails in them is logged, said by /readyz, and done again -------------------

    async def _hear(self, reader: asyncio.StreamReader, server: uvicorn.Server) -> None:
        """Take what the supervisor says, and stop if it is gone."""
        with contextlib.suppress(OSError):
            while said := await reader.readline():
                try:
                    self._said, self._heard = State(**json.loads(said)), time.monotonic()
                except Exception as error:
                    self._failed(error, "a worker does not understand its supervisor")
        server.should_exit = True

    async def _beat(self) -> None:
        """Say which generation is served."""
        while True:
            try:
                self._tell()
            except Exception as error:
                self._failed(error, "a worker could not report")
            await asyncio.sleep(BEAT)

    def _tell(self) -> None:
        if self._writer.transport.get_write_buffer_size() < MOST_UNREAD:  # else it is stopped
            self._writer.write(line(asdict(self._report)))

    async def _look(self) -> None:
        """Switch to new models, and see whether events can be read."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                if self._said != self.state:
                    await self._switch(self._said)
                self.service.recent("")
                self._problems = {}
            except Exception as error:
                self._failed(error, "a worker could not switch to the new models; it tries again")
                await asyncio.sleep(AGAIN)

    async def _switch(self, state: State) -> None:
        if state.snapshots != self.state.snapshots:
            models = await asyncio.to_thread(load, state.snapshots)
            self.service.replace(models)
            self.metrics.models(models)
            served = ", ".join(f"{name} {version}" for name, version in state.versions.items())
            logging.getLogger("truelike").info("serving %s", served)
        self.state = state
        if self._report.generation != state.generation:
            self._report.generation = state.generation
            self._tell()

    def _failed(self, error: Exception, text: str) -> None:
        logging.getLogger("truelike").exception(text)
        self._problems = {"worker": f"{text}: {type(error).__name__}: {error}"}


def most_connections() -> int:
    """How many connections a worker may have, by the descriptors that it may have."""
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, most - OTHER_DESCRIPTORS)


def load(snapshots: dict[str, str]) -> list[ServedModel]:
    """Open snapshots, and run each model once, so that no request waits for a compiler."""
    models = [ServedModel(Path(directory)) for directory in snapshots.values()]
    for served in models:
        warm(served)
    return models


def warm(served: ServedModel) -> None:
    """Answer some requests with a model."""
    who = served.who(int(served.examples[0]))
    items = np.array([place.item for place in served.recommend(who, RankOptions(k=20))[:1]], dtype=np.int32)
    served.recommend(who, RankOptions(k=5, diversity=0.1))
    served.recommend(served.who(None), RankOptions(k=5))
    for item in items.tolist():
        served.similar(item, ListOptions(k=5))
    width = 1 if served.vectors is None else served.vectors.items.shape[1]
    if served.n_items * width <= WARM_FOLD_IN and len(served.reasons(who)):
        new = served.new_user(served.reasons(who)[:3])
        served.recommend(new, RankOptions(k=5))
        served.explain(new, items)


def main(slot: str, metrics: str, listening: str, supervisor: str) -> None:
    """Run a worker; settings and state are read from stdin."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"%(asctime)s worker {os.getpid()}: %(message)s", force=True
    )
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.WARNING)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor's
    told = json.load(sys.stdin)
    if metrics:
        share_counts(metrics, int(slot))
    worker = Worker(Settings.load(told["settings"]), State(**told["state"]), os.environ.pop(KEY, None))
    gc.collect()
    gc.freeze()  # what is here stays: to look through it takes as long as a hundred requests
    uvloop.run(worker.serve(socket.socket(fileno=int(listening)), socket.socket(fileno=int(supervisor))))


if __name__ == "__main__":
    main(*sys.argv[1:])
