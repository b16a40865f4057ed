"""Exposure by popularity to a power, the propensity of Rel-MF.

Saito, Yaginuma, Nishino, Sakata, Nakata, "Unbiased Recommender Learning from Missing-Not-At-Random Implicit Feedback",
WSDM 2020 (there, the power is 0.5):

    theta_i = (n_i / max_j n_j)^power

n_i is the number of users of item i. theta is the same for all users. It is an assumption and not an estimate: an item
that is liked by many is taken for one that is shown to many, and the most popular item for one that everybody saw.
"""

from __future__ import annotations

import numpy as np

from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.training.exposure.rates import CERTAIN, ExposureRates

POWER = 0.5  # that of Rel-MF
LEAST = 0.01  # the smallest propensity: inverse ones stay below 100


def by_popularity(train: Dataset | Blocks, power: float = POWER, least: float = LEAST) -> ExposureRates:
    """Return theta_i = (n_i / max n)^power, at least `least`.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([(user, "tea") for user in range(4)] + [(0, "rum")])
    >>> by_popularity(data).propensity_block([0]).round(4)  # rum, tea
    array([[0.5, 1. ]])
    """
    counts = train.popularity().astype(np.float64)
    theta = np.clip((counts / max(1.0, counts.max(initial=0.0))) ** power, least, 1.0)
    with np.errstate(divide="ignore"):
        rates = np.minimum(-np.log1p(-theta), CERTAIN)
    ones = np.ones(train.n_users, dtype=np.float32)
    return ExposureRates(ones, rates.astype(np.float32), f"assumed: popularity^{power:g}")
