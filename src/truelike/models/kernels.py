"""The compiled loops of the models that score a history by items: ItemKNN, EASE and EDLAE."""

from __future__ import annotations

from typing import Any

import numba

TILE = 1024  # items whose scores stay in the first-level cache


@numba.njit(cache=True, nogil=True)
def add_rows(indptr: Any, indices: Any, row_indptr: Any, row_indices: Any, row_data: Any, out: Any) -> None:
    """out[u] = the sum of the sparse rows that u's entries name, in their order."""
    for u in range(len(indptr) - 1):
        for entry in range(indptr[u], indptr[u + 1]):
            row = indices[entry]
            for n in range(row_indptr[row], row_indptr[row + 1]):
                out[u, row_indices[n]] += row_data[n]


@numba.njit(cache=True, nogil=True)
def add_dense_rows(indptr: Any, indices: Any, table: Any, out: Any) -> None:
    """out[u] = the sum of the rows of a dense table that u's entries name, in their order; out comes as zeros.

    A tile of columns at a time, and of the rows four: a sum is loaded and stored once for four additions.
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


@numba.njit(cache=True, nogil=True)
def count_together(first: Any, indptr: Any, indices: Any, voters_indptr: Any, voters: Any, out: Any) -> None:
    """out[r, j] = how many users voted for both first + r and j, for j up to first + r; out comes as zeros."""
    for row in range(len(out)):
        item = first + row
        for entry in range(voters_indptr[item], voters_indptr[item + 1]):
            user = voters[entry]
            for other in range(indptr[user], indptr[user + 1]):
                if indices[other] > item:
                    break
                out[row, indices[other]] += 1


@numba.njit(cache=True, nogil=True)
def mirror(matrix: Any, first: Any, stop: Any) -> None:
    """Rows first ... stop - 1 right of the diagonal become what stands below it, by small squares."""
    side = 32
    n = len(matrix)
    for top in range(first, stop, side):
        for left in range(top, n, side):
            for i in range(top, min(top + side, stop)):
                for j in range(max(left, i + 1), min(left + side, n)):
                    matrix[i, j] = matrix[j, i]
