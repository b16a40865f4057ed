"""Loops that NumPy cannot express, compiled by numba at their first call and cached."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from truelike.core.compile_cache import cached_njit


@cached_njit()
def draw_by_user(
    order: NDArray[np.int64],
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    quota: NDArray[np.int64],
    left: NDArray[np.int64],
    guard: int,
    label: NDArray[np.uint8],
) -> None:
    """Assign each row, in the given order, to the part for which its user lacks most rows.

    A row whose item has `guard` rows or fewer left for training stays there. `quota[p, u]` is the number of rows
    that part p + 1 still needs of user u, and `left[i]` the number of rows of item i in training. Both change.
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
