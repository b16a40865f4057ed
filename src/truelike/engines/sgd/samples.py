"""The samples of mini-batch training: which positives form a batch, and which negatives are drawn for them.

The sampled engine and the engine for networks share this module, so they train on the same samples. A sample
depends only on the seed, the number of the epoch and the position of the positive in the training data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, Literal, Self

import numpy as np

from truelike.core import randomness
from truelike.core.arrays import Codes, Counts, Floats
from truelike.data.dataset import Dataset
from truelike.negatives import Negatives, check_has_negatives
from truelike.objectives import Objective, Pairwise, Pointwise

LOSS_POSITIVES = 2_000  # positives on which the loss is measured
BLOCK_SIZE = 32  # positives of a user in a block of order "blocks", at most
# of a user with as many positives: L2 would shrink the row of a user who is trained once an epoch
LEAST_BLOCKS = 3


@dataclass(frozen=True)
class SGDSettings:
    """The settings of mini-batch training.

    Attributes
    ----------
    learning_rate, decay
        Epoch e (from 0) runs at learning_rate x decay^(e + 1): as in the authors' release, the first epoch is
        already decayed.
    regularization, flip_regularization
        The paper's lambda of Theta and of Phi.
    l2_schedule
        "batch": each batch applies the whole L2, so a row shrinks by the factor 1 - rate x lambda per batch, as in
        the authors' release. "epoch": each batch applies its part of it, so that the L2 counts once per epoch, as
        in Equation 4, and the best lambda does not depend on the batch size.
    n_negatives
        The paper's rho: negatives per positive.
    batch_size
        Positives per batch.
    order
        "blocks": each user's positives are cut into random blocks of up to BLOCK_SIZE, and the blocks have a random
        order, both new in every epoch. "shuffled": a new random order in every epoch. "file": all positives of
        user 0, then of user 1, and so on. "users": users in a new random order in every epoch, each with all
        positives.
    positive_weight
        "once": a positive counts once (Equation 8). "per_negative": once for each of its negatives (the release).
    """

    learning_rate: float
    decay: float
    regularization: float
    flip_regularization: float
    l2_schedule: Literal["epoch", "batch"]
    n_negatives: int
    batch_size: int
    order: Literal["blocks", "shuffled", "file", "users"]
    positive_weight: Literal["once", "per_negative"] = "per_negative"

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch."""
        return self.learning_rate * self.decay ** (epoch + 1)

    @property
    def positive_factor(self) -> float:
        """The factor of a positive's step."""
        return float(self.n_negatives) if self.positive_weight == "per_negative" else 1.0


@dataclass(frozen=True, eq=False)
class Entries:
    """What the sampled engine needs of a Dataset, for pairs that are no Dataset: a CSR and the pairs of each item."""

    indptr: Codes
    indices: Codes
    item_counts: Counts

    @property
    def csr(self) -> Self:
        """What has `indptr` and `indices`."""
        return self

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.indptr) - 1

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_counts)

    @property
    def n_interactions(self) -> int:
        """Number of pairs."""
        return len(self.indices)

    def popularity(self) -> Counts:
        """Return how many pairs each item has."""
        return self.item_counts

    def interactions_per_user(self) -> Counts:
        """Return how many pairs each user has."""
        return np.asarray(np.diff(self.indptr), dtype=np.int64)


class BlockOrder:
    """The order "blocks" of the positives of a dataset.

    A random order of single positives loads another user's row, and other cache lines of everything that belongs to
    the user, for every positive. Blocks of a user's positives cost little more than the order of the file, and train
    as well: each block is a random part of the user's positives.
    """

    def __init__(self, train: Dataset | Entries) -> None:
        from truelike.engines.sgd.negative_sampling import Blocks

        indptr = train.csr.indptr
        positives = np.diff(indptr)
        counts = np.maximum(-(-positives // BLOCK_SIZE), np.minimum(positives, LEAST_BLOCKS))
        users = np.repeat(np.arange(train.n_users, dtype=np.int32), counts)
        self.blocks = Blocks(users, np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), indptr)
        self._last: tuple[np.uint64, Codes, Counts] | None = None  # key, order, starts
        self._lock = Lock()

    def order(self, key: np.uint64) -> tuple[Codes, Counts]:
        """Return the order of the blocks with a key, and the position of the first positive of each."""
        from truelike.engines.sgd.negative_sampling import block_starts, permutation

        with self._lock:  # several threads ask for the same order
            if self._last is None or self._last[0] != key:
                n = len(self.blocks.user_of_block)
                order = permutation(key, 0, n, n)
                self._last = (key, order, block_starts(key, order, self.blocks))
            return self._last[1:]

    def entries(self, key: np.uint64, start: int, stop: int, batch_size: int) -> Codes:
        """Return the positives start ... stop - 1 of the order with a key; a batch begins at `start`.

        Within a batch the blocks are sorted.
        """
        from truelike.engines.sgd.negative_sampling import block_entries

        return np.asarray(block_entries(key, *self.order(key), start, stop, batch_size, self.blocks))


class Samples:
    """The samples of mini-batch training on a dataset."""

    def __init__(self, train: Dataset | Entries, negatives: Negatives, settings: SGDSettings, seed: int) -> None:
        from truelike.engines.sgd.negative_sampling import Source, positive_bits

        check_has_negatives(train)
        self.train, self.negatives, self.settings, self.seed = train, negatives, settings, seed
        indptr, items, n_items = train.csr.indptr, train.csr.indices, train.n_items
        bits, tables = positive_bits(indptr, items, n_items), negatives.tables(train.popularity())
        users = np.repeat(np.arange(train.n_users, dtype=np.int32), np.diff(indptr))
        self.source = Source(users, items, indptr, bits, np.uint64(n_items), *tables)
        self._by_users: tuple[int, Codes] = (-1, np.zeros(0, dtype=np.int32))  # epoch, order
        self._blocks = BlockOrder(train) if settings.order == "blocks" else None

    def key(self, epoch: int) -> np.uint64:
        """Return the random key of the negatives of an epoch."""
        return np.uint64(randomness.key(self.seed, "negatives", epoch))

    def choice_key(self, epoch: int) -> np.uint64:
        """Return the random key of the choices among the candidates of an epoch."""
        return np.uint64(randomness.key(self.seed, "choice", epoch))

    def entries(self, epoch: int, start: int, stop: int) -> Codes:
        """Return the positives start ... stop - 1 of an epoch, as positions in the CSR of the training data.

        A batch begins at `start`. Within a batch the positives of a user are adjacent.
        """
        if self.settings.order == "file":
            return np.arange(start, stop, dtype=np.int32)
        from truelike.engines.sgd.negative_sampling import permutation

        size = self.settings.batch_size
        key = np.uint64(randomness.key(self.seed, "order", epoch))
        if self.settings.order == "users":
            if self._by_users[0] != epoch:
                users = permutation(key, 0, self.train.n_users, self.train.n_users)
                order = np.argsort(np.argsort(users)[self.source.users], kind="stable")
                self._by_users = (epoch, order.astype(np.int32))
            return self._by_users[1][start:stop]
        if self._blocks is not None:
            return self._blocks.entries(key, start, stop, size)
        entries: Codes = permutation(key, start, stop, self.train.n_interactions)
        whole_batches = len(entries) // size * size
        entries[:whole_batches].reshape(-1, size).sort(axis=1)
        entries[whole_batches:].sort()
        return entries

    def draw(self, key: np.uint64, entries: Codes) -> Codes:
        """Draw the candidates of the negatives of some positives, a row for each: `draws` items for each negative."""
        return self._draw(key, entries, self.settings.n_negatives * self.negatives.draws)

    def draw_first(self, key: np.uint64, entries: Codes) -> Codes:
        """Draw `n_negatives` items for each of some positives: the first candidates, among which nothing is chosen."""
        return self._draw(key, entries, self.settings.n_negatives)

    def _draw(self, key: np.uint64, entries: Codes, n: int) -> Codes:
        from truelike.engines.sgd.negative_sampling import draw_negatives

        return np.asarray(draw_negatives(key, entries, n, self.source))

    def numbers(self, key: np.uint64, entries: Codes) -> Floats:
        """Return the random number of each candidate that `draw` returns, given a `choice_key`."""
        from truelike.engines.sgd.negative_sampling import uniform_numbers

        n = self.settings.n_negatives * self.negatives.draws
        return np.asarray(uniform_numbers(key, entries, n))

    @cached_property
    def loss_samples(self) -> tuple[Codes, Codes, Codes]:
        """Users, items and negatives of up to LOSS_POSITIVES positives, spread evenly over the training data."""
        n = self.train.n_interactions
        chosen = np.unique(np.linspace(0, n - 1, min(n, LOSS_POSITIVES)).astype(np.int32))
        drawn = self.draw_first(np.uint64(randomness.key(self.seed, "loss")), chosen)
        return self.source.users[chosen], self.source.items[chosen], drawn


def mean_loss(objective: type[Objective], r: Any, g: Any) -> float:
    """Return minus the mean likelihood of rows of (a positive, its negatives).

    NaN for an objective without likelihood functions.
    """
    try:
        if issubclass(objective, Pairwise):
            return -float(np.mean(objective.likelihood_pair(r[:, :1], r[:, 1:])))
        assert issubclass(objective, Pointwise)
        positive = objective.likelihood_positive(r[:, :1], g[:, :1])
        negative = objective.likelihood_negative(r[:, 1:], g[:, 1:])
    except NotImplementedError:
        return float("nan")
    return -float((positive.sum() + negative.sum()) / r.size)
