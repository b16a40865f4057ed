"""The compiled loop of the neighbourhood models."""

from __future__ import annotations

from typing import Any

import numba


@numba.njit(cache=True, nogil=True)
def add_rows(indptr: Any, indices: Any, row_indptr: Any, row_indices: Any, row_data: Any, out: Any) -> None:
    """out[u] = the sum of the sparse rows that u's entries name, in their order."""
    for u in range(len(indptr) - 1):
        for entry in range(indptr[u], indptr[u + 1]):
            row = indices[entry]
            for n in range(row_indptr[row], row_indptr[row + 1]):
                out[u, row_indices[n]] += row_data[n]
