"""`RatingsWorld`: a semi-synthetic world. Real ratings decide who likes what, and exposure is simulated.

1. **Likes.** A model of the ratings predicts the rating of every pair, and a logistic function, fitted to ratings that
   the model has not seen, turns it into p(rating >= min_rating). That is p(like) of the pair.
2. **Exposure.** As in `World`: user u gets a_u impressions, each drawn from the items by their visibility. Activity
   follows the number of ratings of a user, visibility that of an item to the power `exposure_skew`.
3. **Interactions.** A pair is observed if it is liked and shown.

The model of ratings is a Gaussian process per user, with the covariance of items as its kernel: biases of users and
items, and f_u = K[:, R] (K[R, R] + noise I)^-1 residuals[R] over the items R that the user rated. It is not a
factorization, so the truth is not of the form of the models that are tested on it: 20 factors hold less than half of
the variance of its tastes on MovieLens 1M. `factors=20` makes it one, for comparison. Its error on unseen ratings of
MovieLens 1M is .84, that of the biases alone .88.

Schnabel et al., ICML 2016, and Saito et al., WSDM 2020, make data from completed ratings in this way, with
factorizations.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit

from truelike.core import randomness
from truelike.core.parallel import one_blas_thread
from truelike.data.checks import check_number
from truelike.data.dataset import Dataset
from truelike.data.known_world import MOST_PAIRS, KnownWorld
from truelike.data.read import read
from truelike.errors import DataError, ParameterError

HELD_OUT = 0.1  # the share of ratings that the logistic function is fitted to
SHRINKAGE = 100.0  # of covariances: as if so many users with independent residuals had rated both items
BIAS_SHRINKAGE = 5.0
ROUNDS = 10  # of biases

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RatingsWorld(KnownWorld):
    """Users and items of a table of ratings, with known likes and known exposure.

    Parameters
    ----------
    ratings
        A Dataset whose weights are ratings, such as `tl.datasets.movielens_ratings()`; or a table in any form that
        `tl.read` accepts, with a column `rating`.
    n_users, n_items
        The numbers of users and items, those with most ratings; fewer if there are not as many.
    impressions_per_user
        The mean number of impressions of a user.
    like_rate
        The share of all pairs that are truly liked. None: that of the model of ratings, which is high, because users
        rate what they like.
    min_rating
        The least rating that is a like.
    exposure_skew
        Visibility is the number of ratings to this power; at 0, all items are equally visible.
    factors
        Reduce the tastes to so many factors. None: the model of ratings as it is.
    seed
        Decides likes and impressions. Their probabilities depend on the ratings alone.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = [(u, i, int(rng.integers(1, 6))) for u in range(40) for i in range(u % 5, 30, 2)]
    >>> world = RatingsWorld(pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row"))
    >>> world.dataset()
    Dataset(... interactions, 40 users, 30 items, sparsity ...)
    >>> world.varied(seed=1).truth()
    Truth(... likes of all 1,200 pairs)
    """

    ratings: Any
    n_users: int = 2_000
    n_items: int = 1_000
    impressions_per_user: float = 300.0
    like_rate: float | None = 0.15
    min_rating: float = 4.0
    exposure_skew: float = 1.0
    factors: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high, whole in (
            ("n_users", 2, 2**31 - 1, True),
            ("n_items", 2, 2**31 - 1, True),
            ("impressions_per_user", 1, None, False),
            ("like_rate", 1e-6, 1 - 1e-6, False),
            ("min_rating", None, None, False),
            ("exposure_skew", 0, 5, False),
            ("factors", 1, None, True),
            ("seed", None, None, True),
        ):
            if not (getattr(self, name) is None and name in ("like_rate", "factors")):
                check_number(name, getattr(self, name), low=low, high=high, whole=whole)
        table = self.ratings if isinstance(self.ratings, Dataset) else read(self.ratings, weight="rating")
        users, items = (_most(counts) for counts in (table.interactions_per_user(), table.popularity()))
        kept = table.restrict(users(self.n_users), items(self.n_items))
        for name, value in (("ratings", kept), ("n_users", kept.n_users), ("n_items", kept.n_items)):
            object.__setattr__(self, name, value)  # the class is frozen
        if self.n_users * self.n_items > MOST_PAIRS:
            raise ParameterError(
                f"a world of ratings has at most {MOST_PAIRS:,} pairs; ask for fewer users or items"
            )
        liked = kept.csr.data >= self.min_rating
        if not (kept.n_interactions and 0 < liked.mean() < 1):
            raise DataError(
                f"of {kept.n_interactions:,} ratings {int(liked.sum()):,} are {self.min_rating:g} or more; a world "
                "needs likes and dislikes. Check min_rating, and that the weights of the dataset are ratings."
            )

    def varied(self, **changes: Any) -> RatingsWorld:
        """Return this world with other parameters. The model of ratings is not fitted again, unless it changes.

        >>> rows = [(u, i, 1 + (u + i) % 5) for u in range(9) for i in range(8)]
        >>> world = RatingsWorld(pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row"))
        >>> world.varied(exposure_skew=2.0).exposure_skew
        2.0
        """
        if unknown := set(changes) - {field.name for field in fields(self)}:
            raise ParameterError(f"a world of ratings has no {', '.join(sorted(unknown))}")
        other = replace(self, **changes)
        if not set(changes) & {"ratings", "n_users", "n_items", "min_rating"}:
            other.__dict__["_predicted"] = self._predicted
        return other

    def exposure_counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of real ratings of each user and of each item, from which exposure is made."""
        ratings: Dataset = self.ratings
        return ratings.interactions_per_user(), ratings.popularity()

    # --- what a world is --------------------------------------------------------------------------

    def _likes_of_pairs(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(expit(self._logits[users, items].astype(np.float64)))

    def _activity_of_users(self) -> NDArray[np.int64]:
        counts = self.exposure_counts()[0]
        expected = self.impressions_per_user * counts / counts.mean()
        rounded: NDArray[np.int64] = np.maximum(1, np.rint(expected)).astype(np.int64)
        return rounded

    def _visibility_of_items(self) -> NDArray[np.float64]:
        weight = self.exposure_counts()[1].astype(np.float64) ** self.exposure_skew
        return np.asarray(weight / weight.sum())

    def _titles_of_items(self) -> pl.Series | None:
        titles: pl.Series | None = self.ratings.titles
        return titles

    def _key(self, *stream: str | int) -> int:
        return randomness.key(self.seed, "ratings world", *stream)

    @cached_property
    def _logits(self) -> NDArray[np.float32]:
        """The logits of p(like) of all pairs, shifted to the rate of likes."""
        with one_blas_thread():  # the bits of a product must not depend on the number of threads
            base, tastes = self._predicted
            if self.factors is not None and self.factors < min(tastes.shape):
                left, size, right = np.linalg.svd(tastes, full_matrices=False)
                tastes = (left[:, : self.factors] * size[: self.factors]) @ right[: self.factors]
            logits = base + tastes
        if self.like_rate is not None:
            logits += _shift(logits, self.like_rate)
        return logits.astype(np.float32)

    @cached_property
    def _predicted(self) -> tuple[Matrix, Matrix]:
        """The logits of p(rating >= min_rating) of all pairs: of biases, and of tastes."""
        with one_blas_thread():
            return _model(self.ratings, self.min_rating)


def _most(counts: NDArray[np.int64]) -> Any:
    """A function that marks the n entries with the largest counts that are not 0; of equal ones the first."""

    def mark(n: int) -> NDArray[np.bool_]:
        marked = np.zeros(len(counts), dtype=bool)
        marked[np.argsort(-counts, kind="stable")[:n]] = True
        return marked & (counts > 0)

    return mark


def _model(ratings: Dataset, min_rating: float) -> tuple[Matrix, Matrix]:
    """Return the logits of p(rating >= min_rating) of all pairs: of biases, and of tastes."""
    csr = ratings.csr
    users, items, values = ratings.entry_users, csr.indices, csr.data.astype(np.float64)
    pair = users.astype(np.int64) * ratings.n_items + items
    unseen = randomness.uniform(randomness.key(0, "held-out ratings"), pair) < HELD_OUT
    if not unseen.any() or unseen.all():
        unseen = np.arange(len(pair)) % 10 == 0
    known, value = np.zeros(csr.shape, dtype=bool), np.zeros(csr.shape)
    known[users[~unseen], items[~unseen]] = True
    value[users, items] = values
    base = _biases(np.where(known, value, 0.0), known)
    residuals = np.where(known, value - base, 0.0)
    tastes = _tastes(residuals, known)
    predicted = (base + tastes)[users[unseen], items[unseen]] - min_rating
    intercept, slope = _logistic(predicted, values[unseen] >= min_rating)
    return intercept + slope * (base - min_rating), slope * tastes


def _biases(values: Matrix, known: NDArray[np.bool_]) -> Matrix:
    """Return mean + bias of the user + bias of the item, of all pairs."""
    mean = values[known].mean()
    of_user, of_item = np.zeros((len(values), 1)), np.zeros((1, values.shape[1]))
    n_user, n_item = (known.sum(axis=axis, keepdims=True) + BIAS_SHRINKAGE for axis in (1, 0))
    for _ in range(ROUNDS):
        of_item = np.where(known, values - mean - of_user, 0).sum(axis=0, keepdims=True) / n_item
        of_user = np.where(known, values - mean - of_item, 0).sum(axis=1, keepdims=True) / n_user
    return np.asarray(mean + of_user + of_item)


def _tastes(residuals: Matrix, known: NDArray[np.bool_]) -> Matrix:
    """Return the expected residual of all pairs: a Gaussian process per user, with the covariance of items."""
    both = known.astype(np.float64)
    kernel = residuals.T @ residuals / (both.T @ both + SHRINKAGE)
    np.fill_diagonal(kernel, kernel.diagonal() / 2)  # about half of a residual's variance is noise
    size, directions = np.linalg.eigh(kernel)
    kernel = (directions * np.maximum(size, 0)) @ directions.T
    noise = float((residuals**2).sum() / known.sum()) + 1e-9
    expected = np.zeros_like(residuals)
    for user, rated in enumerate(map(np.flatnonzero, known)):
        gram = kernel[np.ix_(rated, rated)] + noise * np.eye(len(rated))
        expected[user] = kernel[:, rated] @ np.linalg.solve(gram, residuals[user, rated])
    return expected


def _logistic(x: Matrix, liked: NDArray[np.bool_]) -> tuple[float, float]:
    """Return intercept and slope of a logistic regression, by Newton's method with a weak prior of slope 2."""
    design = np.stack([np.ones_like(x), x], axis=1)
    prior, target = np.diag([0.1, 1.0]), np.array([0.0, 2.0])
    weights = np.zeros(2)
    for _ in range(30):
        p = expit(design @ weights)
        gradient = design.T @ (liked - p) - prior @ (weights - target)
        weights += np.linalg.solve((design * (p * (1 - p))[:, None]).T @ design + prior, gradient)
    return float(weights[0]), float(weights[1])


def _shift(logits: Matrix, rate: float) -> float:
    """Return what is to be added to the logits so that their mean probability is `rate`."""
    low, high = logit(rate) - logits.max(), logit(rate) - logits.min()
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(logits + middle).mean() < rate else (low, middle)
    return float(low)
