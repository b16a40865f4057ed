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
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from truelike.core.progress import logger
from truelike.errors import ParameterError, StorageError, TruelikeError, WorkerError
from truelike.serving.channel import BEAT, DEAD, SILENT, Channel, State
from truelike.serving.events import EventStore
from truelike.serving.notify import OF_SYSTEMD, notify
from truelike.serving.runtime import Runtime
from truelike.serving.schemas import Answer
from truelike.serving.settings import KEY, Settings, runtime_place
from truelike.storage import FILES

LOOK = 0.1  # seconds
EARLY = 5.0  # seconds after its start in which a worker that dies counts as broken
MOST_EARLY = 5  # times in a row, if no other worker is ready
LONGEST_PAUSE = 30.0  # seconds until a worker that cannot start is started again
STARTED = 180.0  # seconds in which a worker must be ready
Signature = list[tuple[int, int, int]]  # of each file of a model
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class _Loading:
    """A loader process, and what it says."""

    def __init__(self, name: str, directory: Path, process: subprocess.Popen[bytes], settings: Settings) -> None:
        self.name, self.directory, self.process = name, directory, process
        self.answer: Answer = {"error": "the process that loads the model was not heard"}
        self._thread = threading.Thread(target=self._hear, args=(settings,), daemon=True)
        self._thread.start()

    def _hear(self, settings: Settings) -> None:
        try:
            said, _ = self.process.communicate(settings.dump().encode(), settings.load_timeout)
            self.answer = json.loads(said.splitlines()[-1])
        except subprocess.TimeoutExpired:
            self.answer = {
                "error": f"the model was not loaded within {settings.load_timeout:g} s: see --load-timeout"
            }
            self.process.kill()
            self.process.communicate()
        except (OSError, IndexError, ValueError):
            code = self.process.wait()
            text = f"the process that loads the model ended with exit code {code}: is there enough memory?"
            self.answer = {"error": text}

    def has_ended(self) -> bool:
        """Whether there is an answer."""
        return not self._thread.is_alive()


@dataclass
class _Worker:
    """A worker process."""

    process: subprocess.Popen[bytes]
    channel: Channel
    started: float = field(default_factory=time.monotonic)
    asked: int = 0  # reloads that it asked for and that are begun
    answered: int = 0

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return self.channel.report.generation >= 0


@dataclass
class _Slot:
    """A place for a worker. After a failure it is filled after a pause, which grows."""

    number: int
    worker: _Worker | None = None
    failures: int = 0
    after: float = 0.0
    served: bool = False  # whether a worker of it was ever ready


@dataclass
class _Request:
    """A worker has asked for a reload."""

    worker: _Worker
    number: int
    generation: int | None = None  # that answers it; None: not loaded yet


class Supervisor:
    """A server: a supervisor with its workers. `say` is called with a line for people."""

    def __init__(self, settings: Settings, key: str | None, say: Callable[[str], None]) -> None:
        self.settings, self._key, self._say = settings, key, say
        self.state = State()
        self._slots = [_Slot(number) for number in range(settings.workers)]
        self._loading: _Loading | None = None
        self._queue: list[str] = []
        self._requests: list[_Request] = []
        # what was loaded, and what was seen last
        self._watched: dict[str, tuple[Signature | None, Signature | None]] = {}
        self._files: dict[str, list[Path]] = {}  # of the snapshot of each model
        self._again: dict[str, float] = {}  # when one that was removed may be made again
        self._stop, self._hang_up, self._looked, self._beaten = False, False, 0.0, 0.0
        self._silent: dict[str, str] = {}  # problems with workers
        self._numbers = count(1)

    def run(self) -> None:
        """Serve until a signal ends it."""
        raise_descriptors()
        with self._bound() as self._listening:
            self._place = runtime_place(self.settings.runtime_directory)
            self._runtime = Runtime(self._place)
            try:
                numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
                before = {number: signal.signal(number, self._take) for number in numbers}
                try:
                    self._start()
                    while not self._stop:
                        self._look_safely()
                        time.sleep(LOOK)
                finally:
                    self._end()
                    for number, handler in before.items():
                        signal.signal(number, handler)
            finally:
                self._runtime.remove()

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
        until = time.monotonic() + STARTED
        while not (all(slot.worker and slot.worker.ready for slot in self._slots) or self._stop):
            self._look()
            if time.monotonic() > until:
                raise WorkerError(f"the workers were not ready within {STARTED:g} s")
            time.sleep(LOOK / 2)
        if not self._stop:
            notify("READY=1")
            host, port = self._listening.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            workers = "1 worker" if self.settings.workers == 1 else f"{self.settings.workers} workers"
            self._say(f"serving on http://{shown}:{port} with {workers}; Ctrl-C ends it")

    def _begin_loading(self, name: str) -> None:
        self._watched[name] = (self._signature(name),) * 2
        try:
            if not self._runtime.is_there():
                old, self._runtime = self._runtime, Runtime(self._place)
                old.remove()
            directory = self._runtime.snapshots / f"{next(self._numbers)}-{name}"
            process = self._begin("loader", [name, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except (OSError, ParameterError) as error:
            self._refuse(name, str(error))
            return
        self._loading = _Loading(name, directory, process, self.settings)

    def _refuse(self, name: str, text: str) -> None:
        """Keep the old model, and say why."""
        if name in self.state.snapshots and self.state.problems.get(name) != text:
            logger.warning("the model %s was refused, and %s stays: %s", name, self.state.versions[name], text)
        self.state.problems = {**self.state.problems, name: text}

    def _look_at_loading(self) -> None:
        """See whether a loader has ended, and take its model or refuse it."""
        loading = self._loading
        if loading is None or not loading.has_ended():
            return
        self._loading, answer = None, loading.answer
        if "error" in answer:
            shutil.rmtree(loading.directory, ignore_errors=True)
            self._refuse(loading.name, answer["error"])
            return
        about = answer["about"]
        self.state.problems = {name: text for name, text in self.state.problems.items() if name != loading.name}
        for warning in about["warnings"]:
            logger.warning("%s: %s", loading.name, warning)
        self._say(_summary(about))
        self._files[loading.name] = [path for path in loading.directory.rglob("*") if path.is_file()]
        self.state.snapshots = {**self.state.snapshots, loading.name: str(loading.directory)}
        self.state.versions = {**self.state.versions, loading.name: about["version"]}

    def _look_safely(self) -> None:
        """Do what is to be done now. Whatever fails is logged and done again: others may serve on."""
        try:
            self._look()
        except WorkerError:
            raise
        except Exception:
            logger.exception("the supervisor could not do its work; it tries again")
            time.sleep(BEAT)

    def _look(self) -> None:
        """Do what is to be done now."""
        for worker in self._workers():
            worker.channel.hear()
            report = worker.channel.report
            if report.reloads > worker.asked:
                worker.asked = report.reloads
                self._requests.append(_Request(worker, report.reloads))
                self._hang_up = True
        self._look_at_workers()
        if self._hang_up:
            self._hang_up = False
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
        elif self._loading is None and (busy or any(each.generation is None for each in self._requests)):
            self.state.generation += 1
            for each in self._requests:
                each.generation = self.state.generation if each.generation is None else each.generation
            self._beaten = 0.0
        self._settle()
        if time.monotonic() - self._beaten > BEAT:
            self._beaten = time.monotonic()
            self._beat()

    def _beat(self) -> None:
        """Say the state to all workers, look after what may have been removed, and tell systemd that all is well."""
        self._look_at_snapshots()
        problems = {**self.state.problems, **self._silent}
        for worker in self._workers():
            worker.channel.say(replace(self.state, problems=problems, reloads=worker.answered))
        if any(worker.ready and worker.channel.silence() < DEAD for worker in self._workers()):
            notify("WATCHDOG=1")

    def _look_at_snapshots(self) -> None:
        """Load a model again whose snapshot somebody removed: workers serve on, but no other one could start."""
        for name, files in self._files.items():
            loading = name in self._queue or (self._loading is not None and self._loading.name == name)
            if loading or time.monotonic() < self._again.get(name, 0.0):
                continue
            if not self._runtime.is_there() or not all(file.exists() for file in files):
                text = "its snapshot was removed from the runtime directory; it is loaded again"
                self._set_problem(name, text)
                self._queue.append(name)
                self._again[name] = time.monotonic() + LONGEST_PAUSE

    def _settle(self) -> None:
        """Answer requests when all workers serve what came of them, and remove snapshots that are not needed."""
        served = min((worker.channel.report.generation for worker in self._workers()), default=-1)
        for each in self._requests:
            if each.generation is not None and served >= each.generation:
                each.worker.answered = max(each.worker.answered, each.number)
                self._beaten = 0.0
        self._requests = [each for each in self._requests if each.worker.answered < each.number]
        if self._loading is None and not self._queue and served >= self.state.generation:
            needed = set(self.state.snapshots.values())
            for directory in self._runtime.snapshots.iterdir() if self._runtime.is_there() else ():
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
        self._beaten = 0.0

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
        environment = {name: value for name, value in os.environ.items() if name not in (KEY, *OF_SYSTEMD)}
        if module == "worker":
            environment |= ONE_THREAD | ({} if self._key is None else {KEY: self._key})
        command = [sys.executable, "-P", "-m", f"truelike.serving.{module}", *arguments]
        return subprocess.Popen(command, env=environment, **more)

    def _workers(self) -> list[_Worker]:
        return [slot.worker for slot in self._slots if slot.worker is not None]

    def _fill(self, slot: _Slot) -> None:
        """Start a worker."""
        channel = Channel()
        passed = [self._listening.fileno(), channel.theirs.fileno()]
        known = [str(slot.number), self._runtime.allocate(slot.number), *map(str, passed)]
        try:
            # a group of its own: Ctrl-C is for the supervisor, which ends the workers in order
            process = self._begin("worker", known, stdin=subprocess.PIPE, pass_fds=passed, start_new_session=True)
        except OSError:
            channel.close()
            raise
        channel.theirs.close()
        slot.worker = _Worker(process, channel)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(json.dumps({"settings": self.settings.dump(), "state": asdict(self.state)}).encode())

    def _look_at_workers(self) -> None:
        """Start a worker for each that died, replace those that give no sign of life, and note what is wrong."""
        silent = {}
        for slot in self._slots:
            if slot.worker is None and time.monotonic() >= slot.after:
                self._fill(slot)
            worker = slot.worker
            if worker is None:
                silent["workers"] = "a worker could not be started; the log has the reason"
                continue
            if worker.ready and worker.channel.silence() > SILENT:
                seconds = worker.channel.silence()
                silent["workers"] = f"worker {worker.process.pid} has given no sign of life for {seconds:.0f} s"
            elif slot.served and not worker.ready:
                silent["workers"] = "a worker has ended, and another one is starting"
            slot.served = slot.served or worker.ready
            self._look_at_worker(slot, worker)
        if silent.keys() != self._silent.keys():
            self._beaten = 0.0
        self._silent = silent

    def _look_at_worker(self, slot: _Slot, worker: _Worker) -> None:
        if time.monotonic() - worker.started > EARLY and worker.ready:
            slot.failures = 0
        if worker.channel.silence() > (DEAD if worker.ready else STARTED):
            logger.warning("worker %d gives no sign of life and is replaced", worker.process.pid)
            worker.process.kill()
            worker.process.wait()
        if worker.process.poll() is not None:
            self._bury(slot, worker)

    def _bury(self, slot: _Slot, worker: _Worker) -> None:
        """Empty a slot whose worker has ended."""
        code = worker.process.returncode
        early = not worker.ready or time.monotonic() - worker.started < EARLY
        worker.channel.close()
        slot.worker = None
        slot.failures += early
        slot.after = time.monotonic() + (min(LONGEST_PAUSE, LOOK * 2**slot.failures) if early else 0.0)
        alone = not any(other.ready for other in self._workers())
        if alone and slot.failures >= MOST_EARLY:
            raise WorkerError(f"workers end as soon as they start (exit code {code}); the lines above say why")
        logger.warning("worker %d ended with exit code %d; another one is started", worker.process.pid, code)

    def _end(self) -> None:
        """End all processes: workers answer what they have begun."""
        notify("STOPPING=1")
        processes = [worker.process for worker in self._workers()]
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


def raise_descriptors() -> None:
    """Take as many descriptors as the system allows: each connection needs one."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


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
