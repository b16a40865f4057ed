"""Who counts as unvoted: the law that negatives are drawn by. Always without the user's training positives.

`Uniform` draws every item alike, `Popularity(alpha)` in proportion to popularity^alpha (alpha = 1 is WBPR's),
`Hard(n)` takes the best-scored of n uniform draws. The objective and the negatives are separate: "BPR with
popular negatives" is said, never implied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.errors import DataError, ParameterError, some


@dataclass(frozen=True)
class Negatives:
    """A law of drawing: weights of the items, and how many candidates the best is taken of."""

    alpha: float = 0.0
    candidates: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.candidates >= 1):
            raise ParameterError(f"{self!r}: alpha must be finite, and candidates at least 1")

    @property
    def name(self) -> str:
        """The law in a word, as `parse` reads it.

        >>> Popularity(0.5).name
        'popularity^0.5'
        """
        if self.candidates > 1:
            return f"hard:{self.candidates}"
        return f"popularity^{self.alpha}" if self.alpha else "uniform"

    def weights(self, popularity: NDArray[Any]) -> NDArray[np.float64]:
        """How likely each item is drawn, before the user's positives are left out."""
        raised = np.maximum(popularity, 1e-9).astype(np.float64) ** self.alpha
        return np.asarray(raised / raised.sum())

    def law(self, popularity: NDArray[Any], positives: NDArray[Any]) -> NDArray[np.float64]:
        """The probability of each item for a user with these positives (one candidate).

        >>> Uniform().law(np.array([5, 1, 1]), np.array([0]))
        array([0. , 0.5, 0.5])
        """
        weights = self.weights(popularity)
        weights[positives] = 0.0
        return np.asarray(weights / (weights.sum() or 1.0))  # who voted for all has no negative

    def tables(
        self, popularity: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float64]]:
        """Walker's alias table (draw a column, keep it with its probability or take its alias) and the weights.

        All empty where every item is alike, which needs no table.
        """
        if self.alpha == 0:
            return np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(0, np.float64)
        n, weights = len(popularity), self.weights(popularity)
        scaled = weights * n
        keep, alias = np.ones(n), np.arange(n, dtype=np.int32)
        small = [int(i) for i in np.flatnonzero(scaled < 1)]
        large = [int(i) for i in np.flatnonzero(scaled >= 1)]
        while small and large:
            low, high = small.pop(), large[-1]
            keep[low], alias[low] = scaled[low], high
            scaled[high] -= 1 - scaled[low]
            if scaled[high] < 1:
                small.append(large.pop())
        return keep.astype(np.float32), alias, weights


def Uniform() -> Negatives:  # noqa: N802 - reads as the name of a law
    """Every unvoted item alike (the paper's BPR, BPO and NBPO)."""
    return Negatives()


def Popularity(alpha: float = 1.0) -> Negatives:  # noqa: N802
    """Unvoted items in proportion to popularity^alpha (WBPR, with alpha = 1)."""
    return Negatives(alpha=alpha)


def Hard(candidates: int = 5) -> Negatives:  # noqa: N802
    """The best-scored of a few uniform draws (dynamic negative sampling; Zhang et al., SIGIR 2013)."""
    return Negatives(candidates=candidates)


NAMES = '"uniform", "popularity", "popularity^ALPHA", "hard", "hard:N" or "all"'
ALL = "all"  # no drawing: every unvoted item counts


def is_law(value: Any) -> bool:
    """Whether a value is a law, or names one (None leaves it to the recipe)."""
    try:
        parse("uniform" if value is None or value == ALL else value)
    except ParameterError:
        return False
    return True


def parse(law: Negatives | str) -> Negatives:
    """A law by its name: "uniform", "popularity", "popularity^0.5", "hard" or "hard:10".

    >>> parse("popularity^0.5")
    Negatives(alpha=0.5, candidates=1)
    """
    if isinstance(law, Negatives):
        return law
    try:
        if law == "uniform":
            return Uniform()
        if law == "popularity" or law.startswith("popularity^"):
            return Popularity(float(law.partition("^")[2] or 1))
        if law == "hard" or law.startswith("hard:"):
            return Hard(int(law.partition(":")[2] or 5))
    except (ValueError, AttributeError):
        pass
    raise ParameterError(f"negatives is {law!r}; it is {NAMES}")


def check_drawable(train: Dataset) -> None:
    """A user who voted for everything has no negative: an error that names them."""
    full = np.flatnonzero(train.rows_per_user() >= train.n_items)
    if len(full):
        who = some(map(repr, train.users.take(full.astype(np.int32)).to_list()))
        raise DataError(
            f"the user {who} voted for all {train.n_items:,} items, so no unvoted item can be drawn. "
            "Leave them out of the training log: there is nothing left to recommend to them."
        )
