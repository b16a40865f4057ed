"""`Cluster`: a Ray cluster, how to reach it, and how many workers to use.

Every Ray call of truelike is made here, in `engines/blocks/ray_workers.py` or in `selection/ray_workers.py`.
"""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from types import ModuleType
from typing import Any

import numpy as np

from truelike.core.memory import available_memory, readable
from truelike.core.parallel import cores
from truelike.core.progress import logger
from truelike.errors import ClusterError, MissingExtraError, ParameterError, TruelikeError

CONNECT_SECONDS = 10.0  # to reach the address of a cluster
ANSWER_SECONDS = 20.0  # for it to answer
STORE_SHARE = 0.3  # of the available memory that the object store of a local cluster has
TASK_TRIES = 5  # of a piece of `map_on` whose worker is lost
LOST = (  # what Ray raises when a worker, a node or an object was lost
    "RayActorError", "ObjectLostError", "WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError",
    "RaySystemError", "TaskUnschedulableError", "ActorUnschedulableError",
)  # fmt: skip


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster to train on. The result never depends on it.

    Parameters
    ----------
    address : str, default 'local'
        "local": a cluster of this machine alone, which is started and ended. "auto": the cluster that this machine
        belongs to. Otherwise the address of its head node, such as "10.0.0.7:6379".
    workers : int or None, default None
        Number of worker processes; None: one on each node.
    threads : int or None, default None
        Threads of each worker; None: the cores of a node, divided by its workers.

    Examples
    --------
    >>> Cluster("local", workers=2)
    Cluster(address='local', workers=2, threads=None)
    """

    address: str = "local"
    workers: int | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.address, str) or not self.address:
            raise ParameterError(
                f'the address of a cluster is {self.address!r}; expected "local", "auto" or HOST:PORT'
            )
        if self.address not in ("local", "auto"):
            _host_and_port(self.address)
        for name in ("workers", "threads"):
            value = getattr(self, name)
            right = isinstance(value, Integral) and not isinstance(value, bool) and 1 <= int(value) <= 10_000
            if value is not None and not right:
                raise ParameterError(f"{name} is {value!r}; expected a whole number, at least 1, or None")

    @contextmanager
    def connected(self) -> Iterator[ModuleType]:
        """A context in which this process is connected to the cluster; gives Ray.

        A process that is connected already stays so, and a cluster that was started here is ended.
        """
        ray = _ray(local=self.address == "local")
        if ray.is_initialized():
            here = ray.get_runtime_context().gcs_address
            if self.address not in ("local", "auto", here):
                raise ClusterError(
                    f"this process is connected to the Ray cluster at {here}, and {self.address} was asked for. Call "
                    "ray.shutdown() first."
                )
            yield ray
            return
        _connect(ray, self)
        try:
            with _clean_stdout(ray):
                yield ray
        finally:
            ray.shutdown()

    def layout(self, ray: ModuleType) -> tuple[int, int]:
        """The number of workers that the living nodes have room for, as far as asked for, and the threads of each."""
        cpus = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        cpus = [n for n in cpus if n]
        if not cpus:
            raise ClusterError("the cluster has no node with a CPU. Start nodes: ray start --address=...")
        wanted = self.workers or len(cpus)
        threads = self.threads or max(1, min(cpus) // -(-wanted // len(cpus)))
        room = sum(n // threads for n in cpus)
        if not room:
            raise ClusterError(
                f"no node of the cluster has {threads} CPUs, the threads of a worker; the largest has {max(cpus)}. Use "
                "fewer threads."
            )
        return min(wanted, room), threads


def as_cluster(cluster: Any) -> Cluster | None:
    """A cluster from what `fit` was given.

    >>> as_cluster("auto")
    Cluster(address='auto', workers=None, threads=None)
    """
    if cluster is None or isinstance(cluster, Cluster):
        return cluster
    if isinstance(cluster, str):
        return Cluster(cluster)
    raise ParameterError(f'cluster is {cluster!r}; expected "local", "auto", HOST:PORT or a tl.Cluster')


def _ray(*, local: bool) -> ModuleType:
    """Ray, without usage statistics. Settings that are read when it is imported are made before."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if local and "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError('a cluster needs Ray: pip install "truelike[cluster]"') from error
    module: ModuleType = ray
    return module


@contextmanager
def _clean_stdout(ray: ModuleType) -> Iterator[None]:
    """A context in which Ray's news of lost workers goes to the log, not to stdout, where the caller's data goes."""
    worker = getattr(getattr(ray, "_private", None), "worker", None)
    own = getattr(worker, "print_to_stdstream", None)
    if own is None:  # another version of Ray
        yield
        return

    def to_log(data: Any, *_: Any, **__: Any) -> None:
        logger.debug("Ray: %s", " ".join(map(str, data.get("lines", ()))))

    worker.print_to_stdstream = to_log  # type: ignore[union-attr]
    try:
        yield
    finally:
        worker.print_to_stdstream = own  # type: ignore[union-attr]


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ParameterError(
            f'the address of a cluster is {address!r}; expected "local", "auto" or HOST:PORT, such as "10.0.0.7:6379". '
            "Run on a machine of the cluster: addresses of Ray Client (ray://) do not work."
        )
    return host, int(port)


class _OwnPath(list[str]):
    """The directories that Ray adds to the path of its workers: the current one only if this process imports from it.

    Otherwise a polars.py beside a log would be run by the workers, and only by them.
    """

    def extend(self, places: Iterable[str]) -> None:
        known = {os.path.realpath(place) for place in sys.path}  # "" is the current directory
        super().extend(place for place in places if os.path.realpath(place) in known)


def _connect(ray: ModuleType, cluster: Cluster) -> None:
    """Connect to a cluster or start one; an error that says what to do if it cannot be done."""
    options: dict[str, Any] = {"address": cluster.address, "include_dashboard": None}
    if cluster.address == "local":
        options |= {
            "num_cpus": max(cores(), (cluster.workers or 1) * (cluster.threads or 1)),
            "include_dashboard": False,
            "object_store_memory": int(STORE_SHARE * available_memory()),
            "_node_ip_address": "127.0.0.1",
        }
    else:
        if cluster.address != "auto":
            _check_reachable(cluster.address)
        _check_answers(cluster.address)
    try:
        job = ray.job_config.JobConfig()
        job._py_driver_sys_path = _OwnPath()
        ray.init(
            job_config=job, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True, **options
        )
    except Exception as error:
        if ray.is_initialized():
            ray.shutdown()
        raise _unusable(cluster.address, error) from error


def _check_reachable(address: str) -> None:
    host, port = _host_and_port(address)
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster can be reached at {address}: {error}. Start one with `ray start --head --port {port}`, or "
            "check the address and the firewall."
        ) from error


def _check_answers(address: str) -> None:
    """Raise if nothing that is a Ray cluster answers in time: in this process, connecting could wait for minutes."""
    code = (
        "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='error', "
        "include_dashboard=None); ray.shutdown()"
    )
    command = [sys.executable, "-P", "-c", code, address]  # a ray.py in the current directory is not run
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        if address == "auto":
            late = RuntimeError(f"none answers within {ANSWER_SECONDS:.0f} s")
            raise _unusable(address, late) from error
        raise ClusterError(
            f"no Ray cluster answers at {address!r} within {ANSWER_SECONDS:.0f} s. Check that `ray status` works "
            "there, and that the address is that of the head node."
        ) from error
    if tried.returncode:
        last = tried.stderr.strip().splitlines()[-1:] or [f"exit code {tried.returncode}"]
        raise _unusable(address, RuntimeError(last[0]))


def _unusable(address: str, error: Exception) -> ClusterError:
    words = " ".join(str(error).split())[:400]
    if "ersion" in words and "mismatch" in words:
        return ClusterError(
            f"the Ray cluster at {address} has another version of Ray or Python than this process ({words}). "
            "Install the same versions here and there."
        )
    if address == "auto":
        return ClusterError(
            f"this machine belongs to no Ray cluster ({words}). Start one with `ray start --head`, or use "
            'cluster="local".'
        )
    return ClusterError(f"the Ray cluster at {address!r} cannot be used ({type(error).__name__}: {words})")


def check_store(ray: ModuleType, needed: int) -> None:
    """Raise if a node's object store is smaller than what is sent to it at once."""
    sizes = [int(node["Resources"].get("object_store_memory", 0)) for node in ray.nodes() if node["Alive"]]
    smallest = min((size for size in sizes if size), default=0)
    if needed > smallest:
        raise ClusterError(
            f"the item tables need {readable(needed)} of a node's object store, and the smallest has "
            f"{readable(smallest)}. Start the nodes with `ray start --object-store-memory={int(1.5 * needed)}`, or use "
            "fewer factors."
        )


def cause_of(error: BaseException) -> BaseException:
    """The exception that a worker raised, or `error` itself."""
    cause = getattr(error, "cause", None)
    return cause_of(cause) if isinstance(cause, BaseException) else error


def is_lost(ray: ModuleType, error: BaseException) -> bool:
    """Whether a worker, a node or an object was lost, rather than that a worker raised an error."""
    lost = tuple(getattr(ray.exceptions, name) for name in LOST)
    return isinstance(error, lost) or isinstance(cause_of(error), lost)


def map_on(
    cluster: Cluster, work: Callable[..., Any], pieces: Iterable[tuple[Any, ...]], shared: tuple[Any, ...] = ()
) -> Generator[Any, None, None]:
    """The results of work(*shared, *piece, n_jobs=threads) of each piece, in their order, computed on a cluster.

    A piece whose worker or node is lost is computed again. What is `shared` is sent to each node once. `work` must not
    write to its arrays: they are those of the object store. Only a few pieces more than there are workers are in memory
    at a time.
    """
    with cluster.connected() as ray:
        n, threads = cluster.layout(ray)
        check_store(ray, sum(each.nbytes for each in shared if isinstance(each, np.ndarray)))
        shared_refs = tuple(ray.put(each) for each in shared)
        remote = ray.remote(num_cpus=threads, max_retries=TASK_TRIES, scheduling_strategy="SPREAD")(_call)
        todo, running = iter(pieces), list[Any]()
        try:
            while True:
                while len(running) < 2 * n and (piece := next(todo, None)) is not None:
                    running.append(remote.remote(work, threads, *shared_refs, *piece))
                if not running:
                    return
                try:
                    result = ray.get(running.pop(0))
                except ray.exceptions.RayError as error:
                    raise raised_by_worker(ray, error) from error
                yield result
        finally:
            for task in running:  # stopped early
                ray.cancel(task, force=True)


def _call(work: Callable[..., Any], threads: int, *arguments: Any) -> Any:
    return work(*map(writable, arguments), n_jobs=threads)


def writable(array: Any) -> Any:
    """A view of an array of the object store for the compiled loops, which are compiled for arrays that may be written.

    Nothing writes to it.
    """
    if not isinstance(array, np.ndarray) or array.flags.writeable or not array.flags.c_contiguous:
        return array
    if not array.size:
        return array.copy()
    content = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    content._owner = array  # type: ignore[attr-defined] # so that it lives as long
    return np.frombuffer(memoryview(content), dtype=array.dtype).reshape(array.shape)


def raised_by_worker(ray: ModuleType, error: BaseException) -> BaseException:
    """What to raise for an error of Ray: the error of the worker, if it is one of truelike's."""
    cause = cause_of(error)
    if isinstance(cause, (TruelikeError, MemoryError)) and not isinstance(cause, ray.exceptions.RayError):
        return cause
    words = " ".join(str(cause).split())[:500]
    return ClusterError(f"a worker of the cluster failed ({type(cause).__name__}: {words})")
