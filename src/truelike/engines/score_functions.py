"""Score functions: how the score of a user and an item follows from a row of each.

Every score here is a dot product of mapped rows. So a score function is a map of rows, and the map of a gradient back
through it. A model that stores mapped rows is ranked by dot products, as every factor model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Rows = TypeVar("Rows", bound=NDArray[np.floating])

SHORTEST = 1e-12  # length of a row below which it is taken for this long


class ScoreFunction(Protocol):
    """A map of rows whose dot products are the scores."""

    def rows(self, table: Rows) -> Rows:
        """Return the mapped rows of a table."""

    def gradient(self, table: Rows, gradient: Rows) -> Rows:
        """Return the gradient with respect to the rows of a table from that with respect to the mapped rows."""


@dataclass(frozen=True)
class Dot:
    """U_u . V_i: the rows as they are."""

    def rows(self, table: Rows) -> Rows:
        """Return the table itself."""
        return table

    def gradient(self, table: Rows, gradient: Rows) -> Rows:
        """Return the gradient itself."""
        return gradient


@dataclass(frozen=True)
class Cosine:
    """cos(U_u, V_i) / temperature: rows are scaled to the length 1 / sqrt(temperature).

    >>> Cosine(0.25).rows(np.array([[3.0, 4.0]]))
    array([[1.2, 1.6]])
    """

    temperature: float

    def rows(self, table: Rows) -> Rows:
        """Return the rows at the length 1 / sqrt(temperature)."""
        return table * (self._scale / _lengths(table))  # type: ignore[return-value]

    def gradient(self, table: Rows, gradient: Rows) -> Rows:
        """Return (g - (g . u) u) / |U| / sqrt(temperature), where u = U / |U|: what lies across the row."""
        lengths = _lengths(table)
        unit = table / lengths
        along = np.einsum("...k,...k->...", gradient, unit)[..., None]
        return (gradient - along * unit) * (self._scale / lengths)  # type: ignore[no-any-return]

    @property
    def _scale(self) -> float:
        return float(self.temperature**-0.5)


def _lengths(table: NDArray[np.floating]) -> NDArray[np.floating]:
    found = np.sqrt(np.einsum("...k,...k->...", table, table))[..., None]
    return np.asarray(np.maximum(found, np.asarray(SHORTEST, found.dtype)))
