"""Defaults that follow the data: how much of what is in the data may be noise.

Divide each interaction by sqrt(n_u n_i), with n_u the interactions of its user and n_i those of its item. If users
chose items at random, with the same numbers of interactions, no singular value of this matrix but the first would
exceed about 1 / sqrt(mean n_u) + 1 / sqrt(mean n_i): the edge of the noise. An L2 of rho n_u on the user's row and of
rho n_i on the item's row removes all components with singular values below rho, and reduces the others by rho. So the
best rho is in proportion to the edge. The factors were found on eight public datasets with 3 to 130 interactions a
user.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from truelike.core import randomness
from truelike.core.arrays import Codes, Counts, Doubles
from truelike.data.protocol import Interactions

EXACT_L2 = 0.5  # rho / edge of objectives over all items
IALS_L2 = 0.5
UNOBSERVED = 8.0  # weight of all unobserved pairs of IALS, in proportion to that of all interactions
LIFT_SAMPLES = 100_000
LIFT_INTERACTIONS = 2_000_000  # of a larger dataset, some users with about as many are used


def noise_edge(train: Interactions) -> float:
    """The largest singular value of noise, if each interaction is divided by sqrt(n_u n_i).

    Users and items without an interaction are left out: they do not change how much is known of the others.

    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> round(noise_edge(data), 2)
    1.41
    """
    return sum(float(1 / np.sqrt(count[count > 0].mean())) for count in _counts(train))


def density(train: Interactions) -> float:
    """The share of the pairs that are interactions, among users and items that have any."""
    users, items = ((count > 0).sum() for count in _counts(train))
    return float(train.n_interactions / (users * items))


def interactions_per_row(train: Interactions) -> float:
    """The geometric mean of the mean number of interactions of a user and that of an item.

    Users and items without an interaction are left out: they do not change how much is known of the others.
    """
    rows, columns = _counts(train)
    return float(np.sqrt(rows[rows > 0].mean() * columns[columns > 0].mean()))


def learning_rate(train: Interactions, factors: int) -> float:
    """A learning rate of Adam for tables of so many factors, up to a factor of the objective.

    With more factors each moves less. Rows with more interactions move further from where they start.
    """
    return float((interactions_per_row(train) / 166) ** 0.3 * np.sqrt(128 / factors))


def lift(train: Interactions) -> float:
    """How much more often users who share an item share another one than popularity explains; at least 1.

    An interaction (u, i), another item k of u and another user w of i are drawn at random. The share of draws in which
    w interacted with k is divided by the share that is expected if w's items were drawn by popularity. It is 1.0 on
    MovieLens 1M, 1.2 on the Amazon split and 11 on citeulike, whose users and items form many small groups. The draws
    are fixed, so the value depends on the data alone.
    """
    popularity, n = train.popularity().astype(np.float64), train.n_interactions
    by_user = train.every(max(1, n // LIFT_INTERACTIONS))
    by_item, per_user = by_user.tocsc(), np.diff(by_user.indptr).astype(np.float64)
    draws = [randomness.uniform(randomness.key(0, "lift", k), np.arange(LIFT_SAMPLES)) for k in range(3)]

    def one_of(rows: sparse.csr_array, codes: Codes, draw: Doubles) -> Codes:
        """A random column of each of some rows."""
        start, stop = rows.indptr[codes], rows.indptr[codes + 1]
        chosen: Codes = rows.indices[start + (draw * (stop - start)).astype(np.int64)]
        return chosen

    first = (draws[0] * by_item.nnz).astype(np.int64)
    users = by_item.indices[first]
    items = np.searchsorted(by_item.indptr, first, side="right") - 1
    others, sharing = one_of(by_user, users, draws[1]), one_of(by_item, items, draws[2])
    chosen = (others != items) & (sharing != users)
    others, sharing = others[chosen], sharing[chosen]
    expected = np.minimum((per_user[sharing] - 1) * (popularity[others] - 1) / n, 1.0).sum()
    users_of_pairs = np.repeat(np.arange(len(per_user)), np.diff(by_user.indptr))
    pairs = users_of_pairs * train.n_items + by_user.indices  # sorted
    wanted = sharing.astype(np.int64) * train.n_items + others
    found = np.count_nonzero(pairs[np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)] == wanted)
    return max(1.0, float(found / expected)) if expected else 1.0


def _counts(train: Interactions) -> tuple[Counts, Counts]:
    return train.interactions_per_user(), train.popularity()
