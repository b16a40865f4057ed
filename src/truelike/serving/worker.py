"""A worker: a process that answers requests. It switches to new models between two requests."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import uvicorn
import uvloop

from truelike.serving.app import make_app
from truelike.serving.events import EventStore
from truelike.serving.gate import RefusedError
from truelike.serving.metrics import Metrics
from truelike.serving.protocol import protocol_class
from truelike.serving.schemas import Answer, ListOptions, RankOptions
from truelike.serving.served_model import NO_ITEMS, ServedModel
from truelike.serving.service import Service
from truelike.serving.settings import KEY, Settings
from truelike.serving.state import STATE, State, ask_to_reload, say_generation

LOOK = 0.1  # seconds between two looks at the state
AGAIN = 5.0  # seconds after which a worker that could not switch tries again
RELOAD_TIMEOUT = 900.0  # seconds
WARM_FOLD_IN = 20_000_000  # items x factors up to which fold-in is tried before a model is served


class Worker:
    """Answers requests on a socket that the supervisor, the process `parent`, has bound."""

    def __init__(self, runtime: Path, key: str | None, parent: int) -> None:
        self.runtime, self.settings, self.parent = runtime, Settings.read(runtime), parent
        self._seen = self._stamp()  # before the state is read: a change in between is noticed
        self.state, self.metrics = State.read(runtime), Metrics()
        self._problems: dict[str, str] = {}
        events = None if self.settings.events is None else EventStore(self.settings.events)
        self.service = Service(
            load(self.state.snapshots), self.settings.shares, events,
            days=self.settings.events_days, salt=self.settings.salt,
        )  # fmt: skip
        self.app = make_app(
            self.service, self.settings, key=key, metrics=self.metrics, status=self.status, reload=self.reload
        )

    @property
    def problems(self) -> dict[str, str]:
        """Why models are not served as they are, by name; "worker" is this process."""
        return {**self.state.problems, **self._problems}

    def status(self) -> Answer:
        """What `/readyz` shows beside the models."""
        return {"generation": self.state.generation, "problems": self.problems}

    async def reload(self) -> Answer:
        """Ask the supervisor to reload the models, and wait until all workers have switched."""
        request = ask_to_reload(self.runtime)
        until = time.monotonic() + RELOAD_TIMEOUT
        while request.exists():
            if time.monotonic() > until:
                raise RefusedError(504, "took_too_long", f"the models were not loaded within {RELOAD_TIMEOUT:g} s")
            await asyncio.sleep(LOOK / 2)
        return {"models": self.state.versions, "problems": self.problems}

    async def serve(self, listening: socket.socket) -> None:
        """Answer requests until the supervisor says stop, or is gone."""
        config = uvicorn.Config(
            self.app,
            http=protocol_class(self.settings.timeout),
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
        look = asyncio.create_task(self._look(server))
        say_generation(self.runtime, self.state.generation)
        await server.serve(sockets=[listening])
        look.cancel()

    async def _look(self, server: uvicorn.Server) -> None:
        """Switch to new models, see whether events can be read, and stop if the supervisor is gone."""
        while True:
            await asyncio.sleep(LOOK)
            if os.getppid() != self.parent:
                server.should_exit = True
                return
            if self._stamp() != self._seen:
                await self._switch()
            self.service.recent("")

    async def _switch(self) -> None:
        log = logging.getLogger("truelike")
        self._seen = self._stamp()
        state = State.read(self.runtime)
        try:
            if state.snapshots != self.state.snapshots:
                models = await asyncio.to_thread(load, state.snapshots)
                self.service.replace(models)
                self.metrics.models(models)
                log.info("serving %s", ", ".join(f"{name} {version}" for name, version in state.versions.items()))
        except Exception as error:
            log.exception("a worker could not switch to the new models; it tries again")
            self._problems = {"worker": f"{type(error).__name__}: {error}"}
            self._seen = (0, 0)
            await asyncio.sleep(AGAIN)
            return
        self._problems, self.state = {}, state
        say_generation(self.runtime, state.generation)

    def _stamp(self) -> tuple[int, int]:
        found = (self.runtime / STATE).stat()
        return found.st_ino, found.st_mtime_ns


def load(snapshots: dict[str, str]) -> list[ServedModel]:
    """Open snapshots, and run each model once, so that no request waits for a compiler."""
    models = [ServedModel(Path(directory)) for directory in snapshots.values()]
    for served in models:
        warm(served)
    return models


def warm(served: ServedModel) -> None:
    """Answer some requests with a model."""
    who = served.who(int(served.examples[0]), NO_ITEMS)
    items = np.array([place.item for place in served.recommend(who, RankOptions(k=20))[:1]], dtype=np.int32)
    served.recommend(who, RankOptions(k=5, diversity=0.1))
    served.recommend(served.who(None, NO_ITEMS), RankOptions(k=5))
    for item in items.tolist():
        served.similar(item, ListOptions(k=5))
    width = 1 if served.vectors is None else served.vectors.items.shape[1]
    if served.n_items * width <= WARM_FOLD_IN and len(who.seen):
        new = served.new_user(who.seen[:3])
        served.recommend(new, RankOptions(k=5))
        served.explain(new, items)


def main(runtime: str, descriptor: str, parent: str) -> None:
    """Run a worker."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"%(asctime)s worker {os.getpid()}: %(message)s", force=True
    )
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.WARNING)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor's
    worker = Worker(Path(runtime), os.environ.pop(KEY, None), int(parent))
    gc.collect()
    gc.freeze()  # what is here stays: to look through it takes as long as a hundred requests
    uvloop.run(worker.serve(socket.socket(fileno=int(descriptor))))


if __name__ == "__main__":
    main(*sys.argv[1:])
