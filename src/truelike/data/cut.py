"""`Cut`: how a split of the interactions holds out the impressions and the other feedback with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core import randomness
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes

TRAIN, VALIDATION, TEST = 0, 1, 2
ENTRIES_AT_ONCE = 2**22
Labels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Cut:
    """The part of a split to which each interaction of a dataset belongs, and by it everything else.

    What is known of a held-out pair is held out with it. Of the other pairs, what has a time in a split by time is held
    out if it is not before the moment from which interactions are. Without times, pairs are drawn with the probability
    that an interaction was held out with: so whether a shown pair is held out says nothing about whether it was taken.

    Attributes
    ----------
    label
        The part of each interaction of `data`.
    moments
        The times from which validation and test are held out (2 x users); None: not by time.
    shares
        The share of the validation and of the test part; None: that of each user's interactions.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "rum"), ("bob", "rum")], impressions=[("ann", "tea"), ("bob", "rum")])
    >>> train, test = Cut(data, np.array([0, 2, 0], dtype=np.uint8)).parts((TRAIN, TEST))
    >>> train.to_frame("shown").rows(), test.to_frame("shown").rows()
    ([('bob', 'rum', 1)], [('ann', 'tea', 1)])
    """

    data: Dataset
    label: Labels
    seed: int = 0
    moments: NDArray[np.int64] | None = None
    shares: tuple[float, float] | None = None

    def parts(self, numbers: Sequence[int] = (TRAIN, VALIDATION, TEST)) -> list[Dataset]:
        """The parts of the split, with the users, items, titles and features of the dataset."""
        data = self.data
        kinds = {name: self.labels(kind.csr, kind.times) for name, kind in data.kinds.items()}
        shown = None if data.shown is None else self.labels(data.shown.csr, data.shown.times)
        return [
            data.select(self.label == number).with_parts(
                kinds={name: kind.select(kinds[name] == number) for name, kind in data.kinds.items()},
                shown=None if data.shown is None or shown is None else data.shown.select(shown == number),
            )
            for number in numbers
        ]

    def labels(self, csr: sparse.csr_array, times: NDArray[np.int64] | None) -> Labels:
        """The part of each entry of a matrix (users x items)."""
        found = np.empty(csr.nnz, dtype=np.uint8)
        for lo, hi in _ranges(csr.indptr):
            entries = slice(csr.indptr[lo], csr.indptr[hi])
            users, pairs = _pairs(csr, lo, hi)
            of_pair, is_interaction = self._of_interactions(pairs, lo, hi)
            if self.moments is not None and times is not None:
                found[entries] = np.maximum(of_pair, _parts_of(times[entries] >= self.moments[:, users]))
            else:
                drawn = randomness.uniform(randomness.key(self.seed, "split", "pairs"), pairs)
                shares = np.cumsum(self._shares_of_users[::-1], axis=0)[::-1]
                found[entries] = np.where(is_interaction, of_pair, _parts_of(drawn < shares[:, users]))
        return found

    def _of_interactions(self, pairs: NDArray[np.int64], lo: int, hi: int) -> tuple[Labels, NDArray[np.bool_]]:
        """The part of the interaction of each pair, and whether it has one."""
        indptr = self.data.csr.indptr
        own, label = _pairs(self.data.csr, lo, hi)[1], self.label[indptr[lo] : indptr[hi]]
        if not len(own):
            return np.zeros(len(pairs), dtype=np.uint8), np.zeros(len(pairs), dtype=bool)
        at = np.minimum(np.searchsorted(own, pairs), len(own) - 1)
        there = own[at] == pairs
        return np.where(there, label[at], TRAIN).astype(np.uint8), there

    @cached_property
    def _shares_of_users(self) -> NDArray[np.float64]:
        """The shares of the validation and of the test part of each user."""
        n = self.data.n_users
        if self.shares is not None:
            return np.repeat(np.array([self.shares]).T, n, axis=1)
        total = np.maximum(self.data.interactions_per_user(), 1)
        users = self.data.entry_users
        counts = [np.bincount(users[self.label == part], minlength=n) for part in (VALIDATION, TEST)]
        return np.array(counts) / total


def first_held_out(data: Dataset, label: Labels) -> NDArray[np.int64]:
    """The time of the first interaction of validation and of test, of each user: the moments of a cut by user.

    >>> import truelike as tl
    >>> data = tl.read([("ann", "gin", 1, 3), ("ann", "rum", 1, 5), ("ann", "tea", 1, 7)])
    >>> first_held_out(data, np.array([0, 1, 2], dtype=np.uint8)).T.tolist()
    [[5, 7]]
    """
    assert data.times is not None
    found = np.full((2, data.n_users), np.iinfo(np.int64).max)
    for first, part in zip(found, (VALIDATION, TEST), strict=True):
        mine = label == part
        np.minimum.at(first, data.entry_users[mine], data.times[mine])
    return found


def _parts_of(held_out: NDArray[np.bool_]) -> Labels:
    """The part of each entry, from whether it is held out for validation or test, and for test."""
    return np.where(held_out[1], TEST, np.where(held_out[0], VALIDATION, TRAIN)).astype(np.uint8)


def _ranges(indptr: NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """Ranges of users with about `ENTRIES_AT_ONCE` entries."""
    lo, n = 0, len(indptr) - 1
    while lo < n:
        hi = int(np.searchsorted(indptr, indptr[lo] + ENTRIES_AT_ONCE, side="right")) - 1
        hi = min(max(hi, lo + 1), n)
        yield lo, hi
        lo = hi


def _pairs(csr: sparse.csr_array, lo: int, hi: int) -> tuple[Codes, NDArray[np.int64]]:
    """The user of each entry of some users, and its pair as one number."""
    users = np.repeat(np.arange(lo, hi, dtype=np.int32), np.diff(csr.indptr[lo : hi + 1]))
    return users, users * np.int64(csr.shape[1]) + csr.indices[csr.indptr[lo] : csr.indptr[hi]]
