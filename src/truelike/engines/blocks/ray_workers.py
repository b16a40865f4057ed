"""Workers on a Ray cluster: an actor each, with its blocks and the rows of their users.

Item tables go to all workers through the object store, one copy for each node. What an actor holds is lost with it.
Then all actors end, new ones are started on the nodes that are left, and get the rows of the last epoch, which the
driver has (`BlockEngine`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from truelike.cluster import Cluster, check_store, is_lost, raised_by_worker, writable
from truelike.core.progress import note
from truelike.data.blocks.blocks import Blocks
from truelike.data.blocks.tree import combined, nodes_within, tree_sum
from truelike.engines.blocks.workers import BlockWorker, WorkerKind, Workers, WorkersLostError, allocator
from truelike.errors import ClusterError, StorageError

Floats = NDArray[np.float32]
F = TypeVar("F", bound=Callable[..., Any])
START_SECONDS = 25.0  # for the actors to start
START_TRIES = 3  # after a loss
MOST_LOSSES = 30  # without an epoch that ends
COPIES = 6  # of an item table that are in an object store at the same time, about


class BlockActor:
    """A worker in a process of its own."""

    def __init__(self, directory: str, digest: str, kind: WorkerKind, threads: int) -> None:
        self.directory, self.digest = directory, digest
        self.kind, self.threads, self.seconds = kind, threads, 0.0
        self.worker: BlockWorker | None = None

    def assign(self, first: int, stop: int, width: int) -> None:
        """Take some blocks, with rows of zeros."""
        self.blocks = Blocks(self.directory)
        if self.blocks.digest != self.digest:
            raise StorageError(
                f"{self.directory!r} is another block directory on a node of the cluster than on the machine that "
                "started the training. All machines must reach the same files."
            )
        n = int(self.blocks.bounds[stop] - self.blocks.bounds[first])
        rows = np.zeros((n, width), dtype=np.float32)
        self.worker = self.kind.make(self.blocks, range(first, stop), rows, self.threads)

    def set_rows(self, number: int, rows: Floats) -> None:
        """Set the rows of the users of a block."""
        assert self.worker is not None
        self.worker.rows_of(number)[:] = rows

    def get_rows(self, number: int) -> Floats:
        """The rows of the users of a block."""
        assert self.worker is not None
        return self.worker.rows_of(number)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker."""
        return self._timed(lambda: getattr(self.worker, method)(*map(writable, arguments)))

    def sums(self, method: str, nodes: list[tuple[int, int]], *arguments: Any) -> Any:
        """The sums over the blocks of some nodes of the tree."""
        given = tuple(map(writable, arguments))

        def leaf(number: int) -> Any:
            return getattr(self.worker, method)(number, *given)

        found = self._timed(lambda: [tree_sum(*node, leaf) for node in nodes])
        return found if len(found) > 1 else found[0]

    def busy(self) -> float:
        """The seconds in which this worker has computed."""
        return self.seconds

    def _timed(self, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds += time.perf_counter() - started


def _timed(method: F) -> F:
    """Add the seconds of a method of `RayWorkers` to its `seconds`."""

    @wraps(method)
    def timed(self: RayWorkers, *arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return method(self, *arguments)
        finally:
            self.seconds += time.perf_counter() - started

    return cast("F", timed)


class RayWorkers(Workers):
    """Workers on a Ray cluster.

    Parameters
    ----------
    kind
        What the workers do.
    blocks
        The blocks. Every machine of the cluster must reach their directory.
    users
        The table with the rows of the users at the start.
    cluster
        The cluster.
    """

    def __init__(self, kind: WorkerKind, blocks: Blocks, users: Floats, cluster: Cluster) -> None:
        self.kind, self.blocks, self.cluster, self.width = kind, blocks, cluster, users.shape[1]
        self.losses = 0
        self.seconds = 0.0  # of waiting for workers, and of what goes to them and comes from them
        self._aside: Floats | None = None
        self._actors: list[Any] = []
        self._ranges: list[range] = []
        self._connection = cluster.connected()
        self.ray = self._connection.__enter__()
        try:
            check_store(self.ray, COPIES * 4 * blocks.n_items * self.width)
            self._start(users)
        except BaseException:
            self.close()
            raise

    # --- starting -------------------------------------------------------------------------------

    def replace(self, users: Floats) -> None:
        """Start actors in place of those that are there, and give them their rows."""
        self.losses += 1
        if self.losses > MOST_LOSSES:
            raise ClusterError(
                f"workers of the cluster were lost {MOST_LOSSES} times in one epoch; see Ray's logs"
            )
        note(f"a worker of the cluster was lost; {len(self.blocks)} blocks go to new ones, from the last epoch on")
        for left in reversed(range(START_TRIES)):
            try:
                self._start(users)
                break
            except ClusterError:
                if not left:
                    raise

    def _start(self, users: Floats) -> None:
        self._end_actors()
        self._start_actors()
        self._assign()
        self.spread(users)

    def spread(self, users: Floats) -> None:
        """Give the actors their rows."""
        for actor, own in zip(self._actors, self._ranges, strict=True):
            for number in own:  # one block is in the object store at a time
                self._get([actor.set_rows.remote(number, users[self._rows_of(number)])])

    def _rows_of(self, number: int) -> slice:
        return slice(int(self.blocks.bounds[number]), int(self.blocks.bounds[number + 1]))

    def _start_actors(self) -> None:
        """Start as many actors as there is room for; those that do not start in time are left out."""
        ray = self.ray
        n, threads = self.cluster.layout(ray)
        n = min(n, len(self.blocks))
        remote = ray.remote(num_cpus=threads, max_restarts=0, scheduling_strategy="SPREAD")(BlockActor)
        given = (str(self.blocks.directory), self.blocks.digest, self.kind, threads)
        actors = [remote.remote(*given) for _ in range(n)]
        ready = [actor.busy.remote() for actor in actors]
        started, _ = ray.wait(ready, num_returns=n, timeout=START_SECONDS)
        living = []
        for actor, call in zip(actors, ready, strict=True):
            if call in started and self._works(call):
                living.append(actor)
            else:
                ray.kill(actor)
        if not living:
            raise ClusterError(
                f"no worker of the cluster started within {START_SECONDS:.0f} s: {n} were asked for, with {threads} "
                f"CPUs each, and {ray.available_resources().get('CPU', 0):g} CPUs are free. Wait until others are "
                "done, or use fewer workers or threads. With a checkpoint, resume=True (--resume) continues."
            )
        if len(living) < n:
            note(f"{len(living)} of {n} workers of the cluster started")
        self._actors = living

    def _works(self, call: Any) -> bool:
        try:
            self._get([call])
        except WorkersLostError:
            return False
        return True

    def _assign(self) -> None:
        """Give each actor a contiguous range of blocks."""
        n, blocks = len(self._actors), len(self.blocks)
        self._ranges = [range(blocks * w // n, blocks * (w + 1) // n) for w in range(n)]
        pairs = zip(self._actors, self._ranges, strict=True)
        self._get([actor.assign.remote(own.start, own.stop, self.width) for actor, own in pairs])

    def _end_actors(self) -> None:
        for actor in self._actors:
            self.ray.kill(actor)
        self._actors = []

    def close(self) -> None:
        """Let all actors end, and leave the cluster."""
        try:
            if self.ray.is_initialized():
                self._end_actors()
        finally:
            self._connection.__exit__(None, None, None)

    # --- working --------------------------------------------------------------------------------

    @_timed
    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of each worker."""
        given = self._shared(arguments)
        return self._get([actor.call.remote(method, *given) for actor in self._actors])

    @_timed
    def sum(self, method: str, *arguments: Any) -> Any:
        """The sum over all blocks; each worker adds what is its own."""
        given, n = self._shared(arguments), len(self.blocks)
        nodes = [nodes_within(0, n, own) for own in self._ranges]
        pairs = zip(self._actors, nodes, strict=True)
        calls = [actor.sums.options(num_returns=len(own)).remote(method, own, *given) for actor, own in pairs]
        places = [node for own in nodes for node in own]
        flat = [call for own in calls for call in (own if isinstance(own, list) else [own])]
        sums = dict(zip(places, self._get(flat), strict=True))
        return combined(0, n, {node: _own(each) for node, each in sums.items()}, _added)

    @_timed
    def rotate(self, method: str, parts: list[Floats], *arguments: Any) -> list[Floats]:
        """Train all parts on all blocks. A part goes from one worker to the next without passing here."""
        n, given = len(parts), self._shared(arguments)
        owner = {number: actor for actor, own in zip(self._actors, self._ranges, strict=True) for number in own}
        held: list[Any] = [self.ray.put(part) for part in parts]
        for step in range(n):
            for block in range(n):
                part = (block + step) % n
                held[part] = owner[block].call.remote(method, block, part, held[part], *given)
        return [np.array(part) for part in self._get(held)]

    @_timed
    def collect(self, users: Floats) -> None:
        """Copy the rows of all users into a table: first aside, so that the table stays whole if a worker is lost."""
        if self._aside is None:
            self._aside = allocator(self.blocks)(*users.shape)
        for actor, own in zip(self._actors, self._ranges, strict=True):
            for number in own:
                self._aside[self._rows_of(number)] = self._get([actor.get_rows.remote(number)])[0]
        users[:] = self._aside
        self.losses = 0

    def busy(self) -> list[float]:
        """The seconds in which each worker has computed."""
        return self._get([actor.busy.remote() for actor in self._actors])

    def _shared(self, arguments: tuple[Any, ...]) -> list[Any]:
        """Arguments for all workers; arrays are put into the object store once."""
        return [self.ray.put(each) if isinstance(each, np.ndarray) else each for each in arguments]

    def _get(self, calls: list[Any]) -> list[Any]:
        """The results of calls; a lost worker raises WorkersLostError."""
        try:
            found: list[Any] = self.ray.get(calls)
        except self.ray.exceptions.RayError as error:
            if isinstance(error, (self.ray.exceptions.LocalRayletDiedError, self.ray.exceptions.RaySystemError)):
                raise ClusterError(
                    "the connection to the Ray cluster was lost. With a checkpoint, training continues by resume=True "
                    "(--resume) once the cluster is there again."
                ) from error
            if is_lost(self.ray, error):
                raise WorkersLostError(str(error)) from error
            raise raised_by_worker(self.ray, error) from error
        return found


def _own(value: Any) -> Any:
    """A value of the object store with arrays that may be written to."""
    if isinstance(value, np.ndarray):
        return np.array(value)
    if hasattr(value, "rows"):
        value.rows = np.array(value.rows)
    return value


def _added(left: Any, right: Any) -> Any:
    left += right
    return left
