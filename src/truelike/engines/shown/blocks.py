"""Shown pairs on blocks, stratified as the sampled engine is: a block of users trains one part of the items at a time.

See `training.blocks.sgd`: no two blocks ever change the same row, and after all steps of an epoch every pair was
trained on once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.data.blocks.blocks import Blocks
from truelike.engines.blocks.partition import partition
from truelike.engines.blocks.sgd import block_batch
from truelike.engines.blocks.workers import BlockEngine, BlockWorker, Workers
from truelike.engines.sgd.batches import L2Factors
from truelike.engines.shown.engine import (
    LOSS_PAIRS,
    ShownEngine,
    ShownSettings,
    loss_of_pairs,
    shrink_users,
    some_pairs,
)
from truelike.engines.tables import Tables
from truelike.exposure.shown_blocks import ShownBlocks, ShownSource
from truelike.exposure.shown_pairs import ShownPairs

Floats = NDArray[np.float32]


@dataclass
class _Position:
    """Where a block is in an epoch: the batches that are done, that of the last update of each user, and settings."""

    batches: int
    last_updated: NDArray[np.int32]
    settings: ShownSettings
    factors: L2Factors


class ShownWorker(BlockWorker):
    """Trains the rows of the users of some blocks, and parts of the items. `begin` comes before each epoch."""

    source: ShownBlocks | ShownSource
    sgd: ShownSettings
    seed: int

    @cached_property
    def shown(self) -> ShownBlocks:
        """The shown pairs of the blocks. A worker in another process opens the impressions itself."""
        return self.source.of(self.blocks)

    def shown_counts(self, number: int) -> NDArray[np.float64]:
        """What is counted of the shown pairs of a block."""
        return self.shown.count(number)

    def loss_pairs(self) -> list[NDArray[Any]]:
        """Users, items, labels and flip logits of some shown pairs of each block."""
        each = -(-LOSS_PAIRS // len(self.blocks))
        found = (some_pairs(self.shown.block(n), each, int(self.blocks.bounds[n])) for n in self.numbers)
        return [np.array(part, dtype=np.float64) for part in found]

    def begin(self, epoch: int, counts: NDArray[np.int64], offset: float) -> None:
        """Begin an epoch; one that was not ended is forgotten.

        Parameters
        ----------
        epoch
            Its number.
        counts
            The number of pairs of each item.
        offset
            What is added to the scores.
        """
        self._parts = partition(counts, counts.astype(np.float64), len(self.blocks), self.seed, epoch)
        self._n_pairs, self._offset = int(counts.sum()), offset
        self._positions: dict[int, _Position] = {}

    def train(self, number: int, part: int, items: Floats, epoch: int) -> Floats:
        """Train a block's users and a part of the items on the pairs between them; returns the part."""
        pairs = self._stratum(number, part)
        tables = Tables(self.rows_of(number), np.array(items), self.factors, self.flip_factors)
        if number not in self._positions:
            self._positions[number] = self._position(number, epoch)
        position = self._positions[number]
        if pairs.n_pairs:
            seed = randomness.key(self.seed, "stratum", number, part)
            engine = ShownEngine(
                pairs, tables, position.settings, offset=self._offset, seed=seed, n_jobs=self.n_jobs
            )
            engine.batches.user_last_updated = position.last_updated
            engine.batches.item_last_updated[:] = position.batches
            engine.train_batches(epoch, position.batches, position.factors)
            position.batches += engine.batches.n_batches
            last_updated = engine.batches.item_last_updated
            position.factors.apply(tables.items, last_updated, tables.width, position.batches)
        if part == (number - 1) % len(self.blocks):  # the last step of the epoch
            shrink_users(position.factors, tables.users, position.last_updated, tables.width, position.batches)
        return tables.items

    def _stratum(self, number: int, part: int) -> ShownPairs:
        """The pairs between a block's users and a part's items."""
        from truelike.engines.shown.kernels import pairs_of_part

        pairs, parts = self.shown.block(number), self._parts
        csr = (pairs.indptr, pairs.indices, pairs.taken, pairs.logits)
        indptr, places, taken, logits = pairs_of_part(*csr, parts.part, parts.place, part)
        return ShownPairs(indptr, places, taken, logits, pairs.logit, len(parts.members[part]))

    def _position(self, number: int, epoch: int) -> _Position:
        """The beginning of an epoch. All batches of a block together have the L2 of all batches of the plain engine."""
        n = self._n_pairs
        settings = replace(self.sgd, batch_size=block_batch(self.sgd.batch_size, len(self.blocks)))
        entries = np.bincount(self._parts.part[self.shown.block(number).indices], minlength=len(self.blocks))
        n_batches = int(np.sum(-(-entries // settings.batch_size)))
        plain = -(-n // self.sgd.batch_size) * min(1.0, self.sgd.batch_size / n)
        factors = settings.factors(epoch, plain / max(1, n_batches), n_batches)
        n_users = int(self.blocks.bounds[number + 1] - self.blocks.bounds[number])
        return _Position(0, np.zeros(n_users, dtype=np.int32), settings, factors)


class StratifiedShownEngine(BlockEngine):
    """Stratified mini-batch SGD on the shown pairs of blocks.

    Parameters
    ----------
    train
        The blocks.
    shown
        Their shown pairs.
    tables
        The tables, with item biases in the rows, which are trained in place.
    workers
        Who has the blocks.
    seed
        Determines the parts of the items and the order of the pairs.
    """

    def __init__(self, train: Blocks, shown: ShownBlocks, tables: Tables, workers: Workers, *, seed: int) -> None:
        super().__init__(train, tables, workers)
        self.shown, self.seed = shown, seed
        self._loss_pairs: NDArray[np.float64] | None = None

    def run_epoch(self, number: int, progress: Callable[[int], None] | None) -> None:
        """Train each part of the items on each block."""
        if not self.shown.is_counted:
            self.shown.take_counts(self.workers.sum("shown_counts"))
        counts = self.shown.pairs_of_item()
        self.workers.call("begin", number, counts, self.shown.offset())
        members = partition(counts, counts.astype(np.float64), len(self.train), self.seed, number).members
        trained = self.workers.rotate("train", [self.tables.items[each] for each in members], number)
        for items, part in zip(members, trained, strict=True):
            self.tables.items[items] = part
        if progress is not None:
            progress(self.train.n_interactions)

    def loss(self) -> float:
        """Return minus the mean log likelihood of some shown pairs of each block."""
        if self._loss_pairs is None:
            drawn = [each for worker in self.workers.call("loss_pairs") for each in worker]
            self._loss_pairs = np.concatenate(drawn, axis=1)
        users, items, taken, logits = self._loss_pairs
        pairs = (users.astype(np.int64), items.astype(np.int64), taken == 1, logits)
        return loss_of_pairs(self.tables, self.shown.offset(), *pairs)
