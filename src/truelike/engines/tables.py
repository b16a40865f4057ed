"""The tables of a factor model: U, V, P, Q and the item biases.

A row is [preference | flip]: U and P are side by side in one array, and so are V and Q. Each of the two is padded
with zeros to whole vector registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.core.arrays import Floats
from truelike.core.memory import check_memory
from truelike.errors import DataError

CACHE_LINE = 16  # float32 numbers in a cache line
LARGE = 2**26  # bytes of tables from which on the available memory is checked
ROWS = 65_536  # that are initialised at a time
LANES = 8  # float32 numbers in a vector register: a padded width needs no remainder loop, and the zeros stay zero


def padded(width: int) -> int:
    """Return the next multiple of LANES.

    >>> padded(50), padded(0)
    (56, 0)
    """
    return -(-width // LANES) * LANES


def aligned_zeros(n: int, width: int) -> Floats:
    """Return a table of zeros that starts at a cache line.

    If the width is a multiple of CACHE_LINE, every row does.
    """
    memory = np.zeros(n * width + CACHE_LINE, dtype=np.float32)
    start = -memory.ctypes.data // 4 % CACHE_LINE
    return memory[start : start + n * width].reshape(n, width)


@dataclass
class Tables:
    """The parameters of a factor model.

    Attributes
    ----------
    users, items
        The padded tables [U | P] and [V | Q].
    factors, flip_factors
        The numbers of columns of U, V and of P, Q without the padding.
    item_bias, flip_bias
        The biases of r and of g; None: none.
    allocate
        Returns a table of zeros for the users: in memory, or in a file that is mapped into memory.
    """

    users: Floats
    items: Floats
    factors: int
    flip_factors: int
    item_bias: Floats | None = None
    flip_bias: Floats | None = None
    allocate: Callable[[int, int], Floats] = aligned_zeros

    @property
    def width(self) -> int:
        """The column at which the flips begin in a row."""
        return padded(self.factors)

    @classmethod
    def zeros(
        cls,
        n_users: int,
        n_items: int,
        factors: int,
        flip_factors: int,
        *,
        biased: bool = False,
        biased_flips: bool | None = None,
        allocate: Callable[[int, int], Floats] = aligned_zeros,
    ) -> Tables:
        """Return tables of zeros; `biased`: with item biases; `biased_flips`: also of the flips (None: as `biased`)."""
        row_width = padded(factors) + padded(flip_factors)
        in_memory = n_items + (n_users if allocate is aligned_zeros else 0)
        check_memory(4 * in_memory * row_width, f"a table of {row_width:,} factors", "Use fewer factors.")
        biases = np.zeros((2, n_items), dtype=np.float32)
        return cls(
            allocate(n_users, row_width),
            aligned_zeros(n_items, row_width),
            factors,
            flip_factors,
            biases[0] if biased else None,
            biases[1] if flip_factors and (biased if biased_flips is None else biased_flips) else None,
            allocate,
        )

    @property
    def user_factors(self) -> Floats:
        """The paper's U."""
        return self.users[:, : self.factors]

    @property
    def item_factors(self) -> Floats:
        """The paper's V."""
        return self.items[:, : self.factors]

    @property
    def user_flips(self) -> Floats:
        """The paper's P."""
        return self.users[:, self.width : self.width + self.flip_factors]

    @property
    def item_flips(self) -> Floats:
        """The paper's Q."""
        return self.items[:, self.width : self.width + self.flip_factors]

    def arrays(self) -> dict[str, Floats]:
        """Return the arrays that are trained and saved, by name."""
        biases = {"item_bias": self.item_bias, "flip_bias": self.flip_bias}
        present = {name: bias for name, bias in biases.items() if bias is not None}
        return {"users": self.users, "items": self.items, **present}

    def take(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> None:
        """Overwrite all tables with the given arrays."""
        for name, table in self.arrays().items():
            given = arrays[prefix + name]
            _check_array(name, given, table.shape)
            table[:] = given

    def copy(self) -> Tables:
        """Return a copy in new memory."""
        other = Tables.zeros(
            len(self.users), len(self.items), self.factors, self.flip_factors,
            biased=self.item_bias is not None, biased_flips=self.flip_bias is not None, allocate=self.allocate,
        )  # fmt: skip
        other.take(self.arrays())
        return other

    def of_users(self, users: NDArray[np.integer]) -> Tables:
        """Return the tables of some users alone."""
        rows = aligned_zeros(len(users), self.users.shape[1])
        rows[:] = self.users[users]
        return replace(self, users=rows)

    @classmethod
    def restored(
        cls, arrays: Mapping[str, NDArray[Any]], n_users: int, n_items: int, factors: int, flip_factors: int
    ) -> Tables:
        """Return tables of saved arrays, without a copy. The arrays determine whether there are flips and biases."""
        flip_factors = flip_factors if arrays["users"].shape[1:] > (padded(factors),) else 0
        width, bias = padded(factors) + padded(flip_factors), arrays.get("item_bias")
        flip_bias = arrays.get("flip_bias") if flip_factors else None
        tables = cls(arrays["users"], arrays["items"], factors, flip_factors, bias, flip_bias)
        shapes = {"users": (n_users, width), "items": (n_items, width)}
        for name, array in tables.arrays().items():
            _check_array(name, array, shapes.get(name, (n_items,)))
        return tables

    def initialise(
        self, init: Literal["paper", "normal", "spectral"], scale: float, flip_start: float, seed: int
    ) -> None:
        """Fill the tables with random numbers that depend only on the seed, the row and the column.

        Parameters
        ----------
        init
            "paper" is that of the authors: U and V are uniform in [0, 1) / sqrt(K), P in [0, 5) / sqrt(L), and Q
            in (-5, 0] / sqrt(L). "normal" has mean 0 and standard deviation `scale`. "spectral" is the same; the
            caller adds `spectral.add_spectrum`.
        scale
            The standard deviation.
        flip_start
            The initial value of g (not for "paper"). It is put in the first flip factor.
        seed
            The seed.
        """
        tables = (self.user_factors, self.item_factors, self.user_flips, self.item_flips)
        for name, table, width in zip("UVPQ", tables, (1.0, 1.0, 5.0, -5.0), strict=True):
            key = randomness.key(seed, "init", name)
            factors = table.shape[1]
            for start in range(0, len(table) if factors else 0, ROWS):
                rows = table[start : start + ROWS]
                counters = start * factors + np.arange(rows.size).reshape(rows.shape)
                if init == "paper":
                    rows[:] = width * randomness.uniform(key, counters) / np.sqrt(factors)
                else:
                    rows[:] = scale * randomness.normal(key, counters)
        if init != "paper" and self.flip_factors:
            root = np.sqrt(abs(flip_start))
            self.user_flips[:, 0] = root
            self.item_flips[:, 0] = np.sign(flip_start) * root

    def largest(self) -> float:
        """Return the largest absolute value of the factors; NaN if there is one."""
        extremes = [bound(table) for table in (self.users, self.items) for bound in (np.min, np.max) if table.size]
        return float(np.max(np.abs(extremes)))


def _check_array(name: str, given: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise if a table from outside has another shape or type than expected."""
    if given.shape != shape or given.dtype != np.float32:
        raise DataError(
            f"the table {name} has shape {given.shape} and type {given.dtype}; expected {shape} and float32"
        )
