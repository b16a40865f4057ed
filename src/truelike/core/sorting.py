"""Sorting in compiled loops.

With numba's own `sort`, `argsort`, `partition` and `searchsorted`, functions that different processes had kept on disk
crashed or gave wrong numbers when one process loaded them. The likely reason: numba compiles these from functions that
have the same name for different tasks, and numbers them in the order in which a process compiles them, so two files
may have different functions under one name. With those of this module it was not seen again.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(nogil=True)
def sort(values):
    """Sort integers in place (Shell sort)."""
    gap = 1
    while gap < len(values) // 2:
        gap = gap * 9 // 4 + 1
    while gap > 0:
        for n in range(gap, len(values)):
            value, at = values[n], n
            while at >= gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value
        gap = 0 if gap == 1 else max(1, gap * 4 // 9)


@numba.njit(nogil=True)
def kth_smallest(given, k):
    """Return the k-th smallest number, from 0 (Hoare, 1961)."""
    values = np.empty(len(given), dtype=np.float64)
    for n in range(len(given)):
        values[n] = given[n]
    low, high = 0, len(values) - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while pivot < values[right]:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if k <= right:
            high = right
        elif k >= left:
            low = left
        else:
            break
    return values[k]


@numba.njit(nogil=True, inline="always")
def first_at_least(values, start, stop, wanted):
    """Return the first place in the sorted values[start:stop] with a value of at least `wanted`."""
    while start < stop:
        middle = (start + stop) // 2
        if values[middle] < wanted:
            start = middle + 1
        else:
            stop = middle
    return start
