"""Structured exposure: user activity and item visibility, without an interaction term.

    p(y_ui = 1) = m_ui theta_ui        theta_ui = 1 - exp(-a_u b_i)        logit m_ui = quality_i + share z_u
                                       log a_u = (1 - share) z_u

a_u is the activity of user u, b_i the visibility of item i, and m_ui the probability that u likes i. z_u is why some
users have more interactions than others: partly they see more, partly they like more. The quantities are normal:
z ~ N(-s_z^2 / 2, s_z^2), log b ~ N(mu_b, s_b^2), quality ~ N(mu_m, s_m^2).

All is estimated from interactions alone, by empirical Bayes. Users and items are grouped by their numbers of
interactions. The five parameters mu and s are those under which the counts of users and items, and the interactions in
each cell of (group of items, group of users), are most likely. Then the count of a user, or of an item, has a
posterior of z, or of (b, quality), and a_u and b_i are such that p(shown) is the expected one. Cost: interactions
+ groups^2 + distinct counts.

Relative activity and visibility are identified by the counts. The level hardly is: where a b is small, only the product
p = m a b is known, and interactions that stop growing with activity, at m, tell it alone, blurred by tastes. So m has a
prior, `like_rate`. For one item the count does not tell visibility from quality either, and is attributed to both, in
the shares s_b^2 : s_m^2, so that a model with this exposure knows little of the quality of single items. The share of
the users' differences that is liking is set to one half.

A user who interacted with item i has, by that alone, one interaction more, so the groups of a pair are found without
the pair. Tastes make the interactions of a cell vary more than independent draws, so the likelihood of cells is divided
by their dispersion. Curves of single items follow the tastes of active users and are not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from truelike.core.parallel import one_blas_thread
from truelike.data.dataset import Dataset
from truelike.exposure.rates import ExposureRates

GROUPS = 30  # of users, and of items
LIKING_SHARE = 0.5  # how much of the differences between users is liking, not activity
LIKE_RATE, LEVEL_SPREAD = 0.1, 0.15  # the prior of mu_m: its logit, and how sure it is
QUALITY_SPREAD, QUALITY_SURENESS = 0.8, 0.1  # the prior of log s_m

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def structured(train: Dataset, like_rate: float = LIKE_RATE) -> ExposureRates:
    """Estimate the activity of users and the visibility of items from interactions alone.

    `like_rate` is about how likely a user likes an item. The level of exposure depends on it more than on the data.

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
    model = _Model(_Cells.of(train), float(logit(like_rate)))
    with one_blas_thread():  # the bits of a product must not depend on the number of threads
        user, item = model.rates(model.fitted(), train.interactions_per_user(), train.popularity())
    return ExposureRates(user.astype(np.float32), item.astype(np.float32))


class _Side:
    """Users, or items, by their numbers of interactions.

    `lowest` is the smallest count of each group. Equal counts are in one group, and groups are of about equal size.
    `values` are the counts (large ones are merged with those that are within 5 %), `sizes` how many have each, and
    `group` their group.
    """

    def __init__(self, counts: Ints) -> None:
        values, sizes = np.unique(counts, return_counts=True)
        middle = np.cumsum(sizes) - sizes / 2
        _, first = np.unique((middle / len(counts) * GROUPS).astype(np.int64), return_index=True)
        self.lowest = values[first]
        exact = 64
        merged = np.where(values <= exact, values, exact + np.log(np.maximum(values, 1) / exact) // np.log(1.05))
        keys = self.group_of(values) * 100_000 + merged.astype(np.int64)
        _, place = np.unique(keys, return_inverse=True)
        self.sizes = np.bincount(place, sizes)
        self.values = np.bincount(place, values * sizes) / self.sizes
        self.group = np.zeros(len(self.sizes), dtype=np.int64)
        self.group[place] = self.group_of(values)

    def group_of(self, counts: Ints) -> Ints:
        """Return the group of each count."""
        return np.maximum(np.searchsorted(self.lowest, counts, side="right") - 1, 0)

    def by_group(self, posterior: Array) -> Array:
        """Return the mean posterior of each group; that of a count is a row."""
        total = np.zeros((len(self.lowest), posterior.shape[1]))
        np.add.at(total, self.group, posterior * self.sizes[:, None])
        return np.asarray(total / np.bincount(self.group, self.sizes)[:, None])


@dataclass
class _Cells:
    """Interactions and other pairs, by the groups of the item and of the user, found without the pair itself."""

    users: _Side
    items: _Side
    n_users: int
    n_items: int
    interactions: Array
    others: Array

    @classmethod
    def of(cls, train: Dataset) -> _Cells:
        by_user, by_item = train.interactions_per_user(), train.popularity()
        users, items = _Side(by_user), _Side(by_item)
        shape = len(items.lowest), len(users.lowest)
        found = np.zeros((2, *shape))
        for less in (0, 1):
            user_group, item_group = (
                side.group_of(counts - less) for side, counts in ((users, by_user), (items, by_item))
            )
            cell = item_group[train.csr.indices] * shape[1] + user_group[train.user_of_entry]
            found[less] = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
        pairs = np.outer(*(np.bincount(side.group, side.sizes) for side in (items, users)))
        return cls(users, items, train.n_users, train.n_items, found[1], pairs - found[0])


class _Model:
    """The likelihood of the five parameters (mu_b, log s_b, mu_m, log s_m, log s_z), by sums over grids."""

    BOUNDS = ((-9.0, 2.0), (-1.2, 1.3), (-6.0, 1.5), (-1.2, 0.8), (-1.6, 0.5))

    def __init__(self, cells: _Cells, level: float = -2.2) -> None:
        self.cells, self.level = cells, level
        lowest = np.log(0.05 / cells.n_users)
        self.z = np.linspace(-4, 3, 41)
        self.log_b = np.linspace(lowest, np.log(40), int((np.log(40) - lowest) / 0.25) + 2)
        self.quality = np.linspace(-8, 2.5, 36)
        self.shown = -np.expm1(-np.exp((1 - LIKING_SHARE) * self.z[:, None] + self.log_b))
        self.liked = expit(self.quality + LIKING_SHARE * self.z[:, None])

    def fitted(self) -> Array:
        """Return the parameters. The first fit tells the dispersion of the cells."""
        options = {"maxiter": 200, "eps": 1e-5, "ftol": 1e-9}
        found, dispersion = np.array([-1.0, 0.0, self.level, np.log(QUALITY_SPREAD), np.log(0.7)]), 1.0
        for _ in range(2):
            found = minimize(
                self.loss, found, args=(dispersion,), method="L-BFGS-B", bounds=self.BOUNDS, options=options
            ).x
            p, n = self._of_cells(found)[0], self.cells.interactions + self.cells.others
            full = n * p > 1
            if full.any():
                squares = (self.cells.interactions - n * p) ** 2 / np.maximum(n * p * (1 - p), 1e-12)
                dispersion = max(1.0, float(squares[full].mean()))
        return np.asarray(found)

    def loss(self, parameters: Array, dispersion: float) -> float:
        """Return minus the log likelihood of cells and counts, and of the parameters by their priors."""
        cells = self.cells
        p, of_users, of_items = self._of_cells(parameters)
        logs = float((cells.interactions * np.log(p)).sum() + (cells.others * np.log1p(-p)).sum()) / dispersion
        logs += float(cells.users.sizes @ of_users + cells.items.sizes @ of_items)
        level = (parameters[2] - self.level) / LEVEL_SPREAD
        spread = (parameters[3] - np.log(QUALITY_SPREAD)) / QUALITY_SURENESS
        return float(0.5 * (level**2 + spread**2) - logs)

    def rates(self, parameters: Array, by_user: Ints, by_item: Ints) -> tuple[Array, Array]:
        """Return a_u and b_i, such that p(shown) of each, among all others, is the expected one."""
        cells = self.cells
        of_users, of_items, prior = self._posteriors(parameters, cells.users.values, cells.items.values)
        z = cells.users.sizes @ of_users[0] / cells.n_users
        b = (cells.items.sizes @ of_items[0] / cells.n_items).reshape(prior.shape).sum(axis=1)
        users, items = (np.unique(counts, return_inverse=True) for counts in (by_user, by_item))
        of_users, of_items, _ = self._posteriors(parameters, users[0], items[0])
        to_user, of_item = self.shown @ b, z @ self.shown
        log_a = (1 - LIKING_SHARE) * np.interp(of_users[0] @ to_user, to_user, self.z)
        visible = of_items[0].reshape(-1, *prior.shape).sum(axis=2)
        log_b = np.interp(visible @ of_item, of_item, self.log_b)
        return np.exp(log_a)[users[1]], np.exp(log_b)[items[1]]

    def _of_cells(self, parameters: Array) -> tuple[Array, Array, Array]:
        """Return p(interaction) in each cell, and the log likelihood of each count of users and items."""
        cells = self.cells
        of_users, of_items, _ = self._posteriors(parameters, cells.users.values, cells.items.values)
        users, items = cells.users.by_group(of_users[0]), cells.items.by_group(of_items[0])
        rate = self._interaction(users).reshape(len(users), -1) @ items.T
        return np.clip(rate.T, 1e-12, 1 - 1e-9), of_users[1], of_items[1]

    def _interaction(self, z: Array) -> Array:
        """Return p(interaction) with an item of each (b, quality), for each distribution of z."""
        weighted = z[:, :, None] * self.shown
        return np.asarray(np.matmul(weighted.transpose(0, 2, 1), self.liked))

    def _posteriors(
        self, parameters: Array, users: NDArray[Any], items: NDArray[Any]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
        """Return p(z | count) and p(b, quality | count), each with the log likelihood of the counts; the prior."""
        mu_b, s_b, mu_m, s_m, s_z = parameters
        z = _normal(self.z, -np.exp(2 * s_z) / 2, np.exp(s_z))
        b, quality = _normal(self.log_b, mu_b, np.exp(s_b)), _normal(self.quality, mu_m, np.exp(s_m))
        prior = np.outer(b, quality)
        of_user = self.cells.n_items * (self.shown @ b) * (self.liked @ quality)
        of_item = self.cells.n_users * self._interaction(z[None])[0]
        return _poisson(users, of_user, z), _poisson(items, of_item.ravel(), prior.ravel()), prior


def _normal(grid: Array, mean: float, spread: float) -> Array:
    """Return the probabilities of a normal distribution on a grid."""
    weights = np.exp(-0.5 * ((grid - mean) / spread) ** 2)
    return np.asarray(weights / max(weights.sum(), 1e-300))


def _poisson(counts: NDArray[Any], rate: Array, prior: Array) -> tuple[Array, Array]:
    """Return the posterior of each count over a grid of rates, and the log of its marginal likelihood."""
    logs = np.outer(counts, np.log(np.maximum(rate, 1e-300))) + (np.log(prior + 1e-300) - rate)
    largest = logs.max(axis=1, keepdims=True)
    weights = np.exp(logs - largest)
    total = weights.sum(axis=1, keepdims=True)
    return weights / total, (largest + np.log(total))[:, 0]
