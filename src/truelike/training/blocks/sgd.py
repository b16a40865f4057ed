"""Mini-batch SGD on blocks, stratified: a block of users trains one part of the items at a time.

An epoch has as many steps as blocks. In each, every block trains on its positives in another part, with negatives of
the same part, and then passes the part on. So no two blocks ever change the same row, and after all steps every
positive was trained on once. The parts are new in every epoch (`partition`).

A block's batch is smaller than the batch of the plain engine by the number of blocks, which train at the same time. So
a row is updated as often, and shrinks as much, as in the plain engine.

With impressions and a pointwise objective, a block trains on its shown pairs in the part, taken or not, and none are
drawn. With a pairwise one, a share of the negatives is drawn from what was shown in the part and not taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike import randomness
from truelike.data.blocks.blocks import Blocks
from truelike.negatives import Negatives, alias_table, check_has_negatives
from truelike.objectives import Objective
from truelike.training.blocks.partition import corrected_weights, partition
from truelike.training.blocks.shown import ShownBlocks, ShownSource
from truelike.training.blocks.workers import BlockEngine, BlockWorker, Workers
from truelike.training.exposure.rates import ExposureRates
from truelike.training.sgd.engine import L2Factors, SampledEngine, l2_factors, l2_share
from truelike.training.sgd.exposure import KnownExposure
from truelike.training.sgd.samples import (
    LOSS_POSITIVES,
    Entries,
    Samples,
    SGDSettings,
    labelled_loss,
    mean_loss,
)
from truelike.training.tables import Tables

Floats = NDArray[np.float32]
SMALLEST_BATCH = 1_000  # positives of a block's batch, unless batch_size is smaller


@dataclass(frozen=True)
class BlockExposure:
    """What is known of exposure, for workers.

    Attributes
    ----------
    shown
        The impressions, or for workers in other processes, where they are; None: there are none.
    labelled
        Whether shown pairs are trained on, taken or not, instead of positives and drawn negatives.
    skipped_share
        Of the drawn negatives, the share of those that were shown and not taken.
    rates
        Estimated exposure; None: none.
    """

    shown: ShownBlocks | ShownSource | None = None
    labelled: bool = False
    skipped_share: float = 0.0
    rates: ExposureRates | None = None

    def sent(self) -> BlockExposure:
        """Return the same for workers in other processes, which open the impressions themselves."""
        return replace(self, shown=self.shown.source) if isinstance(self.shown, ShownBlocks) else self


@dataclass
class _Position:
    """Where a block is in an epoch: the batches that are done, that of the last update of each user, and settings."""

    batches: int
    last_updated: NDArray[np.int32]
    settings: SGDSettings
    factors: L2Factors


class _PartNegatives:
    """The sampling distribution of negatives within a part of the items, as the engine needs it."""

    def __init__(self, weights: NDArray[np.float64], candidates: int) -> None:
        self.candidates = candidates
        self._tables = alias_table(weights / weights.sum())

    def weights(self, _: Any) -> NDArray[np.float64]:
        """The probability of each item of the part."""
        return self._tables[2]

    def tables(self, _: Any) -> Any:
        """The alias table."""
        return self._tables


class StratifiedWorker(BlockWorker):
    """Trains the rows of the users of some blocks, and parts of the items. `begin` comes before each epoch."""

    objective: type[Objective]
    negatives: Negatives
    sgd: SGDSettings
    seed: int
    exposure: BlockExposure = BlockExposure()

    @cached_property
    def shown(self) -> ShownBlocks:
        """The impressions of the blocks."""
        given = self.exposure.shown
        assert given is not None
        return given.of(self.blocks) if isinstance(given, ShownSource) else given

    def shown_counts(self, number: int) -> NDArray[np.float64]:
        """What is counted of the shown pairs of a block."""
        return self.shown.count(number)

    def loss_pairs(self) -> list[NDArray[Any]]:
        """Users, items, labels and flip logits of some shown pairs of each block."""
        each = -(-LOSS_POSITIVES // len(self.blocks))
        found = []
        for number in self.numbers:
            pairs = self.shown.block(number)
            n = pairs.n_pairs
            at = np.unique(np.linspace(0, n - 1, min(n, each)).astype(np.int64))
            users = self.blocks.bounds[number] + np.searchsorted(pairs.indptr, at, side="right") - 1
            logits = pairs.logits[at] if len(pairs.logits) else np.full(len(at), pairs.logit)
            found.append(np.array([users, pairs.indices[at], pairs.taken[at], logits], dtype=np.float64))
        return found

    def history_sums(self, number: int) -> NDArray[np.float64]:
        """For each item, the positives of all users of a block who have it."""
        block = self.blocks.block(number)
        counts = np.diff(block.indptr)
        sums = np.bincount(block.indices, weights=np.repeat(counts, counts), minlength=block.n_items)
        return sums.astype(np.float64)

    def begin(self, epoch: int, counts: NDArray[np.int64], weights: NDArray[np.float64], offset: float) -> None:
        """Begin an epoch; one that was not ended is forgotten.

        Parameters
        ----------
        epoch
            Its number.
        counts
            The number of entries of each item that are trained on: positives or shown pairs.
        weights
            The weights of items as negatives.
        offset
            What is added to the scores of shown pairs.
        """
        self._parts = partition(counts, weights, len(self.blocks), self.seed, epoch)
        self._counts, self._weights, self._offset = np.array(counts), np.array(weights), offset
        self._positions: dict[int, _Position] = {}
        self._negatives: dict[int, _PartNegatives] = {}

    def part_negatives(self, part: int) -> _PartNegatives:
        """The sampling distribution of a part."""
        if part not in self._negatives:
            members = self._parts.members[part]
            weights = np.ones(len(members)) if self.exposure.labelled else self._weights[members]
            self._negatives[part] = _PartNegatives(weights, self.negatives.candidates)
        return self._negatives[part]

    def train(self, number: int, part: int, items: Floats, epoch: int) -> Floats:
        """Train a block's users and a part of the items on the interactions between them; returns the part."""
        stratum, exposure = self._stratum(number, part)
        tables = Tables(self.rows_of(number), np.array(items), self.factors, self.flip_factors)
        position = self._position(number, epoch)
        settings, factors = position.settings, position.factors
        if stratum.n_interactions:
            seed = randomness.key(self.seed, "stratum", number, part)
            negatives: Any = self.part_negatives(part)
            engine = SampledEngine(
                stratum,
                tables,
                self.objective,
                negatives,
                settings,
                seed=seed,
                n_jobs=self.n_jobs,
                exposure=exposure,
            )
            engine.user_last_updated = position.last_updated
            engine.item_last_updated[:] = position.batches
            engine.train_batches(epoch, position.batches, factors)
            position.batches += engine.n_batches
            factors.apply(tables.items, engine.item_last_updated, tables.width, position.batches)
        if part == (number - 1) % len(self.blocks):  # the last step of the epoch
            of_users = factors.of_users(biased=self.exposure.labelled)
            of_users.apply(tables.users, position.last_updated, tables.width, position.batches)
        return tables.items

    def _stratum(self, number: int, part: int) -> tuple[Entries, KnownExposure]:
        """What the engine needs of a Dataset, and of exposure: what is between a block's users and a part's items."""
        from truelike.training.blocks.kernels import pairs_of_part, part_of_block

        parts, given = self._parts, self.exposure
        members = parts.members[part]
        exposure = KnownExposure()
        if given.shown is not None:
            pairs = self.shown.block(number)
            indptr, places, taken, logits = pairs_of_part(
                pairs.indptr, pairs.indices, pairs.taken, pairs.logits, 2 if given.labelled else 0,
                parts.part, parts.place, part,
            )  # fmt: skip
            if given.labelled:
                exposure = KnownExposure(taken=taken, logits=logits, logit=pairs.logit, offset=self._offset)
                return Entries.of(indptr, places, self._counts[members]), exposure
            exposure = KnownExposure(
                skipped_indptr=indptr, skipped_items=places, skipped_share=given.skipped_share
            )
        elif given.rates is not None:
            users = slice(int(self.blocks.bounds[number]), int(self.blocks.bounds[number + 1]))
            own = np.array(
                given.rates.user[users]
            )  # what Ray sends cannot be written to, and is another type to numba
            rates = replace(given.rates, user=own, item=given.rates.item[members])
            exposure = KnownExposure(rates=rates)
        block = self.blocks.block(number)
        indptr, places = part_of_block(block.indptr, block.indices, parts.part, parts.place, part, len(members))
        return Entries.of(indptr, places, self._counts[members]), exposure

    def _factors(self, number: int, epoch: int) -> tuple[SGDSettings, L2Factors]:
        """The settings of a block's batches, and the factors by which its rows shrink in an epoch.

        All batches of the block together have the L2 of all batches of the plain engine.
        """
        trained_on = self.shown if self.exposure.labelled else self.blocks
        n = int(self._counts.sum())
        settings = replace(self.sgd, batch_size=block_batch(self.sgd.batch_size, len(self.blocks)))
        entries = np.bincount(self._parts.part[trained_on.block(number).indices], minlength=len(self.blocks))
        n_batches = int(np.sum(-(-entries // settings.batch_size)))
        plain = -(-n // self.sgd.batch_size) * l2_share(self.sgd, n)
        return settings, l2_factors(settings, epoch, plain / max(1, n_batches), n_batches)

    def _position(self, number: int, epoch: int) -> _Position:
        if number not in self._positions:
            n = int(self.blocks.bounds[number + 1] - self.blocks.bounds[number])
            self._positions[number] = _Position(0, np.zeros(n, dtype=np.int32), *self._factors(number, epoch))
        return self._positions[number]


def block_batch(batch_size: int, n_blocks: int) -> int:
    """The positives in a batch of one block.

    >>> block_batch(8_000, 4), block_batch(8_000, 64), block_batch(500, 4)
    (2000, 1000, 500)
    """
    return max(batch_size // n_blocks, min(batch_size, SMALLEST_BATCH))


class StratifiedEngine(BlockEngine):
    """Stratified mini-batch SGD on blocks.

    Parameters
    ----------
    train
        The blocks.
    tables
        The factor tables, which are trained in place.
    workers
        Who has the blocks.
    objective, negatives, settings, seed
        As in `SampledEngine`.
    exposure
        What is known of exposure; None: nothing.
    """

    def __init__(
        self,
        train: Blocks,
        tables: Tables,
        workers: Workers,
        objective: type[Objective],
        negatives: Negatives,
        settings: SGDSettings,
        *,
        seed: int,
        exposure: BlockExposure | None = None,
    ) -> None:
        super().__init__(train, tables, workers)
        self.exposure = exposure or BlockExposure()
        if not self.exposure.labelled:
            check_has_negatives(train)
        self.objective, self.negatives, self.settings, self.seed = objective, negatives, settings, seed
        self._loss_samples: Any = None
        self._loss_pairs: Any = None
        self._counts: NDArray[np.int64] | None = None
        self._weights: NDArray[np.float64] | None = None
        self._offset = 0.0

    def run_epoch(self, number: int, progress: Callable[[int], None] | None) -> None:
        """Train each part of the items on each block."""
        if self._counts is None or self._weights is None:
            self._counts, self._weights = self._prepared()
        self.workers.call("begin", number, self._counts, self._weights, self._offset)
        members = partition(self._counts, self._weights, len(self.train), self.seed, number).members
        trained = self.workers.rotate("train", [self.tables.items[each] for each in members], number)
        for items, part in zip(members, trained, strict=True):
            self.tables.items[items] = part
        if progress is not None:
            progress(self.train.n_interactions)

    def _prepared(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """How many entries each item has, and its weight as a negative."""
        shown = self.exposure.shown
        if shown is not None:
            assert isinstance(shown, ShownBlocks)
            if not shown.is_counted:
                shown.take_counts(self.workers.sum("shown_counts"))
            if self.exposure.labelled:
                self._offset = shown.offset()
                drawn = [each for worker in self.workers.call("loss_pairs") for each in worker]
                self._loss_pairs = np.concatenate(drawn, axis=1)
                counts = shown.counts.pairs_of_item
                return counts, counts.astype(np.float64)  # parts are balanced by what is trained on
        popularity = self.train.popularity()
        declared, sums = self.negatives.weights(popularity), self.workers.sum("history_sums")
        return popularity, corrected_weights(declared, popularity, sums, len(self.train))

    def loss(self) -> float:
        """Return minus the mean likelihood of a fixed sample of positives and their negatives, or of shown pairs."""
        if self.exposure.labelled:
            return self._labelled_loss()
        if self._loss_samples is None:
            self._loss_samples = self._draw_loss_samples()
        users, items = self._loss_samples
        tables, rates = self.tables, self.exposure.rates

        def scores(left: Any, right: Any) -> NDArray[np.float64]:
            return np.asarray(np.einsum("nk,nmk->nm", left[users], right[items]), dtype=np.float64)

        if rates is None:
            flips = scores(tables.user_flips, tables.item_flips)
        else:
            flips = rates.flip_logits(users[:, None], items).astype(np.float64)
        return mean_loss(self.objective, scores(tables.user_factors, tables.item_factors), flips)

    def _labelled_loss(self) -> float:
        users, items, taken, logits = self._loss_pairs
        tables, users, items = self.tables, users.astype(np.int64), items.astype(np.int64)
        assert tables.item_bias is not None
        r = np.einsum("nk,nk->n", tables.user_factors[users], tables.item_factors[items]).astype(np.float64)
        r += tables.item_bias[items] + self._offset
        return labelled_loss(self.objective, r[:, None], logits[:, None], taken == 1)

    def _draw_loss_samples(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Users, and a row of their positive and its negatives, spread evenly over the users."""
        n = self.train.n_users
        users = np.unique(np.linspace(0, n - 1, min(n, LOSS_POSITIVES)).astype(np.int32))
        matrix, rows = self.train._rows(users)
        sample = Entries.of(
            matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), self.train.popularity()
        )
        starts, counts = matrix.indptr[rows], np.diff(matrix.indptr)[rows]
        own = counts > 0
        users, entries = users[own], (starts + counts // 2)[own].astype(np.int32)
        samples = Samples(sample, self.negatives, self.settings, self.seed)
        key = np.uint64(randomness.key(self.seed, "loss"))
        drawn = samples.draw(key, entries)[:, : self.settings.n_negatives]
        return users, np.column_stack([matrix.indices[entries], drawn])
