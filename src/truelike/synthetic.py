"""Synthetic data whose true likes and exposure are known.

>>> import truelike as tl
>>> tl.synthetic.World(n_users=50, n_items=40).dataset()
Dataset(... interactions, 50 users, 40 items, sparsity ...)
"""

from __future__ import annotations

from truelike.data.ratings_world import RatingsWorld
from truelike.data.synthetic import World

__all__ = ["RatingsWorld", "World"]


def __dir__() -> list[str]:
    return sorted(__all__)
