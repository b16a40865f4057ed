"""Whether exposure follows tastes: a test on shown pairs that were held out.

Two held-out pairs (u, i) and (v, j) are compared with (u, j) and (v, i), which were not shown. If the logit of p(shown)
is a sum of an effect of the user, one of the item and w t, where t is the taste of the user for the item, then given
that one of the two ways was shown, it is this one with probability sigma(w D), where

    D = t_ui + t_vj - t_uj - t_vi

All effects of users and items cancel (the tetrad logit: Charbonneau, The Econometrics Journal 2017). The tastes come
from labels, and none of these pairs was among them. So with w = 0 the mean of D is 0, and z = sum D / sqrt(sum D^2) is
about standard normal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike import objectives
from truelike.core import randomness
from truelike.core.arrays import Codes, Doubles, Mask
from truelike.engines.langevin.kernels import are_listed
from truelike.exposure.shown_blocks import ShownBlocks
from truelike.exposure.shown_pairs import ShownPairs

PAIRINGS = 4  # random ones, whose z are averaged
CLEARLY = 3.0  # z of a link
NEWTON_STEPS = 30


class Link(NamedTuple):
    """The most likely w, and the test statistic z, about standard normal if exposure does not follow tastes."""

    z: float
    weight: float

    @property
    def is_clear(self) -> bool:
        """Whether exposure follows tastes beyond doubt."""
        return self.z > CLEARLY and self.weight > 0


def tested(
    users: Codes,
    items: Codes,
    is_shown: Callable[[Codes, Codes], Mask],
    taste: Callable[[Codes, Codes], NDArray[Any]],
    seed: int,
) -> Link:
    """Test whether exposure follows tastes, by shown pairs that were held out.

    `is_shown` returns whether pairs were shown, `taste` their u . v. The seed determines the pairings.
    """
    found, statistics = [], []
    for number in range(PAIRINGS):
        key = randomness.key(seed, "pairings", number)
        order = np.argsort(randomness.bits(key, np.arange(len(users))), kind="stable")
        half = len(order) // 2
        (u, i), (v, j) = ((users[part], items[part]) for part in (order[:half], order[half : 2 * half]))
        usable = (u != v) & (i != j) & ~is_shown(u, j) & ~is_shown(v, i)
        u, i, v, j = (each[usable] for each in (u, i, v, j))
        difference = (taste(u, i) + taste(v, j) - taste(u, j) - taste(v, i)).astype(np.float64)
        norm = float(np.sqrt((difference**2).sum()))
        if not norm:
            return Link(0.0, 0.0)
        found.append(difference)
        statistics.append(float(difference.sum()) / norm)
    return Link(float(np.mean(statistics)), _most_likely(np.concatenate(found)))


def _most_likely(difference: Doubles) -> float:
    """The w with the largest sum of ln sigma(w D), by Newton's method with steps of .5 at most."""
    weight = 0.0
    for _ in range(NEWTON_STEPS):
        p = objectives.sigmoid(weight * difference)
        step = ((1 - p) * difference).sum() / ((p * (1 - p) * difference**2).sum() + 1e-9)
        weight += float(np.clip(step, -0.5, 0.5))
    return weight


def are_shown(pairs: ShownPairs | ShownBlocks, users: Codes, items: Codes) -> Mask:
    """Whether some pairs were shown."""
    if isinstance(pairs, ShownPairs):
        return np.asarray(are_listed(pairs.indptr, pairs.indices, users, items))
    some, rows = np.unique(users, return_inverse=True)
    listed = pairs.of_users(some)
    return np.asarray(are_listed(listed.indptr, listed.indices, rows, items))
