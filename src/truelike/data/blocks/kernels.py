"""Loops that NumPy cannot express, compiled by numba at their first call and cached."""

from __future__ import annotations

from typing import Any

import numpy as np

from truelike.core.compile_cache import cached_njit
from truelike.core.sorting import sort


@cached_njit(nogil=True)
def number_by_hash(hashes: Any) -> Any:
    """Number the different hashes in the order of their first rows: the number of each row, and the first rows."""
    n = len(hashes)
    numbers = np.empty(n, dtype=np.int32)
    firsts = np.empty(n, dtype=np.int32)
    used, size = 0, 1 << 12
    table = np.full(size, -1, dtype=np.int32)
    for row in range(n):
        if 2 * used >= size:  # a larger table
            size *= 4
            table = np.full(size, -1, dtype=np.int32)
            for number in range(used):
                place = np.int64(hashes[firsts[number]] & np.uint64(size - 1))
                while table[place] >= 0:
                    place = (place + 1) & (size - 1)
                table[place] = number
        wanted = hashes[row]
        place = np.int64(wanted & np.uint64(size - 1))
        while table[place] >= 0 and hashes[firsts[table[place]]] != wanted:
            place = (place + 1) & (size - 1)
        if table[place] < 0:
            table[place] = used
            firsts[used] = row
            used += 1
        numbers[row] = table[place]
    return numbers, firsts[:used].copy()


@cached_njit(nogil=True)
def merge_rows(users: Any, items: Any, n_users: int) -> Any:
    """Merge rows of the same user and item.

    Returns the number of items of each user, its items in their order, and the number of rows of each pair.
    """
    n = len(users)
    ends = np.zeros(n_users + 1, dtype=np.int64)
    for row in range(n):
        ends[users[row] + 1] += 1
    for user in range(n_users):
        ends[user + 1] += ends[user]
    places = ends[:-1].copy()
    own = np.empty(n, dtype=np.int32)
    for row in range(n):
        own[places[users[row]]] = items[row]
        places[users[row]] += 1
    counts = np.zeros(n_users, dtype=np.int32)
    times = np.empty(n, dtype=np.float32)
    used = 0
    for user in range(n_users):
        mine = own[ends[user] : ends[user + 1]]
        sort(mine)
        start = used
        for place in range(len(mine)):
            item = mine[place]
            if used > start and own[used - 1] == item:
                times[used - 1] += 1
            else:
                own[used] = item
                times[used] = 1
                used += 1
        counts[user] = used - start
    return counts, own[:used].copy(), times[:used].copy()
