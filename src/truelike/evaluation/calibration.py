"""How well a probability tells likes from dislikes, and whether it is one: AUC, reliability, calibration error.

Probabilities of many pairs are counted in cells, not kept: a cell is all float32 numbers that agree in their
first 13 binary digits. So memory does not grow with the number of pairs, counts are whole numbers that come out
the same in any order, and what is taken for a tie differs by less than one in 8,000.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 15
DROPPED = 10  # of the 23 binary digits of a float32, those that a cell does not tell apart
N_CELLS = (int(np.float32(1).view(np.uint32)) >> DROPPED) + 1
SMALLEST = 1e-6  # the log loss of a probability of zero would be infinite

Counts = NDArray[np.int64]


def auc(scores: NDArray[Any], liked: NDArray[np.bool_]) -> float:
    """The share of (like, dislike) pairs in which the like has the higher score; ties count half.

    Without a like or without a dislike there is nothing to tell apart: not a number.

    >>> auc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, True, False, True]))
    0.875
    """
    disliked = np.sort(scores[~liked])
    likes = scores[liked]
    if not len(likes) or not len(disliked):
        return float("nan")
    below, up_to = (np.searchsorted(disliked, likes, side=side).sum(dtype=np.int64) for side in ("left", "right"))
    return float((below + up_to) / (2 * len(likes) * len(disliked)))


@dataclass(eq=False)
class Pooled:
    """Probabilities and true labels of many pairs, counted as they come, from several threads if need be.

    Examples
    --------
    >>> pooled = Pooled()
    >>> pooled.add(np.array([0.2, 0.2, 0.2, 0.2, 0.9]), np.array([True, False, False, False, True]))
    >>> pooled.auc()
    0.75
    >>> [(round(b.predicted, 4), b.liked, b.count) for b in pooled.reliability()]
    [(0.2, 0.25, 4), (0.9, 1.0, 1)]
    >>> round(pooled.calibration_error(), 4)
    0.06
    """

    count: Counts = field(default_factory=lambda: np.zeros(N_CELLS, dtype=np.int64))
    liked: Counts = field(default_factory=lambda: np.zeros(N_CELLS, dtype=np.int64))
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def add(self, predicted: NDArray[np.floating], liked: NDArray[np.bool_]) -> None:
        """Count more pairs."""
        small = np.clip(predicted, 0, 1).astype(np.float32)
        cell = (small.view(np.uint32) >> DROPPED).astype(np.int64)
        count, likes = (np.bincount(each, minlength=N_CELLS) for each in (cell, cell[liked]))
        with self._lock:
            self.count += count
            self.liked += likes

    def cells(self) -> tuple[NDArray[np.float64], Counts, Counts]:
        """Of the cells that are not empty: the probability in their middle, how many pairs, how many liked."""
        there = np.flatnonzero(self.count)
        low = (there.astype(np.uint32) << DROPPED).view(np.float32).astype(np.float64)
        high = ((there + 1).astype(np.uint32) << DROPPED).view(np.float32).astype(np.float64)
        middle = np.where(there == N_CELLS - 1, 1.0, (low + high) / 2)
        return middle, self.count[there], self.liked[there]

    def auc(self) -> float:
        """The share of (like, dislike) pairs, of any two users, in which the like has the higher probability."""
        _, count, liked = self.cells()
        disliked = count - liked
        likes, dislikes = int(liked.sum()), int(disliked.sum())
        if not likes or not dislikes:
            return float("nan")
        below = np.cumsum(disliked) - disliked / 2  # halves are exact, and ties count half
        return float((liked * below).sum() / likes / dislikes)

    def log_loss(self) -> float:
        """The mean of -log p of what is true: the smaller, the better are both order and calibration."""
        p, count, liked = self.cells()
        p = np.clip(p, SMALLEST, 1 - SMALLEST)
        return float(-(liked * np.log(p) + (count - liked) * np.log1p(-p)).sum() / count.sum())

    def reliability(self, bins: int = BINS) -> list[Bin]:
        """Bins of about as many pairs each, from the least likely up; equal probabilities are never parted.

        Bins of equal mass, since hidden likes are rare: of ten bins of equal width, the first would hold nearly
        all pairs, and errors within it would cancel.
        """
        p, count, liked = self.cells()
        before = np.cumsum(count) - count
        of = before * bins // int(count.sum())
        found = []
        for each in np.unique(of):
            here = of == each
            n = int(count[here].sum())
            found.append(Bin(float((p * count)[here].sum() / n), int(liked[here].sum()) / n, n))
        return found

    def calibration_error(self, bins: int = BINS) -> float:
        """The expected calibration error: the mean of |mean probability - share liked| of the bins, by pairs."""
        table = self.reliability(bins)
        return sum(abs(b.predicted - b.liked) * b.count for b in table) / sum(b.count for b in table)


@dataclass(frozen=True)
class Bin:
    """A row of the reliability table: the mean probability, the share truly liked, how many pairs."""

    predicted: float
    liked: float
    count: int
