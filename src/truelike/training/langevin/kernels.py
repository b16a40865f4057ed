"""The compiled loops of the Langevin engine: gradients of the rows of users, then of items.

A row is K factors and a bias. In the first loop a user belongs to one thread, in the second an item, and every sum is
taken in the order of the pairs. So the result does not depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import Any

from truelike.compile_cache import cached_njit


@cached_njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def user_gradients(
    first: Any, stop: Any, indptr: Any, indices: Any, taken: Any, noticed: Any, notice: Any,
    users: Any, items: Any, steps: Any, curvatures: Any, gradient: Any, information: Any,
) -> None:  # fmt: skip
    """Set the gradient and the information of the rows of users first ... stop - 1.

    The log likelihood of a pair is ln(q p) if it was taken and ln(1 - q p) if not, where p = sigma(r) and q is the
    probability `noticed` of the pair, or `notice` of all. `steps` and `curvatures` are set to those of each pair.
    """
    width = users.shape[1]
    last = width - 1
    for user in range(first, stop):
        gradient[user, :] = 0.0
        information[user, :] = 0.0
        for entry in range(indptr[user], indptr[user + 1]):
            item = indices[entry]
            r = users[user, last] + items[item, last]
            for k in range(last):
                r += users[user, k] * items[item, k]
            p = 1.0 / (1.0 + math.exp(-r))
            q = noticed[entry] if len(noticed) > 0 else notice
            step = 1.0 - p if taken[entry] else -q * p * (1.0 - p) / (1.0 - q * p + 1e-12)
            curvature = q * p * (1.0 - p)
            steps[entry], curvatures[entry] = step, curvature
            for k in range(last):
                value = items[item, k]
                gradient[user, k] += step * value
                information[user, k] += curvature * value * value
            gradient[user, last] += step
            information[user, last] += curvature


@cached_njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def item_gradients(
    first: Any, stop: Any, indptr: Any, entries: Any, user_of_entry: Any, users: Any,
    steps: Any, curvatures: Any, gradient: Any, information: Any,
) -> None:  # fmt: skip
    """Set the gradient and the information of the rows of items first ... stop - 1, from those of the pairs."""
    last = users.shape[1] - 1
    for item in range(first, stop):
        gradient[item, :] = 0.0
        information[item, :] = 0.0
        for at in range(indptr[item], indptr[item + 1]):
            entry = entries[at]
            user, step, curvature = user_of_entry[entry], steps[entry], curvatures[entry]
            for k in range(last):
                value = users[user, k]
                gradient[item, k] += step * value
                information[item, k] += curvature * value * value
            gradient[item, last] += step
            information[item, last] += curvature
