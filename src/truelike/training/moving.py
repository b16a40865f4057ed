"""Tables whose rows are moved by SGD or by Adam, and the two parts of a model that are made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.int32]


@dataclass
class Moving:
    """A table, how strongly each of its rows is drawn to zero, and what Adam remembers of it."""

    table: Floats
    strength: Floats
    adam: bool
    mean: Floats = field(init=False)
    square: Floats = field(init=False)
    count: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        shape = self.table.shape if self.adam else (0, 0)
        self.mean, self.square = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
        self.count = np.zeros(len(self.mean), dtype=np.int64)

    def move(self, rows: Rows, gradient: Floats, share: float, rate: float) -> None:
        """Move some rows up their gradient and, by a share of the prior, towards zero."""
        from truelike.training.blocks import compiled

        moved = (self.table, rows, gradient, np.float32(share) * self.strength[rows], np.float32(rate))
        if self.adam:
            compiled("adam")(*moved, self.mean, self.square, self.count)
        else:
            compiled("descend")(*moved)

    def state(self) -> dict[str, NDArray[Any]]:
        """All arrays that training goes on from."""
        return {"table": self.table, "mean": self.mean, "square": self.square, "count": self.count}


@dataclass
class Part:
    """Preference (U, V and the items' biases) or flips (P, Q and theirs): one dot product for each pair."""

    users: Moving
    items: Moving
    bias: Moving | None
    room: list[Floats]  # for each tile of items the scores of a block of users, which become their steps
    gradient: Floats  # of the items
    bias_gradient: Floats

    def scores(self, t: int, tile: slice, rows: Floats) -> Floats:
        """U_B V^T for a tile of items."""
        out = self.room[t][: len(rows) * (tile.stop - tile.start)].reshape(len(rows), -1)
        return np.matmul(rows, self.items.table[tile].T, out=out)

    def biases(self, tile: slice) -> Floats:
        """Those of a tile of items; zeros where there are none."""
        return np.zeros(tile.stop - tile.start, np.float32) if self.bias is None else self.bias.table[tile, 0]

    def gradients(self, tile: slice, steps: Floats, up: Floats, rows: Floats, *, fresh: bool) -> Floats:
        """S V, which is given back, and S^T U_B and the sums of S, which are kept or added to what is there."""
        if fresh:
            np.matmul(steps.T, rows, out=self.gradient[tile])
            self.bias_gradient[tile, 0] = up
        else:
            self.gradient[tile] += steps.T @ rows
            self.bias_gradient[tile, 0] += up
        return np.asarray(steps @ self.items.table[tile])

    def move_items(self, tile: slice, share: float, rate: float) -> None:
        """Move a tile of items by the gradients that were kept."""
        rows = np.arange(tile.start, tile.stop, dtype=np.int32)
        self.items.move(rows, self.gradient[tile], share, rate)
        if self.bias is not None:
            self.bias.move(rows, self.bias_gradient[tile], share, rate)

    def state(self) -> dict[str, NDArray[Any]]:
        """All arrays that training goes on from."""
        moving = {"users": self.users, "items": self.items, "bias": self.bias}
        return {
            f"{name}.{what}": array
            for name, each in moving.items()
            if each is not None
            for what, array in each.state().items()
            if array.size
        }
