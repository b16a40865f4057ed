"""Parts of the items for training on blocks: each part is trained with one block of users at a time.

A positive in a part gets negatives of the same part. So over all parts an item is drawn as often as its sampling
distribution says if each part has the share of the positives that it has of the distribution. And two items are
compared only while they are in the same part. So the parts are new in every epoch: random, but balanced.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.core.compile_cache import cached_njit

MOST_CORRECTION = 10.0  # of a weight


def corrected_weights(
    weights: NDArray[np.float64],
    popularity: NDArray[np.int64],
    history_sums: NDArray[np.float64],
    parts: int,
) -> NDArray[np.float64]:
    """The weights by which items are drawn within their parts, so that they are drawn as declared over all parts.

    An item is a negative of users who do not have it. These have fewer positives in its part, because it is not among
    them: the item's own part has on average 1 - (parts - 1) N / (P - S) of its share of such positives, where N are the
    item's positives, P those of all items, and S those of all users who have the item. So the weight is divided by
    that, but at most multiplied by MOST_CORRECTION. `history_sums` are S of each item.
    """
    others = np.maximum(popularity.sum() - history_sums, 1.0)
    share = np.maximum(1.0 - (parts - 1) * popularity / others, 1 / MOST_CORRECTION)
    found = weights / share
    return np.asarray(found / found.sum(), dtype=np.float64)


class Partition(NamedTuple):
    """The parts of the items in an epoch: the part of each item, its place there, and the items of each part.

    The items of a part are in their order.
    """

    part: NDArray[np.int32]
    place: NDArray[np.int32]
    members: list[NDArray[np.intp]]


def partition(
    popularity: NDArray[np.int64], weights: NDArray[np.float64], parts: int, seed: int, epoch: int
) -> Partition:
    """Cut the items into balanced random parts.

    Items are sorted by popularity, times a random number between 0.5 and 1.5, and dealt to the parts in rounds. In a
    round, the item with the most positives, relative to its weight as a negative, goes to the part with the fewest so
    far. `popularity` are the positives of each item.

    >>> found = partition(np.array([9, 1, 5, 6, 2, 7]), np.ones(6), 2, seed=0, epoch=0)
    >>> sorted(np.concatenate(found.members).tolist()), [len(each) for each in found.members]
    ([0, 1, 2, 3, 4, 5], [3, 3])
    """
    n = len(popularity)
    jitter = randomness.uniform(randomness.key(seed, "parts", epoch), np.arange(n))
    order = np.argsort(-(popularity + 1) * (0.5 + jitter), kind="stable")
    excess = popularity / popularity.sum() - weights / weights.sum()
    if np.abs(excess).max() < 1e-12:  # in proportion to popularity: any parts are right, so balance the work
        excess = popularity / popularity.sum()
    part = _deal(order, excess, parts)
    members = [np.flatnonzero(part == number) for number in range(parts)]
    place = np.empty(n, dtype=np.int32)
    for each in members:
        place[each] = np.arange(len(each), dtype=np.int32)
    return Partition(part, place, members)


@cached_njit(nogil=True)
def _deal(order: Any, excess: Any, parts: Any) -> Any:
    """Deal items in rounds: the one with the largest excess goes to the part with the smallest sum."""
    part = np.empty(len(order), dtype=np.int32)
    sums, by_sum = np.zeros(parts), np.arange(parts)
    items = np.empty(parts, dtype=np.int64)
    for start in range(0, len(order), parts):
        n = min(parts, len(order) - start)
        for k in range(n):  # sorted by insertion: there are few, and compiled functions use no sorting of numba
            item, at = order[start + k], k
            while at > 0 and excess[items[at - 1]] < excess[item]:
                items[at] = items[at - 1]
                at -= 1
            items[at] = item
        for k in range(1, parts):
            number, at = by_sum[k], k
            while at > 0 and sums[by_sum[at - 1]] > sums[number]:
                by_sum[at] = by_sum[at - 1]
                at -= 1
            by_sum[at] = number
        for k in range(n):
            part[items[k]] = by_sum[k]
            sums[by_sum[k]] += excess[items[k]]
    return part
