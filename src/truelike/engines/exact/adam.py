"""Tables that are updated by Adam, and the dot-product models made of them.

`OptimizedTable` is one table with its L2 and the moments of Adam. `DotProduct` is a pair of such tables with an
item bias: the preference (U, V, b) or the flips (P, Q, c).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.int32]


@dataclass
class OptimizedTable:
    """A table whose rows are updated by Adam.

    Attributes
    ----------
    table
        The parameters.
    regularization
        The L2 of each row.
    first_moment, second_moment, n_updates
        The state of Adam: the moments of each parameter, and the number of updates of each row.
    """

    table: Floats
    regularization: Floats
    first_moment: Floats = field(init=False)
    second_moment: Floats = field(init=False)
    n_updates: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.first_moment = np.zeros(self.table.shape, dtype=np.float32)
        self.second_moment = np.zeros(self.table.shape, dtype=np.float32)
        self.n_updates = np.zeros(len(self.table), dtype=np.int64)

    def update(self, rows: Rows, gradient: Floats, l2_part: Floats, rate: Floats) -> None:
        """Update some rows by their gradients (of what is maximised) and a part of their L2, each at its rate."""
        from truelike.engines.exact.kernels import compiled

        arguments = (self.table, rows, gradient, l2_part * self.regularization[rows], rate)
        compiled("adam")(*arguments, self.first_moment, self.second_moment, self.n_updates)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        return {
            "table": self.table,
            "first_moment": self.first_moment,
            "second_moment": self.second_moment,
            "n_updates": self.n_updates,
        }


@dataclass
class DotProduct:
    """A score that is a dot product of a user's and an item's row, plus an item bias.

    Attributes
    ----------
    users, items, bias
        The tables. `bias` is None if items have no bias.
    rows, row_biases
        The rows and biases of the items of the batch: see `select`.
    buffer
        The scores of a block of users. They are replaced by the steps.
    item_gradient, bias_gradient
        The gradients of `rows` and `row_biases`, summed over the blocks of a batch.
    """

    users: OptimizedTable
    items: OptimizedTable
    bias: OptimizedTable | None
    buffer: Floats
    item_gradient: Floats
    bias_gradient: Floats
    rows: Floats = field(init=False)
    row_biases: Floats = field(init=False)

    def select(self, items: Rows | None) -> None:
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

    def user_rows(self, users: Rows) -> Floats:
        """Return a copy of the rows of some users."""
        return np.asarray(self.users.table[users])

    def update_users(self, users: Rows, gradients: Floats, rate: float) -> None:
        """Update the rows of some users by their gradients."""
        whole, rates = np.ones(len(users), np.float32), np.full(len(users), rate, np.float32)
        self.users.update(users, gradients, whole, rates)

    def dense(self, users: Rows) -> NDArray[np.float64]:
        """Return the scores of all items for some users."""
        scores = (self.users.table[users] @ self.items.table.T).astype(np.float64)
        return scores if self.bias is None else scores + self.bias.table[:, 0]

    def write_to(self, users: Floats, items: Floats, bias: Floats | None) -> None:
        """Copy the trained parameters to tables."""
        users[:], items[:] = self.users.table, self.items.table
        if bias is not None and self.bias is not None:
            bias[:] = self.bias.table[:, 0]

    def update_items(self, tile: slice, items: Rows | None, l2_part: Floats, rate: Floats) -> None:
        """Update a tile of the selected items by the stored gradients."""
        rows = np.arange(tile.start, tile.stop, dtype=np.int32) if items is None else items[tile]
        self.items.update(rows, self.item_gradient[tile], l2_part[tile], rate[tile])
        if self.bias is not None:
            self.bias.update(rows, self.bias_gradient[tile], l2_part[tile], rate[tile])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        tables = {"users": self.users, "items": self.items, "bias": self.bias}
        return {
            f"{name}.{part}": array
            for name, table in tables.items()
            if table is not None
            for part, array in table.state().items()
        }
