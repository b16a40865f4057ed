"""Defaults that follow the data: how much of what is in the data may be noise.

Divide each interaction by sqrt(n_u n_i), with n_u the interactions of its user and n_i those of its item. If users
chose items at random, with the same numbers of interactions, no singular value of this matrix but the first would
exceed about 1 / sqrt(mean n_u) + 1 / sqrt(mean n_i): the edge of the noise. An L2 of rho n_u on the user's row and of
rho n_i on the item's row removes all components with singular values below rho, and reduces the others by rho. So the
best rho is in proportion to the edge. The factor was found on public datasets, leaving one out at a time: see
"Defaults" in the documentation.
"""

from __future__ import annotations

import numpy as np

from truelike.data.dataset import Dataset

EXACT_L2 = 0.5  # rho / edge of objectives over all items
IALS_L2 = 0.5
UNOBSERVED = 8.0  # weight of all unobserved pairs of IALS, in proportion to that of all interactions


def noise_edge(train: Dataset) -> float:
    """The largest singular value of noise, if each interaction is divided by sqrt(n_u n_i).

    Users and items without an interaction are left out: they do not change how much is known of the others.

    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> round(noise_edge(data), 2)
    1.41
    """
    return sum(float(1 / np.sqrt(count[count > 0].mean())) for count in _counts(train))


def density(train: Dataset) -> float:
    """The share of the pairs that are interactions, among users and items that have any."""
    users, items = ((count > 0).sum() for count in _counts(train))
    return float(train.n_interactions / (users * items))


def interactions_per_row(train: Dataset) -> float:
    """The geometric mean of the mean number of interactions of a user and that of an item.

    Users and items without an interaction are left out: they do not change how much is known of the others.
    """
    rows, columns = _counts(train)
    return float(np.sqrt(rows[rows > 0].mean() * columns[columns > 0].mean()))


def learning_rate(train: Dataset, factors: int) -> float:
    """A learning rate of Adam for tables of so many factors, up to a factor of the objective.

    With more factors each moves less. Rows with more interactions move further from where they start.
    """
    return float((interactions_per_row(train) / 166) ** 0.3 * np.sqrt(128 / factors))


def _counts(train: Dataset) -> tuple[np.ndarray, np.ndarray]:
    return train.interactions_per_user(), train.popularity()
