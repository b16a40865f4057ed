"""The items that a batch is trained on: all of them, or a sample whose weights make up for those left out.

A sample has all positives of the users of the batch, and each other item with the same probability. So the probability
that an unobserved pair is part of a batch is known: its item is drawn, or it is a positive of another user of the
batch, which is a random set of users. Its step is divided by this probability, so that the expected gradient is that
of all items (Horvitz and Thompson, 1952). For the softmax the same holds for the sum of exp(score), of which the
gradient is a ratio: it is consistent, but not free of bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from truelike.core import randomness
from truelike.core.arrays import Codes, Doubles, Floats
from truelike.data.dataset import Dataset
from truelike.engines.exact.kernels import Positives

NO_WEIGHTS = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True)
class BatchItems:
    """The items of a batch, and the positives of its users.

    Attributes
    ----------
    rows
        The row numbers of the items, ascending; None: all items.
    positives
        The positives of the users, as places in `rows`.
    weights
        Weight of an unobserved pair of each item.
    l2_part
        Share of the L2 of each item that this batch applies.
    rate
        Factor of the learning rate of each item.
    """

    rows: Codes | None
    positives: Positives
    weights: Floats
    l2_part: Floats
    rate: Floats

    def __len__(self) -> int:
        return len(self.weights)


class AllItems:
    """Every batch has all items."""

    def __init__(self, train: Dataset, batch_size: int, positive_weights: Floats | None = None) -> None:
        self.train, self.n_batches = train, -(-train.n_users // batch_size)
        self.positive_weights = NO_WEIGHTS if positive_weights is None else positive_weights

    def largest(self) -> int:
        """The number of items."""
        return self.train.n_items

    def batch(self, users: Codes, epoch: int, number: int) -> BatchItems:
        """All items."""
        matrix, shape = self.train.csr, self.train.n_items
        # a user is updated once in an epoch, an item at every batch: at a lower rate, so that both learn alike
        return BatchItems(
            None, Positives(users, matrix.indptr, matrix.indices, self.positive_weights),
            weights=np.ones(shape, dtype=np.float32),
            l2_part=np.full(shape, len(users) / self.train.n_users, dtype=np.float32),
            rate=np.full(shape, self.n_batches**-0.5, dtype=np.float32),
        )  # fmt: skip


class SampledItems:
    """A batch has the positives of its users and a random sample of all other items.

    An item is drawn with the probability `share`. `positive_weights` is how much each interaction counts.
    """

    def __init__(
        self, train: Dataset, batch_size: int, share: float, seed: int, positive_weights: Floats | None = None
    ) -> None:
        self.train, self.share, self.seed = train, share, seed
        self.positive_weights = NO_WEIGHTS if positive_weights is None else positive_weights
        self.batch_size = min(batch_size, train.n_users)
        self.n_batches = -(-train.n_users // batch_size)
        self._probabilities = lru_cache(maxsize=2)(self._compute)  # of whole batches, of the last one
        self._place = np.full(train.n_items, -1, dtype=np.int32)

    def largest(self) -> int:
        """A number of items that no batch exceeds: ten standard deviations above the mean of those drawn."""
        most = np.sort(self.train.interactions_per_user())[-self.batch_size :].sum()
        drawn = self.share * self.train.n_items
        return int(min(self.train.n_items, most + drawn + 10 * np.sqrt(drawn) + 10))

    def expected(self) -> float:
        """The mean number of items of a batch."""
        return float(self._probabilities(self.batch_size)[0].sum())

    def batch(self, users: Codes, epoch: int, number: int) -> BatchItems:
        """The positives of the users and the items drawn for this batch."""
        indptr, entries = entries_of(self.train.csr, users)
        items = self.train.csr.indices[entries]
        key = randomness.key(self.seed, "items", epoch, number)
        chosen = randomness.uniform(key, np.arange(self.train.n_items)) < self.share
        chosen[items] = True
        rows = np.flatnonzero(chosen).astype(np.int32)
        self._place[rows] = np.arange(len(rows), dtype=np.int32)
        in_batch, of_unobserved = self._probabilities(len(users))
        probability = in_batch[rows]
        weights = self.positive_weights[entries] if len(self.positive_weights) else NO_WEIGHTS
        return BatchItems(
            rows, Positives(np.arange(len(users), dtype=np.int32), indptr, self._place[items], weights),
            weights=(1 / of_unobserved[rows]).astype(np.float32),
            l2_part=(len(users) / self.train.n_users / probability).astype(np.float32),
            rate=(np.maximum(1.0, self.n_batches * probability) ** -0.5).astype(np.float32),
        )  # fmt: skip

    def _compute(self, n_users: int) -> tuple[Doubles, Doubles]:
        """The probability that an item is part of a batch, and the same if a user of the batch is known to lack it."""
        n, popularity = self.train.n_users, self.train.popularity()
        missing = 1 - self.share
        in_batch = 1 - missing * _none_of(popularity, n, n_users)
        return in_batch, 1 - missing * _none_of(np.minimum(popularity, n - 1), n - 1, n_users - 1)


def _none_of(marked: NDArray[Any], n: int, drawn: int) -> Doubles:
    """The probability that none of `drawn` out of n are among the marked ones.

    >>> _none_of(np.array([0, 1, 3]), 4, 2).round(3)
    array([1. , 0.5, 0. ])
    """
    rest = n - marked.astype(np.float64)
    possible = rest >= drawn
    rest = np.where(possible, rest, drawn)
    log = gammaln(rest + 1) - gammaln(rest - drawn + 1) - gammaln(n + 1) + gammaln(n - drawn + 1)
    return np.where(possible, np.exp(log), 0.0)


def entries_of(matrix: Any, rows: Codes) -> tuple[Codes, NDArray[np.int64]]:
    """The indptr of some rows of a CSR, and the places of their entries."""
    counts = matrix.indptr[rows + 1] - matrix.indptr[rows]
    indptr = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(counts, out=indptr[1:])
    return indptr, np.arange(indptr[-1]) + np.repeat(matrix.indptr[rows] - indptr[:-1], counts)
