"""Who has the blocks: one worker in this process, or many on a cluster.

A worker has some blocks and the rows of their users, which no other worker has. An engine (`BlockEngine`) has the item
tables and asks the workers: all of them (`call`), for a sum over all blocks (`sum`), or to train one part of the items
after the other (`rotate`). What they return does not depend on how many there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from truelike.data.blocks.blocks import Blocks
from truelike.data.blocks.tree import tree_sum
from truelike.data.dataset import Dataset
from truelike.engines.engine import ArrayEngine
from truelike.engines.tables import Tables, aligned_zeros

Floats = NDArray[np.float32]


def allocator(train: Dataset | Blocks) -> Callable[[int, int], Floats]:
    """Where the users' table is: in memory, or for blocks that are not in memory, in a file."""
    return train.mapped_zeros if isinstance(train, Blocks) and not train.in_memory else aligned_zeros


class BlockWorker:
    """Has some blocks, and the rows of their users.

    Parameters
    ----------
    blocks
        All blocks.
    numbers
        Numbers of the blocks that are this worker's.
    rows
        The rows [U | P] of their users.
    factors, flip_factors
        The numbers of columns without the padding.
    n_jobs
        Number of threads.
    settings
        Attributes that a kind of worker needs.
    """

    def __init__(
        self,
        blocks: Blocks,
        numbers: range,
        rows: Floats,
        factors: int,
        flip_factors: int,
        n_jobs: int | None,
        settings: Mapping[str, Any],
    ) -> None:
        self.blocks, self.numbers, self.rows = blocks, numbers, rows
        self.factors, self.flip_factors, self.n_jobs = factors, flip_factors, n_jobs
        self.__dict__.update(settings)

    @final
    def rows_of(self, number: int) -> Floats:
        """The rows of the users of a block."""
        first = self.blocks.bounds[self.numbers.start]
        return self.rows[self.blocks.bounds[number] - first : self.blocks.bounds[number + 1] - first]


@dataclass(frozen=True)
class WorkerKind:
    """What all workers of a training have in common: their class, the columns of the tables, and settings."""

    worker: type[BlockWorker]
    factors: int
    flip_factors: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def make(self, blocks: Blocks, numbers: range, rows: Floats, n_jobs: int | None) -> BlockWorker:
        """A worker with some of the blocks and the rows of their users."""
        return self.worker(blocks, numbers, rows, self.factors, self.flip_factors, n_jobs, self.settings)


class WorkersLostError(Exception):
    """A worker ended, or what it held was lost. An engine goes on from the last epoch; no caller sees it."""


class Workers(ABC):
    """The workers of a training."""

    @abstractmethod
    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of each worker; returns what they return, in the order of their blocks."""

    @abstractmethod
    def sum(self, method: str, *arguments: Any) -> Any:
        """The sum of what a method returns for each block, by the tree over all blocks. It may be written to."""

    @abstractmethod
    def rotate(self, method: str, parts: list[Floats], *arguments: Any) -> list[Floats]:
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


class LocalWorkers(Workers):
    """One worker in this process. Its rows are those of the table itself."""

    def __init__(self, kind: WorkerKind, blocks: Blocks, users: Floats, n_jobs: int | None) -> None:
        self.blocks = blocks
        self.worker = kind.make(blocks, range(len(blocks)), users, n_jobs)

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of the worker."""
        return [getattr(self.worker, method)(*arguments)]

    def sum(self, method: str, *arguments: Any) -> Any:
        """The sum over all blocks, one of them at a time."""
        return tree_sum(0, len(self.blocks), lambda number: getattr(self.worker, method)(number, *arguments))

    def rotate(self, method: str, parts: list[Floats], *arguments: Any) -> list[Floats]:
        """Train all parts on all blocks."""
        n = len(parts)
        for step in range(n):
            for block in range(n):
                part = (block + step) % n
                parts[part] = getattr(self.worker, method)(block, part, parts[part], *arguments)
        return parts

    def collect(self, users: Floats) -> None:
        """The rows are in the table already."""

    def spread(self, users: Floats) -> None:
        """The rows are in the table already."""

    def replace(self, users: Floats) -> None:
        """No worker of this process is ever lost."""

    def close(self) -> None:
        """There is nothing to end."""


class BlockEngine(ArrayEngine, ABC):
    """An engine whose users' rows are with workers, and whose item tables are here.

    After each epoch the rows are copied to the users' table, if they are not there. So a lost worker costs what was
    done since then: the epoch is run again from these tables, by the workers that are left, with the same result.
    """

    def __init__(self, train: Blocks, tables: Tables, workers: Workers) -> None:
        self.train, self.tables, self.workers = train, tables, workers

    @abstractmethod
    def run_epoch(self, number: int, progress: Callable[[int], None] | None) -> None:
        """Run an epoch."""

    @final
    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Run an epoch, again if a worker is lost."""
        before = self.tables.items.copy()
        while not self._ran(number, progress):
            self.tables.items[:] = before
            self._recover()

    def _ran(self, number: int, progress: Callable[[int], None] | None) -> bool:
        """Run an epoch; False if a worker is lost."""
        try:
            self.run_epoch(number, progress)
            self.workers.collect(self.tables.users)
        except WorkersLostError:
            return False
        return True

    def _recover(self) -> None:
        """Give the workers that are left, or new ones, the rows of the last epoch."""
        while True:
            try:
                return self.workers.replace(self.tables.users)
            except WorkersLostError:
                continue

    def close(self) -> None:
        """Let the workers end."""
        self.workers.close()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        return dict(self.tables.arrays())

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        super().restore(arrays)
        self.workers.spread(self.tables.users)
