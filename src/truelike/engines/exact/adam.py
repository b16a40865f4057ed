"""Tables that are updated by Adam, and the dot-product models made of them.

`OptimizedTable` is one table with its L2 and the moments of Adam. `DotProduct` is a pair of such tables with an
item bias: the preference (U, V, b) or the flips (P, Q, c).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.core.arrays import Codes, Doubles, Floats
from truelike.engines.exact import kernels
from truelike.engines.exact.kernels import Moments, compiled


class OptimizedTable:
    """A table whose rows are updated by Adam, each with an L2 of its own."""

    def __init__(self, table: Floats, regularization: Floats) -> None:
        first, second = np.zeros((2, *table.shape), dtype=np.float32)
        self.table = table
        self.moments = Moments(table, regularization, first, second, np.zeros(len(table), dtype=np.int64))

    def update(self, rows: Codes, gradient: Floats, l2_part: Floats, rate: Floats) -> None:
        """Update some rows by their gradients (of what is maximised) and a part of their L2, each at its rate."""
        compiled(kernels.adam)(self.moments, rows, gradient, l2_part, rate)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        moments = self.moments
        names = ("table", "first_moment", "second_moment", "n_updates")
        return dict(zip(names, (self.table, moments.first, moments.second, moments.n_updates), strict=True))


@dataclass
class DotProduct:
    """A score that is a dot product of a user's and an item's row, plus an item bias.

    `rows` and `row_biases` are those of the items of the batch (see `select`); their gradients are summed over the
    blocks of a batch. `buffer` has the scores of a block of users, which are replaced by the steps.
    """

    users: OptimizedTable
    items: OptimizedTable
    bias: OptimizedTable | None
    buffer: Floats
    item_gradient: Floats
    bias_gradient: Floats
    rows: Floats = field(init=False)
    row_biases: Floats = field(init=False)

    def select(self, items: Codes | None) -> None:
        """Select the items of a batch; None: all of them."""
        self.rows = self.items.table if items is None else self.items.table[items]
        if self.bias is None:
            self.row_biases = np.zeros(len(self.rows), dtype=np.float32)
        else:
            self.row_biases = self.bias.table[:, 0] if items is None else self.bias.table[items, 0]

    def scores_of(self, tile: slice, n_users: int) -> Floats:
        """Return the part of the buffer of a tile of items, as an array of n_users x items."""
        return self.buffer[tile.start * n_users : tile.stop * n_users].reshape(n_users, -1)

    def scores(self, tile: slice, user_rows: Floats) -> Floats:
        """Compute the scores of a tile of items without the bias, in the buffer."""
        return np.matmul(user_rows, self.rows[tile].T, out=self.scores_of(tile, len(user_rows)))

    def gradients(
        self, tile: slice, steps: Floats, step_sums: Floats, user_rows: Floats, *, first: bool
    ) -> Floats:
        """Return the gradients of the users' rows, and add those of a tile of items to the stored ones.

        With S the steps, these are S V and S^T U. `step_sums` are the sums of the steps over the users. `first`
        replaces the stored gradients instead.
        """
        if first:
            np.matmul(steps.T, user_rows, out=self.item_gradient[tile])
            self.bias_gradient[tile, 0] = step_sums
        else:
            self.item_gradient[tile] += steps.T @ user_rows
            self.bias_gradient[tile, 0] += step_sums
        return np.asarray(steps @ self.rows[tile])

    def user_rows(self, users: Codes) -> Floats:
        """Return a copy of the rows of some users."""
        return np.asarray(self.users.table[users])

    def update_users(self, users: Codes, gradients: Floats, rate: float) -> None:
        """Update the rows of some users by their gradients."""
        whole, rates = np.ones(len(users), np.float32), np.full(len(users), rate, np.float32)
        self.users.update(users, gradients, whole, rates)

    def dense(self, users: Codes) -> Doubles:
        """Return the scores of all items for some users."""
        scores = (self.users.table[users] @ self.items.table.T).astype(np.float64)
        return scores if self.bias is None else scores + self.bias.table[:, 0]

    def write_to(self, users: Floats, items: Floats, bias: Floats | None) -> None:
        """Copy the trained parameters to tables."""
        users[:], items[:] = self.users.table, self.items.table
        if bias is not None and self.bias is not None:
            bias[:] = self.bias.table[:, 0]

    def update_items(self, tile: slice, items: Codes | None, l2_part: Floats, rate: Floats) -> None:
        """Update a tile of the selected items by the stored gradients."""
        rows = np.arange(tile.start, tile.stop, dtype=np.int32) if items is None else items[tile]
        self.items.update(rows, self.item_gradient[tile], l2_part[tile], rate[tile])
        if self.bias is not None:
            self.bias.update(rows, self.bias_gradient[tile], l2_part[tile], rate[tile])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        tables = {"users": self.users, "items": self.items, **({} if self.bias is None else {"bias": self.bias})}
        parts = ((name, table.state()) for name, table in tables.items())
        return {f"{name}.{part}": array for name, state in parts for part, array in state.items()}
