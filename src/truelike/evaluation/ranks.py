"""Ranks of models over datasets, and a test of them by permutation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.errors import ParameterError
from truelike.evaluation.metrics import Floats
from truelike.evaluation.significance import LEVEL

FEWEST_DATASETS = 3  # with two, models can hardly be ordered in more than one way


def ranks_of(values: Floats) -> Floats:
    """The ranks of the columns in each row: 1 is the highest value, equal ones share the mean of their ranks.

    >>> ranks_of(np.array([[0.3, 0.1, 0.3]])).tolist()
    [[1.5, 3.0, 1.5]]
    """
    from scipy.stats import rankdata

    ranks: Floats = rankdata(-values, axis=1)
    return ranks


def friedman(ranks: Floats) -> float:
    """Friedman's statistic of ranks (datasets x models), corrected for ties; 0 if all are tied.

    >>> friedman(np.array([[1.0, 2.0, 3.0]] * 4))
    8.0
    """
    n, k = ranks.shape
    middle = (k + 1) / 2
    spread = float(((ranks - middle) ** 2).sum())
    return float((k - 1) * ((ranks.sum(axis=0) - n * middle) ** 2).sum() / spread) if spread else 0.0


@dataclass(frozen=True, eq=False)
class RankTest:
    """Whether the mean ranks of models over datasets differ by more than chance.

    If all models were equal, each order of a dataset's ranks would be as likely. The p-values are the shares of drawn
    orders, drawn for each dataset, that differ as much as what was found: `p` by Friedman's statistic, and
    `p_of_pairs` by the largest difference of two mean ranks, as in Nemenyi's test, so that all pairs are corrected
    together. For many datasets these are the tests of Friedman and Nemenyi; for few they are exact but for the draws.

    Attributes
    ----------
    ranks
        Of each model on each dataset: datasets x models.
    statistic, p
        Friedman's statistic and its p-value: whether any two models differ.
    p_of_pairs
        The corrected p-value of each pair of models.
    critical_difference
        The smallest difference of mean ranks with p < 0.05; None where none is large enough.
    smallest_p
        The smallest p-value that a pair can have with so many models and datasets without ties.

    Examples
    --------
    >>> found = RankTest.of(np.array([[0.3, 0.2, 0.1]] * 5))
    >>> found.mean_ranks.tolist(), found.p < 0.01, found.critical_difference
    ([1.0, 2.0, 3.0], True, 1.6)
    """

    ranks: Floats
    statistic: float
    p: float
    p_of_pairs: Floats
    critical_difference: float | None

    @classmethod
    def of(cls, values: Floats, *, draws: int = 20_000, seed: int = 0) -> RankTest:
        """Test a metric of datasets x models, of which more is better."""
        n, k = values.shape
        if n < FEWEST_DATASETS or k < 2:
            raise ParameterError(
                f"a test of ranks needs {FEWEST_DATASETS} datasets and 2 models; {n} and {k} given"
            )
        ranks = ranks_of(values)
        sums = _drawn_sums(ranks, draws, seed)
        spread = np.sort(np.ptp(sums, axis=1))
        found = np.abs(ranks.sum(axis=0)[:, None] - ranks.sum(axis=0))
        # ranks are halves, so sums are exact
        of_pairs = (1 + draws - np.searchsorted(spread, found)) / (1 + draws)
        off_centre = ((sums - n * (k + 1) / 2) ** 2).sum(axis=1)
        at_least = np.count_nonzero(off_centre >= ((ranks.sum(axis=0) - n * (k + 1) / 2) ** 2).sum())
        return cls(ranks, friedman(ranks), float((1 + at_least) / (1 + draws)), of_pairs, _critical(spread, n))

    @property
    def mean_ranks(self) -> Floats:
        """The mean rank of each model."""
        means: Floats = self.ranks.mean(axis=0)
        return means

    @property
    def smallest_p(self) -> float:
        """The smallest p-value that a pair of models can have."""
        n, k = self.ranks.shape
        return float((k * (k - 1)) ** (1 - n))


def _drawn_sums(ranks: Floats, draws: int, seed: int) -> NDArray[np.float64]:
    """Sums over datasets of ranks in drawn orders: draws x models."""
    n, k = ranks.shape
    sums = np.zeros((draws, k))
    for dataset in range(n):
        drawn = randomness.uniform(randomness.key(seed, "ranks", dataset), np.arange(draws * k))
        sums += ranks[dataset][np.argsort(drawn.reshape(draws, k), axis=1)]
    return sums


def _critical(spread: Floats, n: int) -> float | None:
    """The smallest difference of mean ranks that is significant, of sorted differences of drawn sums."""
    sizes, first = np.unique(spread, return_index=True)
    significant = sizes[(1 + len(spread) - first) / (1 + len(spread)) < LEVEL]
    return float(significant[0] / n) if len(significant) else None
