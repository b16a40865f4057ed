"""The compiled loop of the bootstrap."""

from __future__ import annotations

from typing import Any

from truelike.core.compile_cache import cached_njit


@cached_njit(nogil=True)
def add_drawn_rows(values: Any, drawn: Any, out: Any) -> None:
    """Add the drawn rows to `out`, in order, so that the sum of a column does not depend on other columns."""
    for row in drawn:
        for column in range(values.shape[1]):
            out[column] += values[row, column]
