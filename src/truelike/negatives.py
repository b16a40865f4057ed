"""Sampling distributions of negatives: which unobserved items are drawn for a positive.

`Uniform()` draws every item with the same probability, `Popularity(alpha)` in proportion to popularity^alpha
(alpha = 1 is that of WBPR), and `Hard(n)` takes the best-scored of n uniform draws. A user's training positives
are never drawn. Any distribution can be combined with any sampled objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.errors import DataError, ParameterError, some

__all__ = ["Hard", "Negatives", "Popularity", "Uniform", "parse"]

NAMES = '"uniform", "popularity", "popularity^ALPHA", "hard" or "hard:N"'


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True)
class Negatives:
    """A sampling distribution of negatives.

    Parameters
    ----------
    alpha
        Items are drawn in proportion to popularity^alpha; 0 is uniform.
    candidates
        How many items are drawn for one negative. The one with the highest score is taken.
    """

    alpha: float = 0.0
    candidates: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.candidates >= 1):
            raise ParameterError(f"{self!r}: alpha must be finite, and candidates at least 1")
        if self.alpha and self.candidates > 1:
            raise ParameterError(f"{self!r}: hard negatives are the best of uniform draws, so alpha must be 0")

    @property
    def name(self) -> str:
        """The name that `parse` reads.

        >>> Popularity(0.5).name
        'popularity^0.5'
        """
        if self.candidates > 1:
            return f"hard:{self.candidates}"
        return f"popularity^{self.alpha}" if self.alpha else "uniform"

    def weights(self, popularity: NDArray[Any]) -> NDArray[np.float64]:
        """Return the probability of each item before the user's positives are excluded."""
        raised = np.maximum(popularity, 1e-9).astype(np.float64) ** self.alpha
        return np.asarray(raised / raised.sum())

    def probabilities(self, popularity: NDArray[Any], positives: NDArray[Any]) -> NDArray[np.float64]:
        """Return the probability of each item as a negative of a user with these positives (one candidate).

        All are 0 for a user who interacted with every item.

        >>> Uniform().probabilities(np.array([5, 1, 1]), np.array([0]))
        array([0. , 0.5, 0.5])
        """
        weights = self.weights(popularity)
        weights[positives] = 0.0
        return np.asarray(weights / (weights.sum() or 1.0))

    def tables(
        self, popularity: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float64]]:
        """Return Walker's alias table, as (probability to keep a column, alias of the column), and the weights.

        All three are empty for the uniform distribution, which needs no table.
        """
        if self.alpha == 0:
            return np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(0, np.float64)
        return alias_table(self.weights(popularity))


def alias_table(
    weights: NDArray[np.float64],
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float64]]:
    """Return Walker's alias table of probabilities that add up to 1, and these, as `Negatives.tables` does."""
    n, scaled = len(weights), weights * len(weights)
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


def Uniform() -> Negatives:  # noqa: N802 - reads as a class
    """Draw every unobserved item with the same probability (the paper's BPR, BPO and NBPO)."""
    return Negatives()


def Popularity(alpha: float = 1.0) -> Negatives:  # noqa: N802
    """Draw unobserved items in proportion to popularity^alpha (WBPR with alpha = 1)."""
    return Negatives(alpha=alpha)


def Hard(candidates: int = 5) -> Negatives:  # noqa: N802
    """Take the best-scored of a few uniform draws (dynamic negative sampling; Zhang et al., SIGIR 2013)."""
    return Negatives(candidates=candidates)


def is_distribution(value: Any) -> bool:
    """Return whether a value is a sampling distribution or the name of one.

    >>> is_distribution("popularity^0.5"), is_distribution(Uniform()), is_distribution("all")
    (True, True, False)
    """
    try:
        parse(value)
    except ParameterError:
        return False
    return True


def parse(name: Negatives | str) -> Negatives:
    """Return the distribution of a name: "uniform", "popularity", "popularity^0.5", "hard" or "hard:10".

    >>> parse("popularity^0.5")
    Negatives(alpha=0.5, candidates=1)
    """
    if isinstance(name, Negatives):
        return name
    if not isinstance(name, str):
        raise ParameterError(f"negatives is {some([repr(name)])}; it must be {NAMES}")
    try:
        if name == "uniform":
            return Uniform()
        if name == "popularity" or name.startswith("popularity^"):
            return Popularity(float(name.partition("^")[2] or 1))
        if name == "hard" or name.startswith("hard:"):
            return Hard(int(name.partition(":")[2] or 5))
    except ValueError:
        pass
    raise ParameterError(f"negatives is {name!r}; it must be {NAMES}")


def check_has_negatives(train: Any) -> None:
    """Raise an error that names the users who interacted with every item: they have no negatives."""
    full = np.flatnonzero(train.interactions_per_user() >= train.n_items)
    if len(full):
        users = some(map(repr, train.users.take(full.astype(np.int32)).to_list()))
        raise DataError(
            f"user {users} interacted with all {train.n_items:,} items, so no negative can be drawn. "
            "Leave such users out of the training data: there is no item left to recommend to them."
        )
