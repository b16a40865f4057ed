"""`ExposureRates`: p(shown) of every pair, as one rate per user and one per item.

If the impressions of item i for user u are a Poisson process of rate a_u b_i, then

    p(shown to u, i) = 1 - exp(-a_u b_i)        p(never shown) = exp(-a_u b_i)

p(never shown) is the paper's flip probability p(observed 0 | truly 1). `tl.synthetic.World` shows in this way too, up
to (1 - v) = exp(-v - v^2 / 2 - ...).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truelike.errors import ParameterError

CERTAIN = 30.0  # the largest flip logit, as that of known flips
_PAIRS_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class ExposureRates:
    """Estimated exposure: p(shown to u, i) = 1 - exp(-user[u] item[i]), and at least `least`.

    Attributes
    ----------
    user, item
        The activity of each user and the visibility of each item, float32, not negative. An exposure that is the same
        for all users has ones in `user`.
    basis
        What the estimate rests on, in words.
    least
        The smallest propensity.

    Examples
    --------
    >>> rates = ExposureRates(np.array([1.0, 2.0]), np.array([0.0, 0.5, 3.0]), "assumed: an example")
    >>> rates.propensity([0, 1], [1, 1]).round(3)
    array([0.393, 0.632])
    >>> rates.propensity_block([1]).round(3)
    array([[0.   , 0.632, 0.998]])
    >>> rates.clipped(0.1).propensity_block([1]).round(3)
    array([[0.1  , 0.632, 0.998]])
    """

    user: NDArray[np.float32]
    item: NDArray[np.float32]
    basis: str
    least: float = 0.0

    def __post_init__(self) -> None:
        for name in ("user", "item"):
            rates = np.ascontiguousarray(getattr(self, name), dtype=np.float32)
            if rates.ndim != 1 or not (np.isfinite(rates).all() and (rates >= 0).all()):
                raise ParameterError(
                    f"the {name} rates of an exposure must be a list of finite numbers, 0 or more"
                )
            object.__setattr__(self, name, rates)
        if not 0 <= self.least < 1:
            raise ParameterError(f"the least propensity is {self.least}; expected at least 0 and below 1")

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of users and items."""
        return len(self.user), len(self.item)

    @property
    def least_rate(self) -> float:
        """The smallest user[u] item[i], so that 1 - exp(-it) is `least`."""
        return -math.log1p(-self.least)

    def rate(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:
        """Return user[u] item[i], at least `least_rate`, of pairs; the arrays are broadcast against each other."""
        user, item = self.user[np.asarray(users)], self.item[np.asarray(items)]
        return np.asarray(np.maximum(user.astype(np.float64) * item, self.least_rate))

    def propensity(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:
        """Return p(shown) of each pair (users[n], items[n])."""
        return np.asarray(-np.expm1(-self.rate(users, items)))

    def propensity_block(self, users: ArrayLike) -> NDArray[np.float64]:
        """Return p(shown) of all items for some users: a new array (len(users), n_items)."""
        return self.propensity(np.asarray(users)[:, None], np.arange(len(self.item)))

    def flip_logits(self, users: ArrayLike, items: ArrayLike | None = None) -> NDArray[np.float32]:
        """Return g with sigma(g) = p(never shown), between -30 and 30: of pairs, or of all items without `items`.

        >>> rates = ExposureRates(np.array([1.0]), np.array([0.0, 1.0, 90.0]), "assumed: an example")
        >>> rates.flip_logits([0]).round(3)
        array([[ 30.   ,  -0.541, -30.   ]], dtype=float32)
        """
        at = (np.asarray(users)[:, None], np.arange(len(self.item))) if items is None else (users, items)
        return _logits(self.rate(*at))

    def clipped(self, least: float) -> ExposureRates:
        """Return the same exposure with propensities of at least `least`."""
        return replace(self, least=max(self.least, float(least)))

    # --- as known flips have them -----------------------------------------------------------------

    def dense_logits(self, users: ArrayLike) -> NDArray[np.float32]:
        """Return the flip logits of all items for some users."""
        return self.flip_logits(users)

    def fill(self, out: NDArray[np.float32], users: ArrayLike, first: int) -> None:
        """Write the flip logits of some users, and of as many items from `first` on as `out` has columns."""
        out[:] = self.flip_logits(np.asarray(users)[:, None], np.arange(first, first + out.shape[1]))

    def among(self, users: ArrayLike, items: ArrayLike | None) -> ExposureRates:
        """Return the rates of some users and items; None: of all items."""
        item = self.item if items is None else self.item[np.asarray(items)]
        return replace(self, user=self.user[np.asarray(users)], item=item)

    def exposed_users(self) -> NDArray[np.float64]:
        """Return the expected number of users to whom each item was shown."""
        values, counts = np.unique(self.user, return_counts=True)
        shown = np.zeros(len(self.item))
        rows = max(1, _PAIRS_AT_ONCE // max(1, len(self.item)))
        for start in range(0, len(values), rows):
            part = slice(start, start + rows)
            rate = np.maximum(values[part, None].astype(np.float64) * self.item, self.least_rate)
            shown += (-np.expm1(-rate) * counts[part, None]).sum(axis=0)
        return shown

    def average_logits(self) -> NDArray[np.float64]:
        """Return the flip logits of all items for the average user, which are used for a new user."""
        hidden = np.clip(1 - self.exposed_users() / len(self.user), 1e-9, 1 - 1e-9)
        return np.asarray(np.log(hidden) - np.log1p(-hidden))

    def reindexed(self, users: NDArray[Any], items: NDArray[Any], shape: tuple[int, int]) -> ExposureRates:
        """Return the same exposure for a larger dataset, in which user n is users[n] and item n is items[n].

        A new user has the mean activity, and a new item the mean visibility.
        """
        wider = []
        for rates, at, n in ((self.user, users, shape[0]), (self.item, items, shape[1])):
            mean = rates.mean(dtype=np.float64) if len(rates) else 1.0
            wider.append(np.full(n, mean, dtype=np.float32))
            wider[-1][at] = rates
        return replace(self, user=wider[0], item=wider[1])

    # --- storage ----------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are saved, by name."""
        return {
            "exposure.user": self.user,
            "exposure.item": self.item,
            "exposure.basis": np.frombuffer(self.basis.encode(), dtype=np.uint8),
            "exposure.least": np.array([self.least], dtype=np.float64),
        }

    @classmethod
    def restored(
        cls, arrays: Mapping[str, NDArray[Any]], shape: tuple[int, int] | None = None
    ) -> ExposureRates | None:
        """Return the exposure of saved arrays; None if there is none.

        Raise ValueError if the arrays cannot be an exposure of a dataset of this shape.
        """
        if "exposure.user" not in arrays:
            return None
        user, item, basis, least = (np.asarray(arrays[f"exposure.{name}"]) for name in _ARRAYS)
        if [each.dtype.name for each in (user, item, basis)] != ["float32", "float32", "uint8"] or least.shape != (
            1,
        ):
            raise ValueError("the arrays of the exposure have other types or shapes than were saved")
        if shape is not None and (user.shape, item.shape) != ((shape[0],), (shape[1],)):
            raise ValueError(f"the exposure is of {len(user)} users and {len(item)} items, not of {shape}")
        return cls(user, item, basis.tobytes().decode(), float(least[0]))

    def digest(self) -> str:
        """Return a hash of the exposure."""
        arrays = self.arrays().values()
        return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()

    def __repr__(self) -> str:
        return f"ExposureRates({len(self.user):,} users, {len(self.item):,} items, {self.basis!r})"


_ARRAYS = ("user", "item", "basis", "least")


def _logits(rate: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return -log(exp(rate) - 1), as -rate - log(1 - exp(-rate)), which does not overflow."""
    with np.errstate(divide="ignore"):
        logits = -rate - np.log(-np.expm1(-rate))
    return np.clip(logits, -CERTAIN, CERTAIN).astype(np.float32)
