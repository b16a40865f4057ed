"""Split a dataset into training, validation and test parts.

>>> import truelike as tl
>>> data = tl.synthetic.World(n_users=50, n_items=40).dataset()
>>> tl.splits.by_user(data, validation=0.1, test=0.1, seed=0)
Split(... interactions, ... users, ... items)
"""

from __future__ import annotations

from truelike.data.new_users import new_users
from truelike.data.strategies import at_date, by_user, k_fold, last_n, leave_one_out, random, temporal

__all__ = ["at_date", "by_user", "k_fold", "last_n", "leave_one_out", "new_users", "random", "temporal"]


def __dir__() -> list[str]:
    return sorted(__all__)
