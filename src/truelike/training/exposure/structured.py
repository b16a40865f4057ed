"""Structured exposure: user activity and item visibility, without an interaction term.

    p(y_ui = 1) = m_i (1 - exp(-a_u b_i))        log a_u ~ N(-s_a^2 / 2, s_a^2)
                                                 log b_i ~ N(mu_b, s_b^2)       logit m_i ~ N(mu_m, s_m^2)

a_u is the activity of a user, b_i the visibility of an item, m_i the share of users who like it (its quality). All
of it is estimated from interactions alone, by empirical Bayes: EM over the five parameters of the priors, with exact
sums over grids of log a, log b and logit m. Its data is, for each item, the number of interactions in each group of
users with similar numbers of interactions. So it costs interactions + (users + items) x groups.

What is identified:

- Relative activity: a_u follows the number of interactions of the user.
- The level m, and with it that of exposure, only by saturation. Where a b is small, p = m a b, and only the product is
  known. Where items were shown to nearly all active users, interactions stop growing with activity, at m. The larger
  the spread of activity, the clearer.
- Visibility versus quality of an item, in the same way: interactions with a visible item grow slower with activity than
  those with a good one. Where a single item does not tell, its popularity is attributed to both, in the shares
  s_b^2 : s_m^2 that all items together suggest. A weak prior of s_m keeps the shares sane where none tells.
- Not identified: that active users like more, or that items are shown to those who like them. Both look like
  activity, or like preferences.

A user who interacted with item i has, by that alone, one interaction more. Grouped by all interactions, users would
show interactions that grow in proportion to activity, and nothing would seem saturated. So the group of a user is
found without the item that is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.parallel import one_blas_thread
from truelike.training.exposure.rates import ExposureRates

BASIS = "assumed: user activity and item visibility"
GROUPS = 40  # of users
SAMPLE = 4_000  # items of which the priors are learned; all of them get an estimate
ITERATIONS = 200
QUALITY_SPREAD, QUALITY_ITEMS = 0.6, 20.0  # the prior of s_m: as if so many items had shown this spread

Array = NDArray[np.float64]


@dataclass
class _Priors:
    """The parameters of the priors."""

    activity_spread: float
    visibility: float
    visibility_spread: float
    quality: float
    quality_spread: float


class _Grids:
    """The values of log a, log b and logit m over which sums run, and p(shown) of each a and b."""

    def __init__(self, n_users: int) -> None:
        self.log_a = np.linspace(-4, 3, 57)
        self.log_b = np.linspace(np.log(0.05 / n_users), np.log(40), 49)
        self.logit_m = np.linspace(-7, 2, 31)
        self.m = expit(self.logit_m)
        self.shown = -np.expm1(-np.exp(self.log_a[:, None] + self.log_b))


def structured(train: Dataset | Blocks) -> ExposureRates:
    """Estimate the activity of users and the visibility of items from interactions alone.

    Examples
    --------
    >>> import truelike as tl
    >>> world = tl.synthetic.World(n_users=600, n_items=300, impressions_per_user=90, exposure_skew=1.8)
    >>> rates = structured(world.dataset())
    >>> users, items = (each.ravel() for each in np.indices((600, 300)))
    >>> truth = 1 - world.flip_probability(users, items)
    >>> bool(np.corrcoef(truth, rates.propensity(users, items))[0, 1] > 0.7)
    True
    """
    counts = _Counts(train)
    with one_blas_thread():  # the bits of a product must not depend on the number of threads
        user, item = _estimate(counts, train)
    return ExposureRates(user.astype(np.float32), item.astype(np.float32), BASIS)


class _Counts:
    """Interactions by item and group of users.

    Attributes
    ----------
    values, users_of_value, value_of_user
        The distinct numbers of interactions of users, how many users have each, and which a user has.
    group_of_value
        The group of each distinct number.
    liked, others
        For each item and group: users who interacted with the item, grouped without it; and all others.
    """

    def __init__(self, train: Dataset | Blocks) -> None:
        counts = train.interactions_per_user()
        self.values, self.value_of_user, self.users_of_value = np.unique(
            counts, return_inverse=True, return_counts=True
        )
        middle = np.cumsum(self.users_of_value) - self.users_of_value / 2
        _, self.group_of_value = np.unique((middle / len(counts) * GROUPS).astype(np.int64), return_inverse=True)
        self.n_groups = int(self.group_of_value.max()) + 1
        size = np.bincount(self.group_of_value, self.users_of_value, self.n_groups)
        one_less = np.maximum(np.searchsorted(self.values, self.values - 1, side="right") - 1, 0)
        shape = (train.n_items, self.n_groups)
        with_item, without_item = np.zeros(shape), np.zeros(shape)
        for users, items in _entries(train):
            value = self.value_of_user[users]
            for found, group in (
                (with_item, self.group_of_value[value]),
                (without_item, self.group_of_value[one_less[value]]),
            ):
                found += np.bincount(items * self.n_groups + group, minlength=found.size).reshape(shape)
        self.liked, self.others = without_item, size - with_item


def _entries(train: Dataset | Blocks) -> Iterator[tuple[Codes, NDArray[np.int64]]]:
    """Users and items of the interactions, a block at a time."""
    if isinstance(train, Dataset):
        yield train._user_of_entry, train._csr.indices.astype(np.int64)
        return
    for block in train:
        users = np.arange(block.first_user, block.first_user + block.n_users, dtype=np.int32)
        yield np.repeat(users, np.diff(block.indptr)), block.indices.astype(np.int64)


def _estimate(counts: _Counts, train: Dataset | Blocks) -> tuple[Array, Array]:
    grids = _Grids(train.n_users)
    order = np.argsort(-train.popularity(), kind="stable")
    sample = np.sort(order[:: -(-train.n_items // SAMPLE)])
    scale = train.n_items / len(sample)
    mean = train.n_interactions / train.n_users
    level = np.log(np.clip(4 * mean / train.n_items, 0.02, 0.5))
    priors = _Priors(0.8, 0.0, 1.0, float(level), QUALITY_SPREAD)
    start = np.log((counts.values + 0.5) / (mean + 0.5)) - priors.activity_spread**2 / 2
    activity = _normalised(-0.5 * ((grids.log_a - start[:, None]) / 0.3) ** 2)
    for _ in range(ITERATIONS):
        items = _item_posterior(counts, grids, priors, activity, sample)
        weight = items.sum(axis=0)
        _learn_items(priors, grids, weight)
        expected = grids.shown @ (weight @ grids.m) * scale  # interactions of a user of each activity
        activity = _user_posterior(counts, grids, priors, expected)
    everything = np.arange(train.n_items)
    log_b = np.concatenate(
        [
            _item_posterior(counts, grids, priors, activity, everything[first : first + SAMPLE]).sum(axis=2)
            @ grids.log_b
            for first in range(0, train.n_items, SAMPLE)
        ]
    )
    return np.exp(activity @ grids.log_a)[counts.value_of_user], np.exp(log_b)


def _item_posterior(
    counts: _Counts, grids: _Grids, priors: _Priors, activity: Array, items: NDArray[np.int64]
) -> Array:
    """Return p(b, m | the interactions of an item): items x grid of b x grid of m."""
    by_group = np.zeros((counts.n_groups, len(grids.log_a)))
    np.add.at(by_group, counts.group_of_value, activity * counts.users_of_value[:, None])
    by_group /= by_group.sum(axis=1, keepdims=True)
    shown = by_group @ grids.shown
    p = np.clip(shown[:, :, None] * grids.m, 1e-12, 1 - 1e-9).reshape(counts.n_groups, -1)
    prior_b = ((grids.log_b - priors.visibility) / priors.visibility_spread) ** 2
    prior_m = ((grids.logit_m - priors.quality) / priors.quality_spread) ** 2
    logs = counts.liked[items] @ np.log(p) + counts.others[items] @ np.log1p(-p)
    logs -= 0.5 * (prior_b[:, None] + prior_m).ravel()
    return _normalised(logs).reshape(len(items), len(grids.log_b), len(grids.logit_m))


def _learn_items(priors: _Priors, grids: _Grids, weight: Array) -> None:
    n = float(weight.sum())
    by_b, by_m = weight.sum(axis=1), weight.sum(axis=0)
    priors.visibility = float(by_b @ grids.log_b) / n
    priors.quality = float(by_m @ grids.logit_m) / n
    square_b = float(by_b @ (grids.log_b - priors.visibility) ** 2)
    square_m = float(by_m @ (grids.logit_m - priors.quality) ** 2)
    priors.visibility_spread = float(np.sqrt(square_b / n + 1e-4))
    priors.quality_spread = float(np.sqrt((square_m + QUALITY_ITEMS * QUALITY_SPREAD**2) / (n + QUALITY_ITEMS)))


def _user_posterior(counts: _Counts, grids: _Grids, priors: _Priors, expected: Array) -> Array:
    """Return p(a | the number of interactions): distinct numbers x grid of a; learn the spread of a."""
    spread = priors.activity_spread
    distance = grids.log_a + spread**2 / 2
    logs = counts.values[:, None] * np.log(expected) - expected - 0.5 * (distance / spread) ** 2
    posterior = _normalised(logs)
    priors.activity_spread = float(np.sqrt(np.average(posterior @ distance**2, weights=counts.users_of_value)))
    return posterior


def _normalised(logs: Array) -> Array:
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
