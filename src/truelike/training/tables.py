"""The tables of a factor model: a row is [preference | flip], padded with zeros to whole vector registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truelike import randomness
from truelike.errors import DataError

Floats = NDArray[np.float32]
LINE = 16  # float32 numbers in a line of the cache
LANES = 8  # float32 numbers in a register: a padded width needs no remainder loop, and zeros stay zero


def padded(width: int) -> int:
    """The next multiple of the lanes.

    >>> padded(50), padded(0)
    (56, 0)
    """
    return -(-width // LANES) * LANES


def aligned_zeros(n: int, width: int) -> Floats:
    """A table whose rows begin where lines of the cache do (if the width is a whole number of lines)."""
    room = np.zeros(n * width + LINE, dtype=np.float32)
    start = -room.ctypes.data // 4 % LINE
    return room[start : start + n * width].reshape(n, width)


@dataclass
class Tables:
    """U, V (preference, `factors` wide) and P, Q (flips, `flip_factors` wide), users' and items' side by side."""

    users: Floats
    items: Floats
    factors: int
    flip_factors: int
    item_bias: Floats | None = None
    flip_bias: Floats | None = None

    @property
    def width(self) -> int:
        """Where the flips begin in a row."""
        return padded(self.factors)

    @classmethod
    def zeros(cls, n_users: int, n_items: int, factors: int, flip_factors: int, *, biased: bool = False) -> Tables:
        """Tables of the right shape with nothing in them; `biased`: with a bias of each item."""
        whole = padded(factors) + padded(flip_factors)
        biases = np.zeros((2, n_items), dtype=np.float32)
        return cls(
            aligned_zeros(n_users, whole),
            aligned_zeros(n_items, whole),
            factors,
            flip_factors,
            biases[0] if biased else None,
            biases[1] if biased and flip_factors else None,
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
        """All that is trained and saved, by name."""
        biases = {"item_bias": self.item_bias, "flip_bias": self.flip_bias}
        present = {name: bias for name, bias in biases.items() if bias is not None}
        return {"users": self.users, "items": self.items, **present}

    def take(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> None:
        """Put numbers in the place of those that are there."""
        for name, room in self.arrays().items():
            given = arrays[prefix + name]
            if given.shape != room.shape or given.dtype != room.dtype:
                raise DataError(f"the table {name} has the shape {given.shape}, or is not {room.dtype}")
            room[:] = given

    def copy(self) -> Tables:
        """The same numbers in memory of their own."""
        size = (len(self.users), len(self.items), self.factors, self.flip_factors)
        other = Tables.zeros(*size, biased=self.item_bias is not None)
        other.take(self.arrays())
        return other

    @classmethod
    def restored(
        cls, arrays: Mapping[str, NDArray[Any]], n_users: int, n_items: int, factors: int, flip_factors: int
    ) -> Tables:
        """Tables from saved arrays, which tell whether there are flips and biases."""
        flips = arrays["users"].shape[1:] > (padded(factors),)
        tables = cls.zeros(n_users, n_items, factors, flip_factors if flips else 0, biased="item_bias" in arrays)
        tables.take(arrays)
        return tables

    def initialise(
        self, init: Literal["paper", "normal", "spectral"], scale: float, flip_start: float, seed: int
    ) -> None:
        """Fill with random numbers that depend on the seed, the row and the column alone.

        "paper" is the authors': U, V uniform in [0, 1) / sqrt(K), P 5 times that by L, Q minus 5 times. "normal"
        has mean zero and the given scale; the first flip factor of each row then carries the start of g.
        "spectral" is that, and what `spectral.add_spectrum` adds to it.
        """
        parts = (
            ("U", self.user_factors, 1.0),
            ("V", self.item_factors, 1.0),
            ("P", self.user_flips, 5.0),
            ("Q", self.item_flips, -5.0),
        )
        for name, part, stretch in parts:
            if not part.size:
                continue
            counters = np.arange(part.size).reshape(part.shape)
            key = randomness.key(seed, "init", name)
            if init == "paper":
                part[:] = stretch * randomness.uniform(key, counters) / np.sqrt(part.shape[1])
            else:
                part[:] = scale * randomness.normal(key, counters)
        if init != "paper" and self.flip_factors:
            root = np.sqrt(abs(flip_start))
            self.user_flips[:, 0] = root
            self.item_flips[:, 0] = np.sign(flip_start) * root

    def largest(self) -> float:
        """The greatest absolute value; NaN where there is one."""
        return float(np.maximum(np.abs(self.users).max(), np.abs(self.items).max()))
