"""Workers on a Ray cluster: an actor each, with its blocks and the rows of their users.

Item tables go to all workers through the object store, one copy for each node. What an actor holds is lost with it.
Then all actors end, new ones are started on the nodes that are left, and get the rows of the last epoch, which the
driver has (`BlockEngine`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Generic

import numpy as np

from truelike.cluster import Cluster, check_store, is_lost, raised_by_worker, writable
from truelike.core.progress import note
from truelike.data.blocks.blocks import Blocks
from truelike.data.blocks.tree import Node, combined, nodes_within, tree_sum
from truelike.engines.blocks.workers import A, Floats, Share, T, W, Workers, WorkersLostError, allocator
from truelike.errors import ClusterError, StorageError

START_SECONDS = 25.0  # for the actors to start
START_TRIES = 3  # after a loss
MOST_LOSSES = 30  # without an epoch that ends
COPIES = 6  # of an item table that are in an object store at the same time, about


class BlockActor(Generic[W]):
    """A worker in a process of its own. Methods of its class come by reference, as functions of a module do."""

    worker: W

    def __init__(self, directory: str, digest: str, make: Callable[[Share], W], threads: int) -> None:
        self.directory, self.digest, self.make, self.threads = directory, digest, make, threads
        self.seconds = 0.0

    def assign(self, first: int, stop: int, width: int) -> None:
        """Take some blocks, with rows of zeros."""
        blocks = Blocks(self.directory)
        if blocks.digest != self.digest:
            raise StorageError(
                f"{self.directory!r} is another block directory on a node of the cluster than on the machine that "
                "started the training. All machines must reach the same files."
            )
        rows = np.zeros((int(blocks.bounds[stop] - blocks.bounds[first]), width), dtype=np.float32)
        self.share = Share(blocks, range(first, stop), rows, self.threads)
        self.worker = self.make(self.share)

    def set_rows(self, number: int, rows: Floats) -> None:
        """Set the rows of the users of a block."""
        self.share.rows_of(number)[:] = rows

    def get_rows(self, number: int) -> Floats:
        """The rows of the users of a block."""
        return self.share.rows_of(number)

    def call(self, method: Callable[..., T], *arguments: Any) -> T:
        """Call a method of the worker."""
        return self._timed(lambda: method(self.worker, *map(writable, arguments)))

    def sums(self, method: Callable[..., T], nodes: list[Node], *arguments: Any) -> T | list[T]:
        """The sums over the blocks of some nodes of the tree."""
        given = tuple(map(writable, arguments))
        found = self._timed(
            lambda: [tree_sum(*node, lambda number: method(self.worker, number, *given)) for node in nodes]
        )
        return found if len(found) > 1 else found[0]

    def busy(self) -> float:
        """The seconds in which this worker has computed."""
        return self.seconds

    def _timed(self, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds += time.perf_counter() - started


class RayWorkers(Workers[W]):
    """Workers on a Ray cluster, all machines of which must reach the directory of the blocks.

    At the start they have the rows of `users`.
    """

    def __init__(self, make: Callable[[Share], W], blocks: Blocks, users: Floats, cluster: Cluster) -> None:
        self.make, self.blocks, self.cluster, self.width = make, blocks, cluster, users.shape[1]
        self.losses = 0
        self._aside: Floats | None = None
        self._actors: list[Any] = []
        self._ranges: list[range] = []
        self._connection = cluster.connected()
        self.ray = self._connection.__enter__()
        try:
            check_store(self.ray, COPIES * 4 * blocks.n_items * self.width)
            start = self._start
            while not self._started(start, users):  # a worker may be lost before the first epoch, too
                start = self.replace
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

    def _started(self, start: Callable[[Floats], None], users: Floats) -> bool:
        """Start workers; False if one of them was lost meanwhile."""
        try:
            start(users)
        except WorkersLostError:
            return False
        return True

    def _start(self, users: Floats) -> None:
        """Start as many actors as there is room for, and give each a contiguous range of blocks and their rows."""
        self._end_actors()
        self._start_actors()
        n, blocks = len(self._actors), len(self.blocks)
        self._ranges = [range(blocks * w // n, blocks * (w + 1) // n) for w in range(n)]
        pairs = zip(self._actors, self._ranges, strict=True)
        self._get([actor.assign.remote(own.start, own.stop, self.width) for actor, own in pairs])
        self.spread(users)

    def spread(self, users: Floats) -> None:
        """Give the actors their rows."""
        for actor, own in zip(self._actors, self._ranges, strict=True):
            for number in own:  # one block is in the object store at a time
                self._get([actor.set_rows.remote(number, users[self._rows_of(number)])])

    def _rows_of(self, number: int) -> slice:
        return slice(int(self.blocks.bounds[number]), int(self.blocks.bounds[number + 1]))

    def _start_actors(self) -> None:
        """Start actors; those that do not start in time are left out."""
        ray = self.ray
        n, threads = self.cluster.layout(ray)
        n = min(n, len(self.blocks))
        remote = ray.remote(num_cpus=threads, max_restarts=0, scheduling_strategy="SPREAD")(BlockActor)
        given = (str(self.blocks.directory), self.blocks.digest, self.make, threads)
        ready = {actor.busy.remote(): actor for actor in (remote.remote(*given) for _ in range(n))}
        started, _ = ray.wait(list(ready), num_returns=n, timeout=START_SECONDS)
        for call, actor in ready.items():
            if call in started and self._works(call):
                self._actors.append(actor)
            else:
                ray.kill(actor)
        if not self._actors:
            raise ClusterError(
                f"no worker of the cluster started within {START_SECONDS:.0f} s: {n} were asked for, with {threads} "
                f"CPUs each, and {ray.available_resources().get('CPU', 0):g} CPUs are free. Wait until others are "
                "done, or use fewer workers or threads. With a checkpoint, resume=True (--resume) continues."
            )
        if len(self._actors) < n:
            note(f"{len(self._actors)} of {n} workers of the cluster started")

    def _works(self, call: Any) -> bool:
        try:
            self._get([call])
        except WorkersLostError:
            return False
        return True

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

    def call(self, method: Callable[[W, *A], T], *arguments: *A) -> list[T]:
        """Call a method of each worker."""
        given = self._shared(arguments)
        return self._get([actor.call.remote(method, *given) for actor in self._actors])

    def sum(self, method: Callable[[W, int, *A], T], *arguments: *A) -> T:
        """The sum over all blocks; each worker adds what is its own."""
        given, n = self._shared(arguments), len(self.blocks)
        nodes = [nodes_within(0, n, own) for own in self._ranges]
        pairs = zip(self._actors, nodes, strict=True)
        calls = [actor.sums.options(num_returns=len(own)).remote(method, own, *given) for actor, own in pairs]
        flat = [call for own in calls for call in (own if isinstance(own, list) else [own])]
        found = zip((node for own in nodes for node in own), self._get(flat), strict=True)
        total: T = combined(0, n, {node: deepcopy(each) for node, each in found})  # arrays that can be written to
        return total

    def rotate(
        self, method: Callable[[W, int, int, Floats, *A], Floats], parts: list[Floats], *arguments: *A
    ) -> list[Floats]:
        """Train all parts on all blocks. A part goes from one worker to the next without passing here."""
        n, given = len(parts), self._shared(arguments)
        owner = {number: actor for actor, own in zip(self._actors, self._ranges, strict=True) for number in own}
        held: list[Any] = [self.ray.put(part) for part in parts]
        for step in range(n):
            for block in range(n):
                part = (block + step) % n
                held[part] = owner[block].call.remote(method, block, part, held[part], *given)
        return [np.array(part) for part in self._get(held)]

    def collect(self, users: Floats) -> None:
        """Copy the rows of all users into a table: first aside, so that the table stays whole if a worker is lost."""
        if self._aside is None:
            self._aside = allocator(self.blocks)(*users.shape)
        for actor, own in zip(self._actors, self._ranges, strict=True):
            for number in own:
                self._aside[self._rows_of(number)] = self._get([actor.get_rows.remote(number)])[0]
        users[:] = self._aside
        self.losses = 0

    def _shared(self, arguments: tuple[object, ...]) -> list[Any]:
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
