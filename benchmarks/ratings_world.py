"""`RatingsWorld`: a semi-synthetic world. Real ratings decide who likes what, and exposure is simulated.

1. **Likes.** A model of the ratings predicts the rating of every pair, and a logistic function, fitted to ratings that
   the model has not seen, turns it into p(rating >= min_rating). That is p(like) of the pair.
2. **Exposure.** As in `World`: user u gets a_u impressions, each drawn from the items by their visibility. Activity
   follows the number of ratings of a user, visibility that of an item to the power `exposure_skew`.
3. **Interactions.** A pair is observed if it is liked and shown.

The model of ratings is a Gaussian process per user, with the covariance of items as its kernel: biases of users and
items, and f_u = K[:, R] (K[R, R] + noise I)^-1 residuals[R] over the items R that the user rated. It is not a
factorization, so the truth is not of the form of the models that are tested on it: 20 factors hold less than half of
the variance of its tastes on MovieLens 1M. Its error on unseen ratings of MovieLens 1M is .84, that of the biases alone
.88.

Schnabel et al., ICML 2016, and Saito et al., WSDM 2020, make data from completed ratings in this way, with
factorizations.
"""

from __future__ import annotations

import io
import zipfile
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit

import truelike as tl
from truelike import Dataset
from truelike.core import randomness
from truelike.core.parallel import one_blas_thread
from truelike.synthetic import World

HELD_OUT = 0.1  # the share of ratings that the logistic function is fitted to
SHRINKAGE = 100.0  # of covariances: as if so many users with independent residuals had rated both items
BIAS_SHRINKAGE = 5.0
ROUNDS = 10  # of biases

Matrix = NDArray[np.float64]


def movielens_ratings() -> Dataset:
    """The ratings of MovieLens 1M, 1 to 5, as the weights of a Dataset."""
    with zipfile.ZipFile(tl.datasets.fetch("ml-1m")[0]) as bundle:
        table = io.BytesIO(bundle.read("ml-1m/ratings.dat").replace(b"::", b"\t"))
    frame = pl.read_csv(table, separator="\t", has_header=False, new_columns=["user", "item", "rating", "time"])
    return tl.read(frame, weight="rating", name="ml-1m ratings")


class RatingsWorld(World):
    """Users and items of a table of ratings, with known likes and known exposure.

    Parameters
    ----------
    ratings
        A Dataset whose weights are ratings.
    n_users, n_items
        The numbers of users and items, those with most ratings; fewer if there are not as many.
    impressions_per_user
        The mean number of impressions of a user.
    like_rate
        The share of all pairs that are truly liked.
    min_rating
        The least rating that is a like.
    exposure_skew
        Visibility is the number of ratings to this power; at 0, all items are equally visible.
    seed
        Decides likes and impressions. Their probabilities depend on the ratings alone.
    """

    def __init__(
        self,
        ratings: Dataset,
        n_users: int = 2_000,
        n_items: int = 1_000,
        impressions_per_user: float = 300.0,
        like_rate: float = 0.15,
        min_rating: float = 4.0,
        exposure_skew: float = 1.0,
        seed: int = 0,
    ) -> None:
        users, items = (_most(counts) for counts in (ratings.interactions_per_user(), ratings.popularity()))
        kept = ratings.restrict(users(n_users), items(n_items))
        super().__init__(
            kept.n_users, kept.n_items, impressions_per_user=impressions_per_user, like_rate=like_rate,
            exposure_skew=exposure_skew, seed=seed,
        )  # fmt: skip
        object.__setattr__(self, "ratings", kept)
        object.__setattr__(self, "min_rating", min_rating)

    def with_seed(self, seed: int) -> RatingsWorld:
        """The same world with other likes and impressions, of the same probabilities."""
        other = copy(self)
        object.__setattr__(other, "_logits", self._logits)  # the model of ratings is fitted once
        object.__setattr__(other, "seed", seed)
        return other

    def _likes_of_pairs(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(expit(self._logits[users, items].astype(np.float64)))

    @cached_property
    def _activity(self) -> NDArray[np.int64]:
        counts = self.ratings.interactions_per_user()
        return np.maximum(1, np.rint(self.impressions_per_user * counts / counts.mean())).astype(np.int64)

    @cached_property
    def _visibility(self) -> NDArray[np.float64]:
        weight = self.ratings.popularity().astype(np.float64) ** self.exposure_skew
        return np.asarray(weight / weight.sum())

    def _titles(self) -> pl.Series | None:
        return self.ratings.titles

    def _key(self, *stream: str | int) -> int:
        return randomness.key(self.seed, "ratings world", *stream)

    @cached_property
    def _logits(self) -> NDArray[np.float32]:
        """The logits of p(like) of all pairs, shifted to the rate of likes."""
        with one_blas_thread():  # the bits of a product must not depend on the number of threads
            base, tastes = _model(self.ratings, self.min_rating)
            logits = base + tastes
        return (logits + _shift(logits, self.like_rate)).astype(np.float32)


def _most(counts: NDArray[np.int64]) -> Any:
    """A function that marks the n entries with the largest counts that are not 0; of equal ones the first."""

    def mark(n: int) -> NDArray[np.bool_]:
        marked = np.zeros(len(counts), dtype=bool)
        marked[np.argsort(-counts, kind="stable")[:n]] = True
        return marked & (counts > 0)

    return mark


def _model(ratings: Dataset, min_rating: float) -> tuple[Matrix, Matrix]:
    """Return the logits of p(rating >= min_rating) of all pairs: of biases, and of tastes."""
    csr = ratings.matrix
    users, items, values = ratings.user_of_entry, csr.indices, csr.data.astype(np.float64)
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
