"""The supervisor: it binds the address, starts workers, restarts those that die, and has new models loaded.

It computes nothing itself, so that nothing a model does can end it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from truelike.core.progress import logger
from truelike.errors import ParameterError, StorageError, TruelikeError, WorkerError
from truelike.serving.events import EventStore
from truelike.serving.schemas import Answer
from truelike.serving.settings import KEY, Settings
from truelike.serving.state import (
    METRICS,
    PREFIX,
    REQUESTS,
    SNAPSHOTS,
    State,
    generation_of,
    lock_runtime,
    make_runtime,
    remove_abandoned,
)
from truelike.storage import FILES

LOOK = 0.1  # seconds
EARLY = 5.0  # seconds after its start in which a worker that dies counts as broken
MOST_EARLY = 5  # times in a row
STARTED = 180.0  # seconds in which a worker must be ready
Signature = list[tuple[int, int, int]]  # of each file of a model
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass
class _Loading:
    """A loader process."""

    name: str
    directory: Path
    process: subprocess.Popen[bytes]


@dataclass
class _Worker:
    """A worker process."""

    process: subprocess.Popen[bytes]
    started: float = field(default_factory=time.monotonic)
    ready: bool = False


class Supervisor:
    """A server: a supervisor with its workers. `say` is called with a line for people."""

    def __init__(self, settings: Settings, key: str | None, say: Callable[[str], None]) -> None:
        self.settings, self._key, self._say = settings, key, say
        self.state = State()
        self._workers: list[_Worker] = []
        self._loading: _Loading | None = None
        self._queue: list[str] = []
        self._requests: dict[Path, int | None] = {}  # the generation that answers each; None: not loaded yet
        # what was loaded, and what was seen last
        self._watched: dict[str, tuple[Signature | None, Signature | None]] = {}
        self._early, self._stop, self._hang_up, self._looked = 0, False, False, 0.0
        self._numbers = count(1)

    def run(self) -> None:
        """Serve until a signal ends it."""
        with self._bound() as self._listening:
            remove_abandoned()
            self._runtime = Path(tempfile.mkdtemp(prefix=PREFIX))
            lock = lock_runtime(self._runtime)
            try:
                make_runtime(self._runtime)
                self.settings.write(self._runtime)
                numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
                before = {number: signal.signal(number, self._take) for number in numbers}
                try:
                    self._start()
                    while not self._stop:
                        self._look()
                        time.sleep(LOOK)
                finally:
                    self._end()
                    for number, handler in before.items():
                        signal.signal(number, handler)
            finally:
                shutil.rmtree(self._runtime, ignore_errors=True)
                os.close(lock)

    def _bound(self) -> socket.socket:
        host, port = self.settings.host, self.settings.port
        listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(2_048)
            listening.set_inheritable(True)
        except (OSError, OverflowError) as error:
            listening.close()
            raise ParameterError(
                f"cannot listen on {host}:{port}: {error}. Choose another --host or --port."
            ) from error
        return listening

    def _take(self, number: int, _: FrameType | None) -> None:
        """Remember a signal."""
        if number == signal.SIGHUP:
            self._hang_up = True
        else:
            self._stop = True

    # --- models ---------------------------------------------------------------------------------

    def _start(self) -> None:
        """Load all models, then start all workers."""
        for name, directory in self.settings.models.items():
            self._say(f"loading {name} from {directory}")
            self._begin_loading(name)
            while self._loading is not None and not self._stop:
                self._look_at_loading()
                time.sleep(LOOK / 5)
            if name in self.state.problems:
                raise StorageError(self.state.problems[name])
            if self._stop:
                return
        self.state.write(self._runtime)
        self._workers = [self._new_worker() for _ in range(self.settings.workers)]
        until = time.monotonic() + STARTED
        while not all(worker.ready for worker in self._workers) and not self._stop:
            self._look()
            if time.monotonic() > until:
                raise WorkerError(f"the workers were not ready within {STARTED:g} s")
            time.sleep(LOOK / 2)
        if not self._stop:
            host, port = self._listening.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            workers = "1 worker" if self.settings.workers == 1 else f"{self.settings.workers} workers"
            self._say(f"serving on http://{shown}:{port} with {workers}; Ctrl-C ends it")

    def _begin_loading(self, name: str) -> None:
        directory = self._runtime / SNAPSHOTS / f"{next(self._numbers)}-{name}"
        self._watched[name] = (self._signature(name),) * 2
        with _output(directory).open("wb") as out:
            process = self._begin("loader", [str(self._runtime), name, str(directory)], stdout=out)
        self._loading = _Loading(name, directory, process)

    def _look_at_loading(self) -> None:
        """See whether a loader has ended, and take its model or refuse it."""
        loading = self._loading
        if loading is None or loading.process.poll() is None:
            return
        self._loading = None
        answer = _answer(loading)
        if "error" in answer:
            self.state.problems[loading.name] = answer["error"]
            if loading.name in self.state.snapshots:
                version = self.state.versions[loading.name]
                logger.warning(
                    "the model %s was refused, and %s stays: %s", loading.name, version, answer["error"]
                )
            return
        about = answer["about"]
        self.state.problems.pop(loading.name, None)
        for warning in about["warnings"]:
            logger.warning("%s: %s", loading.name, warning)
        self._say(_summary(about))
        self.state.snapshots = {**self.state.snapshots, loading.name: str(loading.directory)}
        self.state.versions = {**self.state.versions, loading.name: about["version"]}

    def _look(self) -> None:
        """Do what is to be done now."""
        self._look_at_workers()
        new = set((self._runtime / REQUESTS).iterdir()) - self._requests.keys()
        if self._hang_up or new:
            self._hang_up = False
            self._requests |= dict.fromkeys(new)
            self._queue = list(self.settings.models)
        elif self.settings.watch and time.monotonic() - self._looked > self.settings.watch:
            self._looked = time.monotonic()
            self._queue += [
                name for name in self.settings.models if self._changed(name) and name not in self._queue
            ]
        busy = self._loading is not None
        self._look_at_loading()
        if self._loading is None and self._queue:
            self._begin_loading(self._queue.pop(0))
        elif self._loading is None and (busy or None in self._requests.values()):
            self.state.generation += 1
            for path, generation in self._requests.items():
                self._requests[path] = self.state.generation if generation is None else generation
            self.state.write(self._runtime)
        self._settle()

    def _settle(self) -> None:
        """Remove requests when all workers serve what came of them, and then snapshots that are not needed."""
        served = min((generation_of(self._runtime, worker.process.pid) for worker in self._workers), default=-1)
        for path, generation in list(self._requests.items()):
            if generation is not None and served >= generation:
                path.unlink(missing_ok=True)
                del self._requests[path]
        if self._loading is None and not self._queue and served >= self.state.generation:
            needed = set(self.state.snapshots.values())
            for directory in (self._runtime / SNAPSHOTS).iterdir():
                if str(directory) not in needed:
                    shutil.rmtree(directory, ignore_errors=True)

    def _changed(self, name: str) -> bool:
        """Whether the files of a model are others than those that were loaded, and are not being written."""
        loaded, last = self._watched[name]
        now = self._signature(name)
        self._watched[name] = (loaded, now)
        gone = (
            f"files of the model in {self.settings.models[name]!r}, or of its items, are gone; the old one stays"
        )
        if now is None and last is None and name not in self.state.problems:
            self._set_problem(name, gone)
        elif now is not None and now == loaded and self.state.problems.get(name) == gone:
            self._set_problem(name, None)
        return now is not None and now != loaded and now == last

    def _set_problem(self, name: str, text: str | None) -> None:
        self.state.problems = {key: value for key, value in self.state.problems.items() if key != name}
        if text is not None:
            logger.warning("%s: %s", name, text)
            self.state.problems[name] = text
        self.state.write(self._runtime)

    def _signature(self, name: str) -> Signature | None:
        """What changes with the files of a model, or of its items; None: some are not there."""
        files = [f"{self.settings.models[name]}/{file}" for file in FILES]
        files += [table for table in (self.settings.items, self.settings.titles) if table is not None]
        try:
            found = [Path(file).stat() for file in files]
        except OSError:
            return None
        return [(about.st_ino, about.st_mtime_ns, about.st_size) for about in found]

    # --- workers --------------------------------------------------------------------------------

    def _begin(self, module: str, arguments: list[str], **more: Any) -> subprocess.Popen[bytes]:
        """Start a process that runs a module of this package; the API key is for workers alone."""
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self._runtime / METRICS)}
        environment.pop(KEY, None)
        if module == "worker":
            environment |= ONE_THREAD | ({} if self._key is None else {KEY: self._key})
        command = [sys.executable, "-P", "-m", f"truelike.serving.{module}", *arguments]
        return subprocess.Popen(command, env=environment, **more)

    def _new_worker(self) -> _Worker:
        descriptor = self._listening.fileno()
        known = [str(self._runtime), str(descriptor), str(os.getpid())]
        # a group of its own: Ctrl-C is for the supervisor, which ends the workers in order
        return _Worker(self._begin("worker", known, pass_fds=[descriptor], start_new_session=True))

    def _look_at_workers(self) -> None:
        """Start a worker for each that died."""
        for place, worker in enumerate(self._workers):
            if not worker.ready:
                worker.ready = generation_of(self._runtime, worker.process.pid) >= 0
                if worker.ready:
                    self._early = 0
            code = worker.process.poll()
            if code is None:
                continue
            mark_process_dead(worker.process.pid, str(self._runtime / METRICS))  # type: ignore[no-untyped-call]
            if not worker.ready or time.monotonic() - worker.started < EARLY:
                self._early += 1
                if self._early >= MOST_EARLY:
                    raise WorkerError(
                        f"workers end as soon as they start (exit code {code}); the lines above say why"
                    )
            logger.warning("worker %d ended with exit code %d; another one is started", worker.process.pid, code)
            self._workers[place] = self._new_worker()

    def _end(self) -> None:
        """End all processes: workers answer what they have begun."""
        processes = [worker.process for worker in self._workers]
        if self._loading is not None:
            processes.append(self._loading.process)
        for process in processes:
            process.terminate()
        until = time.monotonic() + self.settings.timeout + 5
        for process in processes:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _output(directory: Path) -> Path:
    """Where the loader of a snapshot says what became of it."""
    return directory.with_name(f"{directory.name}.json")


def _answer(loading: _Loading) -> Answer:
    """What a loader said."""
    output = _output(loading.directory)
    try:
        found: Answer = json.loads(output.read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, IndexError, json.JSONDecodeError):
        code = loading.process.returncode
        return {"error": f"the process that loads the model ended with exit code {code}: is there enough memory?"}
    finally:
        output.unlink(missing_ok=True)
    return found


def _summary(about: Answer) -> str:
    """A line about a model that was loaded."""
    data, ranking = about["data"], about["ranking"]
    text = (
        f"{about['name']}: {about['class']}, version {about['version']}, {data['users']:,} users, {data['items']:,} "
        f"items; lists are {'exact' if ranking['kind'] == 'exact' else 'by an IVF index'} "
        f"({ranking['milliseconds']:.2g} ms)"
    )
    if "recall_at_20" in ranking:
        groups = f"{ranking['probes']} of {ranking['groups']} groups"
        text += f"; recall@20 of the index {ranking['recall_at_20']:.3f}, {groups}"
    return f"{text}; {ranking['note']}" if "note" in ranking else text


def serve(settings: Settings, key: str | None, say: Callable[[str], None]) -> None:
    """Run a server until a signal ends it."""
    if not hasattr(os, "fork"):
        raise TruelikeError("truelike serve runs on Linux and macOS")
    server = Supervisor(settings, key, say)
    if settings.events is None:
        server.run()
        return
    with contextlib.closing(EventStore(settings.events)) as store:
        store.check()
    try:
        server.run()
    finally:
        with contextlib.suppress(StorageError):
            EventStore(settings.events).close()  # the last one that closes it leaves a single file behind
