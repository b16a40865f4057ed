"""Compiled sampling: the negatives of a positive, a random permutation that needs no memory, and blocks of positives.

They depend only on a key and an index, so they are the same on any number of threads. A negative is drawn from the
sampling distribution until it is not a positive of the user. Whether it is one is looked up in a bit table first:
a binary search of the user's positives for each draw would cost more than the rest of training.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from truelike.core.arrays import Codes, Doubles, Floats
from truelike.core.compile_cache import INLINE, LOOP, cached_njit
from truelike.core.sorting import sort

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TRIES = 200  # rejected draws before the negative is found by a pass over all items instead
BITS_PER_POSITIVE = 16  # size of a user's bit table


class Source(NamedTuple):
    """What negatives are drawn from: the CSR of the positives, and the alias table of the distribution.

    `bit_table` tells positives from other items.
    """

    users: Codes
    items: Codes
    indptr: Codes
    bit_table: NDArray[np.uint8]
    n_items: np.uint64
    keep: Floats
    alias: Codes
    weights: Doubles


@numba.njit(**INLINE)
def mix(x):
    """The finaliser of SplitMix64, as in randomness.py."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(**INLINE)
def uniform_number(bits):
    """Return a number between 0 and 1, never one of them, so that its logarithms are finite."""
    return (np.float32(bits >> np.uint64(41)) + np.float32(0.5)) * np.float32(2.0**-23)


@numba.njit(**INLINE)
def stream_start(key, entry):
    """Return the state of the random stream of a positive. Each further number advances it by GOLDEN."""
    return mix(key + GOLDEN * np.uint64(entry))


@numba.njit(**INLINE)
def _bit_index(item, start, stop, n_items):
    """Return the index of an item's bit in the bit table of the user with the positives items[start:stop].

    A user has BITS_PER_POSITIVE bits for each positive. If these are enough for all items, each item has a bit of
    its own. Otherwise the bit is chosen by a hash, and items may share it.
    """
    n_bits = (stop - start) * np.uint64(BITS_PER_POSITIVE)
    hashed = (item * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    within = item if n_bits >= n_items else (hashed * n_bits) >> np.uint64(32)
    return start * np.uint64(BITS_PER_POSITIVE) + within


@cached_njit(nogil=True)
def positive_bits(indptr, items, n_items):
    """Return the bit tables of all users. If the bit of an item is not set, it is not a positive of the user."""
    out = np.zeros(len(items) * BITS_PER_POSITIVE // 8, dtype=np.uint8)
    for user in range(len(indptr) - 1):
        start, stop = np.uint64(indptr[user]), np.uint64(indptr[user + 1])
        for entry in range(start, stop):
            bit = _bit_index(np.uint64(items[entry]), start, stop, np.uint64(n_items))
            out[bit >> np.uint64(3)] |= np.uint8(1) << np.uint8(bit & np.uint64(7))
    return out


@numba.njit(**INLINE)
def _is_positive(item, start, stop, source):
    """Return whether an item is among the positives at the places start ... stop - 1, which are sorted."""
    if start == stop:
        return False
    bit = _bit_index(item, start, stop, source.n_items)
    if (source.bit_table[bit >> np.uint64(3)] >> np.uint8(bit & np.uint64(7))) & np.uint8(1) == np.uint8(0):
        return False
    left = stop - start
    if left * np.uint64(BITS_PER_POSITIVE) >= source.n_items:
        return True
    while left > np.uint64(1):
        half = left >> np.uint64(1)
        start += half * np.uint64(np.uint64(source.items[start + half]) <= item)  # a branch would be mispredicted
        left -= half
    return np.uint64(source.items[start]) == item


@numba.njit(**INLINE)
def _draw_item(bits, source):
    """Draw an item from the alias table, or uniformly if the table is empty."""
    item = ((bits >> np.uint64(32)) * source.n_items) >> np.uint64(32)
    if len(source.keep) > 0 and np.float32(bits & np.uint64(0xFFFFFF)) >= source.keep[item] * np.float32(
        0x1000000
    ):
        item = np.uint64(source.alias[item])
    return item


@numba.njit(**INLINE)
def draw_negative(state, start, stop, source):
    """Draw an item that is not among some positives. Return it and the next state of the random stream."""
    item, tries = np.uint64(0), 0
    while tries < _TRIES:
        state += GOLDEN
        item = _draw_item(mix(state), source)
        if not _is_positive(item, start, stop, source):
            break
        tries += 1
    if tries == _TRIES:
        state += GOLDEN
        item = _draw_by_counting(mix(state), start, stop, source)
    return item, state


@numba.njit(**LOOP)
def _draw_by_counting(bits, start, stop, source):
    """Draw from the same distribution without rejection, for a user who interacted with nearly every item."""
    total, left, last = 0.0, 0.0, np.uint64(0)
    for turn in range(2):  # first the sum of the weights of the unobserved items, then the drawn item
        if turn == 1:
            left = total * (np.float64(bits >> np.uint64(11)) * 2.0**-53)
        positive = start
        for n in range(source.n_items):
            item = np.uint64(n)
            if positive < stop and np.uint64(source.items[positive]) == item:
                positive += np.uint64(1)
                continue
            weight = source.weights[item] if len(source.weights) > 0 else 1.0
            if turn == 0:
                total += weight
            else:
                last = item
                left -= weight
                if left < 0.0:
                    break
    return last


@cached_njit(nogil=True)
def draw_negatives(key, entries, n, source):
    """Return n negatives of each positive of `entries`: those that the training loops draw."""
    drawn = np.empty((len(entries), n), dtype=np.int32)
    for row in range(len(entries)):
        user = np.uint64(source.users[entries[row]])
        start, stop = np.uint64(source.indptr[user]), np.uint64(source.indptr[user + np.uint64(1)])
        state = stream_start(key, entries[row])
        for k in range(n):
            drawn[row, k], state = draw_negative(state, start, stop, source)
    return drawn


@cached_njit(nogil=True)
def uniform_numbers(key, entries, n):
    """Return n uniform numbers of each positive of `entries`, one for each candidate that is drawn for it."""
    found = np.empty((len(entries), n), dtype=np.float32)
    for row in range(len(entries)):
        state = stream_start(key, entries[row])
        for k in range(n):
            state += GOLDEN
            found[row, k] = uniform_number(mix(state))
    return found


@cached_njit(nogil=True)
def permutation(key, start, stop, n):
    """Return elements start ... stop - 1 of a random permutation of 0 ... n - 1.

    Each element is computed independently of the others, by a Feistel network.
    """
    half = np.uint64(1)
    while (np.uint64(1) << (np.uint64(2) * half)) < np.uint64(n):
        half += np.uint64(1)
    low = (np.uint64(1) << half) - np.uint64(1)
    out = np.empty(stop - start, dtype=np.int32)
    for index in range(start, stop):
        x = np.uint64(index)
        while True:
            left, right = x >> half, x & low
            for level in range(4):
                mixed = mix(right + key + GOLDEN * np.uint64(level + 1)) & low
                left, right = right, left ^ mixed
            x = (left << half) | right
            if x < np.uint64(n):
                break
        out[index - start] = x
    return out


@numba.njit(**INLINE)
def _taken_by(group, block, n_blocks, key, user):
    """Return which positive of a group of n_blocks consecutive ones a block takes. Each block takes another one."""
    if n_blocks == 1:
        return block
    bits = mix(key + GOLDEN * ((np.uint64(user) << np.uint64(32)) + np.uint64(group)))
    shifted = block + np.int64(((bits >> np.uint64(32)) * np.uint64(n_blocks)) >> np.uint64(32))
    return shifted - n_blocks if shifted >= n_blocks else shifted


class Blocks(NamedTuple):
    """Blocks of positives: user u has the blocks first_block[u] ... first_block[u + 1] - 1."""

    user_of_block: Codes
    first_block: Codes
    indptr: Codes


@cached_njit(nogil=True)
def block_starts(key, order, blocks):
    """Return the position of the first positive of each block, for blocks in the given order.

    Of each group of as many consecutive positives as the user has blocks, every block takes one at random. The last
    group may be incomplete, so some blocks have one positive less than others.
    """
    user_of_block, first_block, indptr = blocks
    starts = np.empty(len(order), dtype=np.int64)
    position = np.int64(0)
    for b in range(len(order)):
        starts[b] = position
        user = user_of_block[order[b]]
        n = np.int64(indptr[user + 1] - indptr[user])
        n_blocks = np.int64(first_block[user + 1] - first_block[user])
        groups = n // n_blocks
        last = _taken_by(groups, np.int64(order[b] - first_block[user]), n_blocks, key, user)
        position += groups + np.int64(groups * n_blocks + last < n)
    return starts


@cached_njit(nogil=True)
def block_entries(key, order, starts, start, stop, batch_size, blocks):
    """Return the positives at positions start ... stop - 1, where a batch begins at `start`.

    Within a batch the blocks are sorted, so that the positives of a user are adjacent.
    """
    user_of_block, first_block, indptr = blocks
    out = np.empty(stop - start, dtype=np.int32)
    at = 0
    b, above = 0, len(starts)  # the last block that begins at `start` or before
    while above - b > 1:
        middle = (b + above) // 2
        if starts[middle] <= start:
            b = middle
        else:
            above = middle
    for low in range(start, stop, batch_size):
        high = min(low + batch_size, stop)
        end = b + 1
        while end < len(order) and starts[end] < high:
            end += 1
        by_block = np.empty(end - b, dtype=np.int64)  # the block and its place, in one number
        for k in range(end - b):
            by_block[k] = (np.int64(order[b + k]) << np.int64(32)) + k
        sort(by_block)
        for both in by_block:
            block, place = both >> np.int64(32), both & np.int64(0xFFFFFFFF)
            user = user_of_block[block]
            begin, n = np.int64(indptr[user]), np.int64(indptr[user + 1] - indptr[user])
            own, n_blocks = (
                np.int64(block - first_block[user]),
                np.int64(first_block[user + 1] - first_block[user]),
            )
            position = starts[b + place]
            for group in range((n + n_blocks - 1) // n_blocks):
                taken = group * n_blocks + _taken_by(group, own, n_blocks, key, user)
                if taken < n:
                    if low <= position < high:
                        out[at] = begin + taken
                        at += 1
                    position += 1
        b = end if end < len(order) and starts[end] == high else end - 1
    return out
