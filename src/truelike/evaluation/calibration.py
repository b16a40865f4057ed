"""Quality of predicted probabilities: AUC, log loss, reliability table, expected calibration error.

The probabilities of many pairs are counted in cells instead of being stored. A cell holds all float32 numbers with
the same sign, exponent and first 13 bits of the mantissa. So memory does not grow with the number of pairs, the
counts do not depend on the order of the pairs, and two numbers in one cell, which count as a tie, differ by less
than one part in 8,000.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.frames import Library, to_native

BINS = 15
DROPPED = 10  # the last bits of the 23-bit mantissa, which a cell ignores
N_CELLS = (int(np.float32(1).view(np.uint32)) >> DROPPED) + 1
SMALLEST = 1e-6  # probabilities are clipped to it, because the log loss of zero is infinite

Counts = NDArray[np.int64]


def auc(scores: NDArray[np.floating], liked: NDArray[np.bool_]) -> float:
    """Return the share of (like, dislike) pairs in which the like has the higher score; ties count half.

    NaN if there are no likes or no dislikes.

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
    """Probabilities and true labels of many pairs, as counts. Several threads may add to it.

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
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, predicted: NDArray[np.floating], liked: NDArray[np.bool_]) -> None:
        """Add pairs."""
        small = np.clip(predicted, 0, 1).astype(np.float32)
        cell = (small.view(np.uint32) >> DROPPED).astype(np.int64)
        count, likes = (np.bincount(each, minlength=N_CELLS) for each in (cell, cell[liked]))
        with self._lock:
            self.count += count
            self.liked += likes

    def cells(self) -> tuple[NDArray[np.float64], Counts, Counts]:
        """Return, for each cell that is not empty, its middle probability, its pairs and its liked pairs."""
        filled = np.flatnonzero(self.count)
        low = (filled.astype(np.uint32) << DROPPED).view(np.float32).astype(np.float64)
        high = ((filled + 1).astype(np.uint32) << DROPPED).view(np.float32).astype(np.float64)
        middle = np.where(filled == N_CELLS - 1, 1.0, (low + high) / 2)
        return middle, self.count[filled], self.liked[filled]

    def auc(self) -> float:
        """Return the AUC over all pairs of all users; ties count half."""
        _, count, liked = self.cells()
        disliked = count - liked
        likes, dislikes = int(liked.sum()), int(disliked.sum())
        if not likes or not dislikes:
            return float("nan")
        below = np.cumsum(disliked) - disliked / 2  # exact: halves are float64 numbers
        return float((liked * below).sum() / likes / dislikes)

    def log_loss(self) -> float:
        """Return the mean of -log p(true label). It is low if both the order and the calibration are good."""
        p, count, liked = self.cells()
        p = np.clip(p, SMALLEST, 1 - SMALLEST)
        return float(-(liked * np.log(p) + (count - liked) * np.log1p(-p)).sum() / count.sum())

    def reliability(self, bins: int = BINS) -> list[Bin]:
        """Return bins with about the same number of pairs, in ascending order of probability.

        Pairs with equal probabilities are in the same bin. The bins have equal mass instead of equal width because
        hidden likes are rare: the first of ten bins of equal width would hold nearly all pairs, and errors within
        it would cancel.
        """
        p, count, liked = self.cells()
        before = np.cumsum(count) - count
        bin_of_cell = before * bins // int(count.sum())
        found = []
        for each in np.unique(bin_of_cell):
            here = bin_of_cell == each
            n = int(count[here].sum())
            found.append(Bin(float((p * count)[here].sum() / n), int(liked[here].sum()) / n, n))
        return found

    def calibration_error(self, bins: int = BINS) -> float:
        """Return the expected calibration error: the mean over pairs of |predicted - liked| of their bin."""
        table = self.reliability(bins)
        return sum(abs(b.predicted - b.liked) * b.count for b in table) / sum(b.count for b in table)


@dataclass(frozen=True)
class Bin:
    """A row of the reliability table: mean probability, share of truly liked pairs, number of pairs."""

    predicted: float
    liked: float
    count: int


@dataclass(frozen=True, eq=False)
class LabelScores:
    """The scores of a model on pairs with a label: true likes, or what was taken of what was shown.

    Attributes
    ----------
    users
        The ids of the users with pairs of both labels.
    values
        For each measure one value per user.
    totals
        Measures over all pairs.
    n_pairs
        The number of pairs.
    bins
        The reliability table; empty for a model without probabilities.
    """

    users: pl.Series
    values: dict[str, NDArray[np.float64]]
    totals: dict[str, float]
    n_pairs: int
    bins: list[Bin]
    library: Library

    def reliability(self) -> Any:
        """Return a frame bin, predicted, liked, count: mean probability, share of likes and pairs of each bin."""
        rows = [(n, b.predicted, b.liked, b.count) for n, b in enumerate(self.bins, 1)]
        schema = {"bin": pl.Int64, "predicted": pl.Float64, "liked": pl.Float64, "count": pl.Int64}
        return to_native(pl.DataFrame(rows, schema=schema, orient="row"), self.library)
