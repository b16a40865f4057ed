"""Impressions of a block directory, in the row numbers of the blocks that a model is trained on.

Both directories have ids of their own, in their order. So the users of a training block are looked up among those of
the impressions, their rows are gathered, items are recoded by one map, and interactions are merged in. The result, a
`ShownPairs` for each training block, is kept in files of the scratch directory, or in memory with `in_memory`. One
block is in memory at a time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike import objectives
from truelike.data.blocks.blocks import Blocks
from truelike.data.blocks.format import DESCRIPTION
from truelike.data.blocks.tree import tree_sum
from truelike.data.entries import recode
from truelike.data.ids import MOST, Codes
from truelike.errors import DataError, DataWarning, StorageError, warn
from truelike.exposure.shown_pairs import (
    CERTAIN,
    HeldOut,
    HeldOutPairs,
    ShownPairs,
    average_logits,
    flip_logits,
    merge,
)

PREFIX = "shown_blocks."  # of saved arrays


def shown_blocks(train: Blocks, shown: Blocks, miss_rate: float | None) -> ShownBlocks:
    """The interactions of several blocks, and what was shown without one; without a `miss_rate` no like is missed."""
    source = ShownSource(str(shown.directory), shown.digest, float(miss_rate or 0.0))
    return ShownBlocks(train, source, shown)


@dataclass(frozen=True)
class ShownSource:
    """Where the impressions are, for workers in other processes.

    That is a block directory with the hash of its content. `miss_rate` is the probability that a user misses a liked
    item when it is shown once, and `held_out` are the pairs that are not trained on; None: all are.
    """

    directory: str
    digest: str
    miss_rate: float
    held_out: HeldOut | None = None

    def of(self, train: Blocks) -> ShownBlocks:
        """Return the impressions for some blocks."""
        return ShownBlocks(train, self)


class Counts:
    """What is counted over all pairs, as one array, so that a sum over blocks is a sum of arrays.

    These are the impressions of known users and items, interactions that are not among them, pairs, pairs that were
    taken; then the pairs of each item, and the expected number of users who noticed it.
    """

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.values = values
        self.known, self.added, self.pairs, self.taken = (int(value) for value in values[:4])
        by_item = values[4:].reshape(2, -1)
        self.pairs_of_item: NDArray[np.int64] = by_item[0].astype(np.int64)
        self.noticed: NDArray[np.float64] = by_item[1]


class ShownBlocks:
    """The pairs of which it is known what the user did, for each block.

    If they are not given, the `impressions` are opened when they are asked for, and what `count` returns is summed over
    all blocks.
    """

    evidence = "impressions"

    def __init__(
        self,
        train: Blocks,
        source: ShownSource,
        impressions: Blocks | None = None,
        counts: NDArray[np.float64] | None = None,
    ) -> None:
        self.train, self.source = train, source
        self._impressions = impressions
        self._counts = None if counts is None else Counts(counts)
        self._kept: dict[int, ShownPairs] = {}
        self._known: dict[int, int] = {}

    @property
    def miss_rate(self) -> float:
        """The probability that a user misses a liked item when it is shown once."""
        return self.source.miss_rate

    # --- pairs ----------------------------------------------------------------------------------

    @property
    def impressions(self) -> Blocks:
        """The impressions, with their own row numbers."""
        if self._impressions is None:
            self._impressions = _opened(self.source, self.train)
        return self._impressions

    def block(self, number: int) -> ShownPairs:
        """Return the pairs of the users of a training block."""
        if number not in self._kept:
            block = self.train.block(number)
            pairs, self._known[number] = self._merged(self.train.ids_of_block(number), block.indptr, block.indices)
            if self.source.held_out is not None:
                pairs = pairs.without(self.source.held_out, int(self.train.bounds[number]))
            self._kept[number] = self._stored(pairs)
        return self._kept[number]

    def of_users(self, users: Codes) -> ShownPairs:
        """Return the pairs of different users, by their row numbers. No block of pairs is made for it."""
        matrix, rows = self.train.rows(users)
        own = matrix[rows] if len(rows) else matrix
        parts = (own.indptr.astype(np.int32), own.indices.astype(np.int32))
        return self._merged(self.train.users.stored(np.asarray(users)), *parts)[0]

    @property
    def n_pairs(self) -> int:
        """About the number of pairs: that of the impressions."""
        return self.impressions.n_interactions

    def held_out(self, which: HeldOut) -> HeldOutPairs:
        """Return the pairs that are held out. No block of pairs is made for it."""
        users = which.users(self.train.n_users)
        pairs = self.of_users(users.astype(np.int32))
        entries = which.entries(pairs.indptr, pairs.indices, pairs.n_items, users, rows=np.arange(len(users)))
        found = pairs.listed(entries)
        return found._replace(users=users[found.users].astype(np.int32))

    def without(self, which: HeldOut) -> ShownBlocks:
        """Return the pairs that are not held out."""
        return ShownBlocks(self.train, replace(self.source, held_out=which), self.impressions)

    def take_back(self, rest: ShownBlocks, held_out: HeldOutPairs) -> None:
        """Take the counts of the pairs that were not held out, and count those that were."""
        n = self.train.n_items
        noticed = objectives.sigmoid(-held_out.logits.astype(np.float64))
        head = np.array([0, 0, len(held_out.users), held_out.taken.sum()], dtype=np.float64)
        by_item = [np.bincount(held_out.items, weights, n) for weights in (np.ones(len(noticed)), noticed)]
        self._counts = Counts(rest.counts.values + np.concatenate([head, *by_item]))

    def pairs_of_item(self) -> NDArray[np.int64]:
        """Return the number of pairs of each item."""
        return self.counts.pairs_of_item

    def _merged(
        self, ids: pl.Series, indptr: NDArray[np.int32], indices: NDArray[np.int32]
    ) -> tuple[ShownPairs, int]:
        """The pairs of users with these ids and interactions, and how many of their impressions are of known items."""
        codes = self.impressions.users.codes(ids)
        there = np.flatnonzero(codes >= 0).astype(np.int32)
        found, rows = self.impressions.rows(codes[there])
        places = np.empty_like(there)
        places[rows] = there
        if found.nnz + len(indices) > MOST:
            raise DataError(
                f"a block has {found.nnz + len(indices):,} impressions and interactions; at most {MOST:,} are "
                "possible. Build the training data with more blocks."
            )
        shown, _ = recode(found, places, self._item_map, (len(ids), self.train.n_items))
        logit, logits = self._logits(shown.data)
        pointers, items, taken, flips, added = merge(
            indptr, indices, shown.indptr, shown.indices, logits, np.float32(logit)
        )
        pairs = ShownPairs(
            pointers, items, taken, flips, logit, self.train.n_items, added=int(added), evidence=self.evidence
        )
        return pairs, int(shown.nnz)

    @cached_property
    def _item_map(self) -> Codes:
        """The row number in the training data of each item of the impressions; -1 for one that is not known."""
        return self.train.items.codes(self.impressions.items.values)

    def _logits(self, counts: NDArray[np.float32]) -> tuple[float, NDArray[np.float32]]:
        """The flip logit of all pairs, and those of the impressions with these counts, if they matter."""
        rate = self.source.miss_rate
        if not (self.impressions.has_weights and rate > 0):
            with np.errstate(divide="ignore"):
                return float(flip_logits(-np.log(np.array([rate])))[0]), np.zeros(0, dtype=np.float32)
        if len(counts) and counts.min() <= 0:
            raise DataError(
                f"{int((counts <= 0).sum()):,} impressions have a weight of 0 or less; a weight is how often the pair "
                "was shown"
            )
        return -CERTAIN, flip_logits(counts * -np.log(rate))

    def _stored(self, pairs: ShownPairs) -> ShownPairs:
        """The same pairs with their arrays where the training data are."""
        if self.train.in_memory:
            return pairs

        def placed(array: NDArray[Any]) -> NDArray[Any]:
            place = self.train.mapped(len(array), kind=array.dtype)
            place[:] = array
            return place

        return replace(
            pairs,
            indptr=placed(pairs.indptr),
            indices=placed(pairs.indices),
            taken=placed(pairs.taken),
            logits=placed(pairs.logits),
        )

    # --- over all blocks --------------------------------------------------------------------------

    def count(self, number: int) -> NDArray[np.float64]:
        """Return the values of `Counts` of a block."""
        pairs = self.block(number)
        head = [self._known[number], pairs.added, pairs.n_pairs, pairs.taken.sum()]
        return np.concatenate([np.array(head, dtype=np.float64), pairs.pairs_of_item(), pairs.exposed_users()])

    @property
    def counts(self) -> Counts:
        """What is counted over all pairs."""
        if self._counts is None:
            self._counts = Counts(tree_sum(0, len(self.train), self.count))
        return self._counts

    @property
    def is_counted(self) -> bool:
        """Whether the counts are known."""
        return self._counts is not None

    def take_counts(self, values: NDArray[np.float64]) -> None:
        """Take the values of `count`, summed over all blocks. Warn of what is left out; raise if nothing is left."""
        self._counts = counts = Counts(np.array(values))
        n, n_train = self.impressions.n_interactions, self.train.n_interactions
        if not counts.known:
            raise DataError(
                f"none of the {n:,} impressions has both a user and an item of the training data; check that the ids "
                "are the same"
            )
        if counts.known < n:
            warn(
                f"{n - counts.known:,} of {n:,} impressions are left out, because their user or their item has no "
                "interaction in the training data",
                DataWarning,
            )
        if counts.added:
            warn(
                f"{counts.added:,} of {n_train:,} interactions are not among the impressions; they count as shown, "
                "since a user cannot take what was not shown. If the impressions are those of a part of the time or "
                "of one page only, use the interactions of that part, too.",
                DataWarning,
            )
        if counts.taken == counts.pairs:
            raise DataError(
                "every pair of the impressions is an interaction, so nothing is known of what users saw and did not "
                "take"
            )

    def taken_share(self) -> float:
        """Return the share of pairs that were taken, away from 0 and 1."""
        return float((self.counts.taken + 0.5) / (self.counts.pairs + 1))

    def of(self, train: Blocks) -> ShownBlocks:
        """Return itself: the pairs are those of the blocks of this process."""
        assert train is self.train
        return self

    # --- as known flips have them -----------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of users and items."""
        return self.train.n_users, self.train.n_items

    def dense_logits(self, users: Codes) -> NDArray[np.float32]:
        """Return the flip logits of all items for some users."""
        some, rows = np.unique(users, return_inverse=True)
        return self.of_users(some).dense_logits(rows.astype(np.int32))

    def exposed_users(self) -> NDArray[np.float64]:
        """Return the expected number of users who noticed each item."""
        return self.counts.noticed

    def average_logits(self) -> NDArray[np.float64]:
        """Return the flip logits of all items for the average user, which are used for a new user."""
        return average_logits(self.exposed_users(), self.shape[0])

    # --- storage ----------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are saved: where the impressions are, relative to the training blocks, and counts."""
        beside = os.path.relpath(self.source.directory, self.train.directory)
        return {
            f"{PREFIX}place": np.frombuffer(beside.encode(), dtype=np.uint8),
            f"{PREFIX}digest": np.frombuffer(self.source.digest.encode(), dtype=np.uint8),
            f"{PREFIX}miss_rate": np.array([self.source.miss_rate]),
            f"{PREFIX}counts": self.counts.values,
        }

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]], train: Any) -> ShownBlocks | None:
        """Return the impressions of saved arrays, which are opened when they are asked for; None if there are none."""
        if f"{PREFIX}place" not in arrays:
            return None
        names = ("place", "digest", "miss_rate", "counts")
        place, digest, rate, counts = (np.asarray(arrays[PREFIX + name]) for name in names)
        shapes = (rate.shape, counts.shape)
        if not isinstance(train, Blocks) or shapes != ((1,), (4 + 2 * train.n_items,)):
            raise ValueError("the impressions are not those of the blocks that the model was trained on")
        beside = os.path.normpath(train.directory / place.tobytes().decode())
        source = ShownSource(beside, digest.tobytes().decode(), float(rate[0]))
        return cls(train, source, counts=counts.astype(np.float64))


def _opened(source: ShownSource, train: Blocks) -> Blocks:
    """The impressions of a source; StorageError if they are not there, or others."""
    if not (Path(source.directory) / DESCRIPTION).is_file():
        raise StorageError(
            f"the impressions were a block directory in {source.directory!r}, which is not there. Put it there, at the "
            "same place relative to the blocks of the training data. All machines of a cluster must reach it."
        )
    found = Blocks(source.directory, in_memory=train.in_memory)
    if found.digest != source.digest:
        raise StorageError(
            f"{source.directory!r} is another block directory than the impressions that the model was trained with"
        )
    return found
