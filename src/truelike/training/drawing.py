"""Compiled draws: negatives by (key, positive, number), and a permutation that needs no memory."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from truelike.training.rows import INLINE, LOOP

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TRIES = 200  # rejections before an unvoted item is found by counting instead
BITS = 16  # for each vote, to tell voted items from others


@numba.njit(**INLINE)
def mix(x: Any) -> Any:
    """The finaliser of SplitMix64, as in randomness.py."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(**INLINE)
def stream(key: Any, entry: Any) -> Any:
    """Where the random numbers of a positive begin; each further one is GOLDEN on."""
    return mix(key + GOLDEN * np.uint64(entry))


@numba.njit(**INLINE)
def _vote_bit(item: Any, start: Any, stop: Any, n_items: Any) -> Any:
    """Where the votes items[start:stop] of a user have the bit of an item.

    A user has BITS bits for each vote. Where that makes one for every item, it is the item's own; else a hash says
    which one, and it may be the bit of other items too.
    """
    bits = (stop - start) * np.uint64(BITS)
    spread = (item * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    own = item if bits >= n_items else (spread * bits) >> np.uint64(32)
    return start * np.uint64(BITS) + own


@numba.njit(cache=True, nogil=True)
def vote_bits(indptr: Any, items: Any, n_items: Any) -> Any:
    """All users' bits: where an item's is not set, the user has not voted for it.

    A search of the user's list at each draw would cost more than all the rest of training.
    """
    out = np.zeros(len(items) * BITS // 8, dtype=np.uint8)
    for user in range(len(indptr) - 1):
        start, stop = np.uint64(indptr[user]), np.uint64(indptr[user + 1])
        for place in range(start, stop):
            bit = _vote_bit(np.uint64(items[place]), start, stop, np.uint64(n_items))
            out[bit >> np.uint64(3)] |= np.uint8(1) << np.uint8(bit & np.uint64(7))
    return out


@numba.njit(**INLINE)
def _voted(item: Any, items: Any, start: Any, stop: Any, votes: Any, n_items: Any) -> Any:
    """Whether the sorted items[start:stop], whose bits are in `votes`, hold an item."""
    if start == stop:
        return False
    bit = _vote_bit(item, start, stop, n_items)
    if (votes[bit >> np.uint64(3)] >> np.uint8(bit & np.uint64(7))) & np.uint8(1) == np.uint8(0):
        return False
    left = stop - start
    if left * np.uint64(BITS) >= n_items:
        return True
    while left > np.uint64(1):
        half = left >> np.uint64(1)
        start += half * np.uint64(np.uint64(items[start + half]) <= item)  # a branch would be guessed wrongly
        left -= half
    return np.uint64(items[start]) == item


@numba.njit(**INLINE)
def _draw(bits: Any, n_items: Any, keep: Any, alias: Any) -> Any:
    """One item by the alias table, or uniformly where there is none."""
    item = ((bits >> np.uint64(32)) * n_items) >> np.uint64(32)
    if len(keep) > 0 and np.float32(bits & np.uint64(0xFFFFFF)) >= keep[item] * np.float32(0x1000000):
        item = np.uint64(alias[item])
    return item


@numba.njit(**INLINE)
def draw_unvoted(
    state: Any, items: Any, start: Any, stop: Any, votes: Any, n_items: Any, keep: Any, alias: Any, weights: Any
) -> Any:
    """One item that is not in items[start:stop], and where the stream of random numbers goes on."""
    item, tries = np.uint64(0), 0
    while tries < _TRIES:
        state += GOLDEN
        item = _draw(mix(state), n_items, keep, alias)
        if not _voted(item, items, start, stop, votes, n_items):
            break
        tries += 1
    if tries == _TRIES:
        state += GOLDEN
        item = _count_unvoted(mix(state), items, start, stop, n_items, weights)
    return item, state


@numba.njit(**LOOP)
def _count_unvoted(bits: Any, items: Any, start: Any, stop: Any, n_items: Any, weights: Any) -> Any:
    """The same law without rejection, for a user who voted for nearly everything: walk the unvoted items."""
    total, left, last = 0.0, 0.0, np.uint64(0)
    for walk in range(2):  # once for the sum of their weights, once to the place that was drawn
        if walk == 1:
            left = total * (np.float64(bits >> np.uint64(11)) * 2.0**-53)
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
def draw_for(
    key: Any, entries: Any, n: Any,
    entry_user: Any, entry_item: Any, indptr: Any, votes: Any, n_items: Any, keep: Any, alias: Any, weights: Any,
) -> Any:  # fmt: skip
    """Negatives 0 ... n - 1 of each of some positives, as the training loops draw them."""
    drawn = np.empty((len(entries), n), dtype=np.int32)
    for row in range(len(entries)):
        user = np.uint64(entry_user[entries[row]])
        start, stop = np.uint64(indptr[user]), np.uint64(indptr[user + np.uint64(1)])
        state = stream(key, entries[row])
        for k in range(n):
            drawn[row, k], state = draw_unvoted(
                state, entry_item, start, stop, votes, np.uint64(n_items), keep, alias, weights
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
