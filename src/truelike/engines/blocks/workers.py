"""Who has the blocks: one worker in this process, or many on a cluster.

A worker has some blocks and the rows of their users, which no other worker has (`Share`). An engine (`BlockEngine`)
has the item tables and asks the workers by a method of their class: all of them (`call`), for a sum over all blocks
(`sum`), or to train one part of the items after the other (`rotate`). What they return does not depend on how many
there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, final

import numpy as np
from numpy.typing import NDArray

from truelike.data.blocks.blocks import Blocks
from truelike.data.blocks.tree import tree_sum
from truelike.data.dataset import Dataset
from truelike.engines.engine import ArrayEngine
from truelike.engines.tables import Tables, aligned_zeros

if TYPE_CHECKING:
    from truelike.cluster import Cluster

Floats = NDArray[np.float32]
W = TypeVar("W")  # the class of the workers
T = TypeVar("T")
A = TypeVarTuple("A")


def allocator(train: Dataset | Blocks) -> Callable[[int, int], Floats]:
    """Where the users' table is: in memory, or for blocks that are not in memory, in a file."""
    return train.mapped if isinstance(train, Blocks) and not train.in_memory else aligned_zeros


@dataclass(frozen=True)
class Share:
    """What one worker has: the numbers of some blocks, the rows [U | P] of their users, and a number of threads."""

    blocks: Blocks
    numbers: range
    rows: Floats
    n_jobs: int | None

    def rows_of(self, number: int) -> Floats:
        """The rows of the users of a block."""
        first = self.blocks.bounds[self.numbers.start]
        return self.rows[self.blocks.bounds[number] - first : self.blocks.bounds[number + 1] - first]


class WorkersLostError(Exception):
    """A worker ended, or what it held was lost. An engine goes on from the last epoch; no caller sees it."""


class Workers(ABC, Generic[W]):
    """The workers of a training, of a class W."""

    @abstractmethod
    def call(self, method: Callable[[W, *A], T], *arguments: *A) -> list[T]:
        """Call a method of each worker; returns what they return, in the order of their blocks."""

    @abstractmethod
    def sum(self, method: Callable[[W, int, *A], T], *arguments: *A) -> T:
        """The sum of what a method returns for each block, by the tree over all blocks. It may be written to."""

    @abstractmethod
    def rotate(
        self, method: Callable[[W, int, int, Floats, *A], Floats], parts: list[Floats], *arguments: *A
    ) -> list[Floats]:
        """Let each block in turn train each part of the items; returns the trained parts.

        There are as many parts as blocks. In step s block b has part (b + s) modulo their number, so that no two
        blocks ever train the same part. `method` gets the number of the block, that of the part, the part and the
        other arguments, and returns the part.
        """

    @abstractmethod
    def collect(self, users: Floats) -> None:
        """Copy the rows of all users into a table, if they are not there."""

    @abstractmethod
    def spread(self, users: Floats) -> None:
        """Give the workers their rows of a table, if they do not have them."""

    @abstractmethod
    def replace(self, users: Floats) -> None:
        """Start new workers in place of those that are there, after one was lost, and give them their rows."""

    @abstractmethod
    def close(self) -> None:
        """Let all workers end."""


class LocalWorkers(Workers[W]):
    """One worker in this process. Its rows are those of the table itself, and it is never lost."""

    def __init__(self, make: Callable[[Share], W], blocks: Blocks, users: Floats, n_jobs: int | None) -> None:
        self.n_blocks = len(blocks)
        self.worker = make(Share(blocks, range(len(blocks)), users, n_jobs))

    def call(self, method: Callable[[W, *A], T], *arguments: *A) -> list[T]:
        """Call a method of the worker."""
        return [method(self.worker, *arguments)]

    def sum(self, method: Callable[[W, int, *A], T], *arguments: *A) -> T:
        """The sum over all blocks, one of them at a time."""
        return tree_sum(0, self.n_blocks, lambda number: method(self.worker, number, *arguments))

    def rotate(
        self, method: Callable[[W, int, int, Floats, *A], Floats], parts: list[Floats], *arguments: *A
    ) -> list[Floats]:
        """Train all parts on all blocks."""
        n = len(parts)
        for step in range(n):
            for block in range(n):
                part = (block + step) % n
                parts[part] = method(self.worker, block, part, parts[part], *arguments)
        return parts

    def collect(self, users: Floats) -> None:
        """The rows are in the table already."""

    def spread(self, users: Floats) -> None:
        """The rows are in the table already."""

    def replace(self, users: Floats) -> None:
        """No worker is ever lost."""

    def close(self) -> None:
        """There is nothing to end."""


class BlockEngine(ArrayEngine, ABC, Generic[W]):
    """An engine whose users' rows are with workers, and whose item tables are here.

    After each epoch the rows are copied to the users' table, if they are not there. So a lost worker costs what was
    done since then: the epoch is run again from these tables, by the workers that are left, with the same result.

    `make` returns a worker, with what all workers of the training have in common. They run in this process, or on a
    `cluster`.
    """

    def __init__(
        self,
        train: Blocks,
        tables: Tables,
        make: Callable[[Share], W],
        *,
        cluster: Cluster | None,
        n_jobs: int | None,
    ) -> None:
        self.train, self.tables, self.n_jobs = train, tables, n_jobs
        self.workers: Workers[W]
        if cluster is None:
            self.workers = LocalWorkers(make, train, tables.users, n_jobs)
        else:
            from truelike.engines.blocks.ray_workers import RayWorkers

            self.workers = RayWorkers(make, train, tables.users, cluster)

    @abstractmethod
    def run_epoch(self, number: int, progress: Callable[[int], None] | None) -> None:
        """Run an epoch."""

    @final
    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Run an epoch; if a worker is lost, again by those that are left, or new ones, with the rows before it."""
        before, is_lost = self.tables.items.copy(), False
        while True:
            try:
                if is_lost:
                    self.tables.items[:] = before
                    self.workers.replace(self.tables.users)
                self.run_epoch(number, progress)
                return self.workers.collect(self.tables.users)
            except WorkersLostError:
                is_lost = True

    @final
    def close(self) -> None:
        """Let the workers end."""
        self.workers.close()

    @final
    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        return dict(self.tables.arrays())

    @final
    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        super().restore(arrays)
        self.workers.spread(self.tables.users)
