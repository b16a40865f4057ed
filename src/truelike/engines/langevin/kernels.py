"""The compiled loops of the Langevin engine: gradients of the rows of users, then of items.

A row is K factors; where exposure is modelled, factors of the exposure alone and a bias of it; and last the bias of the
like. In a loop over users a user
belongs to one thread, in one over items an item, and every sum is taken in the order of the pairs. So the result does
not depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import Any

from truelike.core.compile_cache import cached_njit


@cached_njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def like_gradients(
    first: Any, stop: Any, factors: Any, indptr: Any, indices: Any, taken: Any, noticed: Any, notice: Any,
    users: Any, items: Any, steps: Any, curvatures: Any, gradient: Any, information: Any,
) -> None:  # fmt: skip
    """Add the likes to the gradient and the information of the rows of users first ... stop - 1.

    The log likelihood of a pair is ln(q p) if it was taken and ln(1 - q p) if not, where p = sigma(r) and q is the
    probability `noticed` of the pair, or `notice` of all. `steps` and `curvatures` are set to those of each pair.
    """
    last = users.shape[1] - 1
    for user in range(first, stop):
        for entry in range(indptr[user], indptr[user + 1]):
            item = indices[entry]
            r = users[user, last] + items[item, last]
            for k in range(factors):
                r += users[user, k] * items[item, k]
            p = 1.0 / (1.0 + math.exp(-r))
            q = noticed[entry] if len(noticed) > 0 else notice
            step = 1.0 - p if taken[entry] else -q * p * (1.0 - p) / (1.0 - q * p + 1e-12)
            curvature = q * p * (1.0 - p)
            steps[entry], curvatures[entry] = step, curvature
            for k in range(factors):
                value = items[item, k]
                gradient[user, k] += step * value
                information[user, k] += curvature * value * value
            gradient[user, last] += step
            information[user, last] += curvature


@cached_njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def exposure_gradients(
    first: Any, stop: Any, factors: Any, weight: Any, indptr: Any, indices: Any, shown: Any,
    users: Any, items: Any, steps: Any, curvatures: Any, gradient: Any, information: Any, sums: Any,
) -> None:  # fmt: skip
    """Add the exposure to the gradient and the information of the rows of users first ... stop - 1.

    The log likelihood of a pair is ln sigma(e) if it was shown and ln sigma(-e) if not, where
    e = c_u + d_i + weight u . v + s . t. `sums` is set to the gradient and the information of `weight`, of each user.
    """
    column = users.shape[1] - 2
    for user in range(first, stop):
        total, square = 0.0, 0.0
        for entry in range(indptr[user], indptr[user + 1]):
            item, taste = indices[entry], 0.0
            for k in range(factors):
                taste += users[user, k] * items[item, k]
            e = users[user, column] + items[item, column] + weight * taste
            for k in range(factors, column):
                e += users[user, k] * items[item, k]
            p = 1.0 / (1.0 + math.exp(-e))
            step, curvature = shown[entry] - p, p * (1.0 - p)
            steps[entry], curvatures[entry] = step, curvature
            for k in range(factors):
                value = weight * items[item, k]
                gradient[user, k] += step * value
                information[user, k] += curvature * value * value
            for k in range(factors, column):
                value = items[item, k]
                gradient[user, k] += step * value
                information[user, k] += curvature * value * value
            gradient[user, column] += step
            information[user, column] += curvature
            total += step * taste
            square += curvature * taste * taste
        sums[user, 0], sums[user, 1] = total, square


@cached_njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def item_gradients(
    first: Any, stop: Any, factors: Any, weight: Any, column: Any, indptr: Any, entries: Any, user_of_entry: Any,
    users: Any, steps: Any, curvatures: Any, gradient: Any, information: Any,
) -> None:  # fmt: skip
    """Add to the gradient and the information of the rows of items first ... stop - 1, from those of the pairs.

    The bias is in `column`. The first factors count `weight`; those between them and the bias of the exposure count 1.
    """
    stop_at = column if column < users.shape[1] - 1 else factors
    for item in range(first, stop):
        for at in range(indptr[item], indptr[item + 1]):
            entry = entries[at]
            user, step, curvature = user_of_entry[entry], steps[entry], curvatures[entry]
            for k in range(factors):
                value = weight * users[user, k]
                gradient[item, k] += step * value
                information[item, k] += curvature * value * value
            for k in range(factors, stop_at):
                value = users[user, k]
                gradient[item, k] += step * value
                information[item, k] += curvature * value * value
            gradient[item, column] += step
            information[item, column] += curvature
