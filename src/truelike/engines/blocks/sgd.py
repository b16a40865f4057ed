"""Mini-batch SGD on blocks, stratified: a block of users trains one part of the items at a time.

An epoch has as many steps as blocks. In each, every block trains on its positives in another part, with negatives of
the same part, and then passes the part on. So no two blocks ever change the same row, and after all steps every
positive was trained on once. The parts are new in every epoch (`partition`).

A block's batch is smaller than the batch of the plain engine by the number of blocks, which train at the same time. So
a row is updated as often, and shrinks as much, as in the plain engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.cluster import Cluster
from truelike.core import randomness
from truelike.data.blocks.blocks import Blocks
from truelike.engines.blocks.partition import corrected_weights, partition
from truelike.engines.blocks.workers import BlockEngine, Floats, Share
from truelike.engines.sgd.engine import L2Factors, SampledEngine, l2_factors, l2_share
from truelike.engines.sgd.priority import compiled_priority
from truelike.engines.sgd.samples import LOSS_POSITIVES, Entries, Samples, SGDSettings, mean_loss
from truelike.engines.tables import Tables
from truelike.negatives import Negatives, alias_table, check_has_negatives
from truelike.objectives import Objective

SMALLEST_BATCH = 1_000  # positives of a block's batch, unless batch_size is smaller


@dataclass
class _Position:
    """Where a block is in an epoch: the batches that are done, that of the last update of each user, and settings."""

    batches: int
    last_updated: NDArray[np.int32]
    settings: SGDSettings
    factors: L2Factors


class _PartNegatives:
    """A sampler of negatives with other weights, those of a part of the items, as the engine needs it."""

    def __init__(self, weights: NDArray[np.float64], negatives: Negatives) -> None:
        self.draws, self.priority = negatives.draws, negatives.priority
        self._tables = alias_table(weights / weights.sum())

    def shares(self, _: Any) -> NDArray[np.float64]:
        """The probability of each item of the part."""
        return self._tables[2]

    def tables(self, _: Any) -> Any:
        """The alias table."""
        return self._tables


@dataclass
class StratifiedWorker:
    """Trains the rows of the users of some blocks, and parts of the items. `begin` comes before each epoch."""

    share: Share
    objective: type[Objective]
    negatives: Negatives
    settings: SGDSettings
    seed: int
    factors: int
    flip_factors: int

    def history_sums(self, number: int) -> NDArray[np.float64]:
        """For each item, the positives of all users of a block who have it."""
        block = self.share.blocks.block(number)
        counts = np.diff(block.indptr)
        sums = np.bincount(block.indices, weights=np.repeat(counts, counts), minlength=block.n_items)
        return sums.astype(np.float64)

    def begin(self, epoch: int, counts: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
        """Begin an epoch, given the positives of each item and its weight as a negative.

        An epoch that was not ended is forgotten.
        """
        self._parts = partition(counts, weights, len(self.share.blocks), self.seed, epoch)
        self._counts, self._weights = np.array(counts), np.array(weights)
        self._positions: dict[int, _Position] = {}
        self._negatives: dict[int, _PartNegatives] = {}

    def part_negatives(self, part: int) -> _PartNegatives:
        """The sampler of a part."""
        if part not in self._negatives:
            weights = self._weights[self._parts.members[part]]
            self._negatives[part] = _PartNegatives(weights, self.negatives)
        return self._negatives[part]

    def train(self, number: int, part: int, items: Floats, epoch: int) -> Floats:
        """Train a block's users and a part of the items on the interactions between them; returns the part."""
        stratum = self._stratum(number, part)
        tables = Tables(self.share.rows_of(number), np.array(items), self.factors, self.flip_factors)
        position = self._position(number, epoch)
        settings, factors = position.settings, position.factors
        if stratum.n_interactions:
            seed = randomness.key(self.seed, "stratum", number, part)
            negatives: Any = self.part_negatives(part)
            engine = SampledEngine(
                stratum, tables, self.objective, negatives, settings, seed=seed, n_jobs=self.share.n_jobs
            )
            engine.user_last_updated = position.last_updated
            engine.item_last_updated[:] = position.batches
            engine.train_batches(epoch, position.batches, factors)
            position.batches += engine.n_batches
            factors.apply(tables.items, engine.item_last_updated, tables.width, position.batches)
        if part == (number - 1) % len(self.share.blocks):  # the last step of the epoch
            factors.apply(tables.users, position.last_updated, tables.width, position.batches)
        return tables.items

    def _stratum(self, number: int, part: int) -> Entries:
        """What the engine needs of a Dataset: what is between a block's users and a part's items."""
        from truelike.engines.blocks.kernels import part_of_block

        parts, block = self._parts, self.share.blocks.block(number)
        members = parts.members[part]
        indptr, places = part_of_block(block.indptr, block.indices, parts.part, parts.place, part, len(members))
        return Entries(indptr, places, self._counts[members])

    def _position(self, number: int, epoch: int) -> _Position:
        """Where a block is. All its batches together have the L2 of all batches of the plain engine."""
        if number not in self._positions:
            n, n_blocks, block = int(self._counts.sum()), len(self.share.blocks), self.share.blocks.block(number)
            batch_size = block_batch(self.settings.batch_size, n_blocks)
            settings = replace(self.settings, batch_size=batch_size)
            entries = np.bincount(self._parts.part[block.indices], minlength=n_blocks)
            n_batches = int(np.sum(-(-entries // batch_size)))
            plain = -(-n // self.settings.batch_size) * l2_share(self.settings, n)
            factors = l2_factors(settings, epoch, plain / max(1, n_batches), n_batches)
            self._positions[number] = _Position(0, np.zeros(block.n_users, dtype=np.int32), settings, factors)
        return self._positions[number]


def block_batch(batch_size: int, n_blocks: int) -> int:
    """The positives in a batch of one block.

    >>> block_batch(8_000, 4), block_batch(8_000, 64), block_batch(500, 4)
    (2000, 1000, 500)
    """
    return max(batch_size // n_blocks, min(batch_size, SMALLEST_BATCH))


class StratifiedEngine(BlockEngine[StratifiedWorker]):
    """Stratified mini-batch SGD on blocks. The objective, negatives, settings and seed are as in `SampledEngine`."""

    def __init__(
        self,
        train: Blocks,
        tables: Tables,
        objective: type[Objective],
        negatives: Negatives,
        settings: SGDSettings,
        *,
        seed: int,
        cluster: Cluster | None,
        n_jobs: int | None,
    ) -> None:
        check_has_negatives(train)
        compiled_priority(negatives)  # an error is raised here, not in a worker
        make = partial(
            StratifiedWorker,
            objective=objective,
            negatives=negatives,
            settings=settings,
            seed=seed,
            factors=tables.factors,
            flip_factors=tables.flip_factors,
        )
        super().__init__(train, tables, make, cluster=cluster, n_jobs=n_jobs)
        self.objective, self.negatives, self.settings, self.seed = objective, negatives, settings, seed

    def run_epoch(self, number: int, progress: Callable[[int], None] | None) -> None:
        """Train each part of the items on each block."""
        counts, weights = self._positives
        self.workers.call(StratifiedWorker.begin, number, counts, weights)
        members = partition(counts, weights, len(self.train), self.seed, number).members
        parts = [self.tables.items[each] for each in members]
        for items, part in zip(members, self.workers.rotate(StratifiedWorker.train, parts, number), strict=True):
            self.tables.items[items] = part
        if progress is not None:
            progress(self.train.n_interactions)

    @cached_property
    def _positives(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """How many positives each item has, and its weight as a negative."""
        popularity = self.train.popularity()
        sums = self.workers.sum(StratifiedWorker.history_sums)
        return popularity, corrected_weights(self.negatives.shares(popularity), popularity, sums, len(self.train))

    def loss(self) -> float:
        """Return minus the mean likelihood of a fixed sample of positives and their negatives."""
        users, items = self._loss_samples
        tables = self.tables

        def scores(left: Any, right: Any) -> NDArray[np.float64]:
            return np.asarray(np.einsum("nk,nmk->nm", left[users], right[items]), dtype=np.float64)

        flips = scores(tables.user_flips, tables.item_flips)
        return mean_loss(self.objective, scores(tables.user_factors, tables.item_factors), flips)

    @cached_property
    def _loss_samples(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Users, and a row of their positive and its negatives, spread evenly over the users."""
        n = self.train.n_users
        users = np.unique(np.linspace(0, n - 1, min(n, LOSS_POSITIVES)).astype(np.int32))
        matrix, rows = self.train.rows(users)
        sample = Entries(matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), self.train.popularity())
        starts, counts = matrix.indptr[rows], np.diff(matrix.indptr)[rows]
        own = counts > 0
        users, entries = users[own], (starts + counts // 2)[own].astype(np.int32)
        samples = Samples(sample, self.negatives, self.settings, self.seed)
        key = np.uint64(randomness.key(self.seed, "loss"))
        drawn = samples.draw_first(key, entries)
        return users, np.column_stack([matrix.indices[entries], drawn])
