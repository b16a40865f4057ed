"""Compiled draws: negatives by (key, positive, number), and a permutation that needs no memory."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LOOP = {"cache": True, "nogil": True, "_nrt": False}  # without counting references to the arrays it is given
_TRIES = 200  # rejections before an unvoted item is found by counting instead


@numba.njit(**LOOP, forceinline=True)
def mix(x: Any) -> Any:
    """The finaliser of SplitMix64, as in randomness.py."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(**LOOP, forceinline=True)
def _voted(item: Any, items: Any, start: Any, stop: Any) -> Any:
    """Whether a sorted stretch of a list holds an item: halved while it is long, then looked through at once."""
    while stop - start > np.uint64(256):
        middle = (start + stop) >> np.uint64(1)
        if items[middle] <= item:
            start = middle
        else:
            stop = middle
    found = 0
    for place in range(start, stop):  # no early end: the compiler compares many at a time
        found |= items[place] == item
    return found != 0


@numba.njit(**LOOP, forceinline=True)
def _draw(state: Any, n_items: Any, keep: Any, alias: Any) -> Any:
    """One item by the alias table, or uniformly where there is none."""
    bits = mix(state)
    item = ((bits >> np.uint64(32)) * n_items) >> np.uint64(32)
    if len(keep) > 0 and np.float32(bits & np.uint64(0xFFFFFF)) >= keep[item] * np.float32(0x1000000):
        item = np.uint64(alias[item])
    return item


@numba.njit(**LOOP, forceinline=True)
def draw_unvoted(
    state: Any, items: Any, start: Any, stop: Any, marks: Any, marked: Any, n_items: Any,
    keep: Any, alias: Any, weights: Any,
) -> Any:  # fmt: skip
    """One item that is not in items[start:stop], from the stream that starts at `state`.

    `marks` flags the voted items where `marked` is true; else the sorted list is searched. Both say the same.
    """
    item, tries = np.uint64(0), 0
    while tries < _TRIES:
        state += GOLDEN
        item = _draw(state, n_items, keep, alias)
        if marked:
            if not marks[item]:
                break
        elif not _voted(np.int32(item), items, start, stop):
            break
        tries += 1
    if tries == _TRIES:
        item = _count_unvoted(state, items, start, stop, n_items, weights)
    return item


@numba.njit(**LOOP)
def _count_unvoted(state: Any, items: Any, start: Any, stop: Any, n_items: Any, weights: Any) -> Any:
    """The same law without rejection, for a user who voted for nearly everything: walk the unvoted items."""
    total, left, last = 0.0, 0.0, np.uint64(0)
    for walk in range(2):  # once for the sum of their weights, once to the place that was drawn
        if walk == 1:
            left = total * (np.float64(mix(state + GOLDEN) >> np.uint64(11)) * 2.0**-53)
        voted = start
        for n in range(n_items):
            item = np.uint64(n)
            if voted < stop and np.uint64(items[voted]) == item:
                voted += np.uint64(1)
                continue
            weight = weights[item] if len(weights) > 0 else 1.0
            if walk == 0:
                total += weight
            else:
                last = item
                left -= weight
                if left < 0.0:
                    break
    return last


@numba.njit(cache=True, nogil=True)
def draw_many(key: Any, entry: Any, n: Any, voted: Any, n_items: Any, keep: Any, alias: Any, weights: Any) -> Any:
    """Negatives 0 ... n - 1 of one positive, as training draws them; for the loss, and for tests of the law."""
    drawn = np.empty(n, dtype=np.int64)
    marks = np.zeros(1, dtype=np.bool_)
    for k in range(n):
        state = mix(key + GOLDEN * (np.uint64(entry) * np.uint64(64) + np.uint64(k)))
        drawn[k] = draw_unvoted(
            state,
            voted,
            np.uint64(0),
            np.uint64(len(voted)),
            marks,
            False,
            np.uint64(n_items),
            keep,
            alias,
            weights,
        )
    return drawn


@numba.njit(cache=True, nogil=True)
def permutation(key: Any, start: Any, stop: Any, n: Any) -> Any:
    """Places start ... stop - 1 of a random permutation of 0 ... n - 1, each by itself (a Feistel network)."""
    half = np.uint64(1)
    while (np.uint64(1) << (np.uint64(2) * half)) < np.uint64(n):
        half += np.uint64(1)
    low = (np.uint64(1) << half) - np.uint64(1)
    out = np.empty(stop - start, dtype=np.int32)
    for place in range(start, stop):
        x = np.uint64(place)
        while True:
            left, right = x >> half, x & low
            for turn in range(4):
                mixed = mix(right + key + GOLDEN * np.uint64(turn + 1)) & low
                left, right = right, left ^ mixed
            x = (left << half) | right
            if x < np.uint64(n):
                break
        out[place - start] = x
    return out
