"""Compiled loops of the models that score by the items of a history: ItemKNN, EASE and EDLAE."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from truelike.core.compile_cache import cached_njit

Ints = NDArray[np.integer]
Floats = NDArray[np.float32]
TILE = 1024  # columns whose sums fit into the first-level cache


@cached_njit(nogil=True)
def add_rows(
    indptr: Ints, indices: Ints, row_indptr: Ints, row_indices: Ints, row_data: Floats, out: Floats
) -> None:
    """Add to out[u] the rows of a sparse table at the indices of row u, in their order; out must be zeros."""
    for u in range(len(indptr) - 1):
        for entry in range(indptr[u], indptr[u + 1]):
            row = indices[entry]
            for n in range(row_indptr[row], row_indptr[row + 1]):
                out[u, row_indices[n]] += row_data[n]


@cached_njit(nogil=True)
def add_dense_rows(indptr: Ints, indices: Ints, table: Floats, out: Floats) -> None:
    """Add to out[u] the rows of a dense table at the indices of row u, in their order; out must be zeros.

    The loop takes a tile of columns at a time, and four rows, so that a sum is loaded and stored once per four
    additions.
    """
    for start in range(0, table.shape[1], TILE):
        stop = min(start + TILE, table.shape[1])
        for u in range(len(indptr) - 1):
            sums = out[u, start:stop]
            whole = indptr[u] + (indptr[u + 1] - indptr[u]) // 4 * 4
            for entry in range(indptr[u], whole, 4):
                a = table[indices[entry], start:stop]
                b = table[indices[entry + 1], start:stop]
                c = table[indices[entry + 2], start:stop]
                d = table[indices[entry + 3], start:stop]
                for i in range(stop - start):
                    sums[i] = (((sums[i] + a[i]) + b[i]) + c[i]) + d[i]
            for entry in range(whole, indptr[u + 1]):
                a = table[indices[entry], start:stop]
                for i in range(stop - start):
                    sums[i] += a[i]


@cached_njit(nogil=True)
def add_weighted_rows(
    indptr: Ints, indices: Ints, counts: Floats, row_indptr: Ints, row_indices: Ints, row_data: Floats, out: Floats
) -> None:
    """As `add_rows`, with each row multiplied by what its entry counts."""
    for u in range(len(indptr) - 1):
        for entry in range(indptr[u], indptr[u + 1]):
            row, count = indices[entry], counts[entry]
            for n in range(row_indptr[row], row_indptr[row + 1]):
                out[u, row_indices[n]] += count * row_data[n]


@cached_njit(nogil=True)
def add_weighted_dense_rows(indptr: Ints, indices: Ints, counts: Floats, table: Floats, out: Floats) -> None:
    """As `add_dense_rows`, with each row multiplied by what its entry counts."""
    for start in range(0, table.shape[1], TILE):
        stop = min(start + TILE, table.shape[1])
        for u in range(len(indptr) - 1):
            sums = out[u, start:stop]
            for entry in range(indptr[u], indptr[u + 1]):
                row, count = table[indices[entry], start:stop], counts[entry]
                for i in range(stop - start):
                    sums[i] += count * row[i]


@cached_njit(nogil=True)
def count_common_users(
    first: int, indptr: Ints, indices: Ints, item_indptr: Ints, item_users: Ints, out: NDArray[np.floating]
) -> None:
    """Count in out[r, j] the users of both items first + r and j, for j <= first + r; out must be zeros.

    `indptr` and `indices` are the items of each user, `item_indptr` and `item_users` the users of each item.
    """
    for row in range(len(out)):
        item = first + row
        for entry in range(item_indptr[item], item_indptr[item + 1]):
            user = item_users[entry]
            for other in range(indptr[user], indptr[user + 1]):
                if indices[other] > item:
                    break
                out[row, indices[other]] += 1


@cached_njit(nogil=True)
def add_common_users(
    first: int, indptr: Ints, indices: Ints, item_indptr: Ints, item_users: Ints, counts: Floats, item_counts: Floats,
    out: NDArray[np.floating],
) -> None:  # fmt: skip
    """As `count_common_users`, where a user of both items adds the product of what the two interactions count."""
    for row in range(len(out)):
        item = first + row
        for entry in range(item_indptr[item], item_indptr[item + 1]):
            user = item_users[entry]
            for other in range(indptr[user], indptr[user + 1]):
                if indices[other] > item:
                    break
                out[row, indices[other]] += np.float64(counts[other]) * np.float64(item_counts[entry])


@cached_njit(nogil=True)
def sum_squares_of_common_users(
    first: int, stop: int, indptr: Ints, indices: Ints, item_indptr: Ints, item_users: Ints
) -> int:
    """The sum of c_ij^2 over items first <= i < stop and j < i, where c_ij users interacted with both."""
    common = np.zeros(stop, dtype=np.int64)
    total = 0
    for item in range(first, stop):
        for entry in range(item_indptr[item], item_indptr[item + 1]):
            user = item_users[entry]
            for other in range(indptr[user], indptr[user + 1]):
                if indices[other] >= item:
                    break
                # (c + 1)^2 - c^2, so that the sum is right after each step
                total += 2 * common[indices[other]] + 1
                common[indices[other]] += 1
        for entry in range(item_indptr[item], item_indptr[item + 1]):
            user = item_users[entry]
            for other in range(indptr[user], indptr[user + 1]):
                if indices[other] >= item:
                    break
                common[indices[other]] = 0
    return total


@cached_njit(nogil=True)
def mirror(matrix: NDArray[np.floating], first: int, stop: int) -> None:
    """Copy the lower triangle to the upper one in rows first ... stop - 1, in small squares for the cache."""
    side = 32
    n = len(matrix)
    for top in range(first, stop, side):
        for left in range(top, n, side):
            for i in range(top, min(top + side, stop)):
                for j in range(max(left, i + 1), min(left + side, n)):
                    matrix[i, j] = matrix[j, i]
