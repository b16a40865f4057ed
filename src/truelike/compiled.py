"""Small loops that NumPy has no words for, compiled by numba at their first call and cached."""

from __future__ import annotations

from typing import Any

import numba


@numba.njit(cache=True)
def draw_by_user(order: Any, users: Any, items: Any, quota: Any, left: Any, guard: int, label: Any) -> None:
    """Give each row of the order to the part that the user owes most, while its item keeps `guard`.

    `quota[p, u]` is how many rows user u still owes part p + 1, `left[i]` how many rows item i has left
    for training; both are used up.
    """
    for row in order:
        user, item = users[row], items[row]
        part = 0
        for other in range(1, quota.shape[0]):
            if quota[other, user] > quota[part, user]:
                part = other
        if quota[part, user] > 0 and left[item] > guard:
            quota[part, user] -= 1
            left[item] -= 1
            label[row] = part + 1
