"""Explanations: how much each interaction of a user contributes to the score of an item.

Where the score is a sum over the interactions, the contributions are its terms ("exact"). For other models the
contribution of an interaction is what the score loses without it ("leave_one_out").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike.data.ids import Codes

Floats = NDArray[np.float32]
Method = Literal["exact", "leave_one_out"]
MOST_LEFT_OUT = 100  # interactions that are left out, one at a time, to explain one item
MAX_BYTES_AT_ONCE = 64 * 2**20  # bytes of scores or similarities at once


class Contributions(NamedTuple):
    """What the interactions of a user contribute to the scores of some items.

    Attributes
    ----------
    values
        The contributions: a row for each item, a column for each interaction.
    scores
        The scores that they explain. What the contributions of a row do not add up to is the base of its score.
    method
        "exact" or "leave_one_out".
    """

    values: Floats
    scores: Floats
    method: Method

    def shares(self) -> Floats:
        """The contributions, divided so that the absolute values of a row add up to 1; 0 if all are 0.

        >>> values = np.array([[3.0, -1.0], [0.0, 0.0]], dtype=np.float32)
        >>> Contributions(values, np.zeros(2, np.float32), "exact").shares().tolist()
        [[0.75, -0.25], [0.0, 0.0]]
        """
        total = np.abs(self.values).sum(axis=1, keepdims=True, dtype=np.float64)
        return (self.values / np.where(total > 0, total, 1.0)).astype(np.float32)

    def largest(self, k: int) -> Codes:
        """The places of the k largest contributions of each row, the largest first; of equal ones the first."""
        return np.argsort(-self.values, axis=1, kind="stable")[:, :k].astype(np.int32)


def most_similar(similarity_block: Callable[[Codes], Floats], history: Codes, items: Codes) -> NDArray[np.bool_]:
    """Mark, for each of some items, the MOST_LEFT_OUT items of a history that are most similar to it."""
    marked, n = np.ones((len(items), len(history)), dtype=np.bool_), MOST_LEFT_OUT
    if len(history) <= n:
        return marked
    at_once = 16
    for start in range(0, len(items), at_once):
        similarity = similarity_block(items[start : start + at_once])[:, history]
        least = np.argsort(-similarity, axis=1, kind="stable")[:, n:]
        np.put_along_axis(marked[start : start + at_once], least, False, axis=1)
    return marked
