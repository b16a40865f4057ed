"""A term of the exact engine that is not learned: flip logits that are known before training."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.core.arrays import Codes, Doubles, Floats
from truelike.exposure.rates import ExposureRates
from truelike.exposure.shown_pairs import flip_logits


class FixedFlips:
    """The flip logits of estimated exposure, with the methods of a `DotProduct` that has nothing to train."""

    def __init__(self, rates: ExposureRates) -> None:
        self.rates, self.item = rates, rates.item
        self.row_biases = np.zeros(len(rates.item), dtype=np.float32)

    def select(self, items: Codes | None) -> None:
        """Select the items of a batch; None: all of them."""
        self.item = self.rates.item if items is None else self.rates.item[items]
        self.row_biases = np.zeros(len(self.item), dtype=np.float32)

    def user_rows(self, users: Codes) -> Floats:
        """Return the activity of some users."""
        return self.rates.user[users][:, None]

    def scores(self, tile: slice, user_rows: Floats) -> Floats:
        """Return the flip logits of a tile of items."""
        return flip_logits(user_rows.astype(np.float64) * self.item[tile])

    def gradients(
        self, tile: slice, steps: Floats, step_sums: Floats, user_rows: Floats, *, first: bool
    ) -> Floats:
        """Return gradients of zero."""
        return np.zeros_like(user_rows)

    def update_items(self, tile: slice, items: Codes | None, l2_part: Floats, rate: Floats) -> None:
        """Nothing is trained."""

    def update_users(self, users: Codes, gradients: Floats, rate: float) -> None:
        """Nothing is trained."""

    def dense(self, users: Codes) -> Doubles:
        """Return the flip logits of all items for some users."""
        return self.rates.dense_logits(users).astype(np.float64)

    def write_to(self, users: Floats, items: Floats, bias: Floats | None) -> None:
        """Nothing was trained."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return no arrays: nothing is trained."""
        return {}
