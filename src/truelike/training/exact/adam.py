"""Tables that are updated by SGD or Adam, and the dot-product models made of them.

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
    """A table whose rows are updated by SGD or Adam.

    Attributes
    ----------
    table
        The parameters.
    regularization
        The L2 of each row.
    adam
        Adam, or else SGD.
    first_moment, second_moment, n_updates
        The state of Adam: the moments of each parameter, and the number of updates of each row. Empty for SGD.
    """

    table: Floats
    regularization: Floats
    adam: bool
    first_moment: Floats = field(init=False)
    second_moment: Floats = field(init=False)
    n_updates: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        shape = self.table.shape if self.adam else (0, 0)
        self.first_moment = np.zeros(shape, dtype=np.float32)
        self.second_moment = np.zeros(shape, dtype=np.float32)
        self.n_updates = np.zeros(len(self.first_moment), dtype=np.int64)

    def update(self, rows: Rows, gradient: Floats, l2_part: float, rate: float) -> None:
        """Update some rows by their gradients (of what is maximised) and a part of their L2."""
        from truelike.training.exact.kernels import compiled

        regularization = np.float32(l2_part) * self.regularization[rows]
        arguments = (self.table, rows, gradient, regularization, np.float32(rate))
        if self.adam:
            compiled("adam")(*arguments, self.first_moment, self.second_moment, self.n_updates)
        else:
            compiled("sgd")(*arguments)

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
    buffers
        For each tile of items, the scores of a block of users. They are replaced by the steps.
    item_gradient, bias_gradient
        The gradients of the items' rows and biases, summed over the blocks of a batch.
    """

    users: OptimizedTable
    items: OptimizedTable
    bias: OptimizedTable | None
    buffers: list[Floats]
    item_gradient: Floats
    bias_gradient: Floats

    def buffer(self, t: int, tile: slice, n_users: int) -> Floats:
        """Return the buffer of tile t as an array of n_users x items."""
        n_items = tile.stop - tile.start
        return self.buffers[t][: n_users * n_items].reshape(n_users, n_items)

    def scores(self, t: int, tile: slice, user_rows: Floats) -> Floats:
        """Compute the scores of a tile of items without the bias, in the buffer of the tile."""
        return np.matmul(user_rows, self.items.table[tile].T, out=self.buffer(t, tile, len(user_rows)))

    def biases(self, tile: slice) -> Floats:
        """Return the biases of a tile of items; zeros if there are none."""
        return np.zeros(tile.stop - tile.start, np.float32) if self.bias is None else self.bias.table[tile, 0]

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
        return np.asarray(steps @ self.items.table[tile])

    def update_items(self, tile: slice, l2_part: float, rate: float) -> None:
        """Update a tile of items by the stored gradients."""
        rows = np.arange(tile.start, tile.stop, dtype=np.int32)
        self.items.update(rows, self.item_gradient[tile], l2_part, rate)
        if self.bias is not None:
            self.bias.update(rows, self.bias_gradient[tile], l2_part, rate)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        tables = {"users": self.users, "items": self.items, "bias": self.bias}
        return {
            f"{name}.{part}": array
            for name, table in tables.items()
            if table is not None
            for part, array in table.state().items()
            if array.size
        }
