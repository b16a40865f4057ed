"""`ExposureRates`: p(shown) of every pair, as one rate per user and one per item.

If the impressions of item i for user u are a Poisson process of rate a_u b_i, then

    p(shown to u, i) = 1 - exp(-a_u b_i)        p(never shown) = exp(-a_u b_i)

p(never shown) is the paper's flip probability p(observed 0 | truly 1). `tl.synthetic.World` shows in this way too, up
to (1 - v) = exp(-v - v^2 / 2 - ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truelike.errors import ParameterError
from truelike.exposure.shown_pairs import PAIRS_AT_ONCE, average_logits, flip_logits


@dataclass(frozen=True, eq=False)
class ExposureRates:
    """Estimated exposure: p(shown to u, i) = 1 - exp(-user[u] item[i]), the activity and the visibility.

    Examples
    --------
    >>> rates = ExposureRates(np.array([1.0, 2.0]), np.array([0.0, 0.5, 3.0]))
    >>> rates.propensity([0, 1], [1, 1]).round(3)
    array([0.393, 0.632])
    """

    user: NDArray[np.float32]
    item: NDArray[np.float32]

    def __post_init__(self) -> None:
        for name in ("user", "item"):
            rates = np.ascontiguousarray(getattr(self, name), dtype=np.float32)
            if rates.ndim != 1 or not (np.isfinite(rates).all() and (rates >= 0).all()):
                raise ParameterError(
                    f"the {name} rates of an exposure must be a list of finite numbers, 0 or more"
                )
            object.__setattr__(self, name, rates)

    def propensity(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:
        """Return p(shown) of each pair (users[n], items[n])."""
        user, item = self.user[np.asarray(users)], self.item[np.asarray(items)]
        return np.asarray(-np.expm1(-user.astype(np.float64) * item))

    def dense_logits(self, users: ArrayLike) -> NDArray[np.float32]:
        """Return g with sigma(g) = p(never shown), between -30 and 30, of all items for some users."""
        return flip_logits(self.user[np.asarray(users)][:, None].astype(np.float64) * self.item)

    def exposed_users(self) -> NDArray[np.float64]:
        """Return the expected number of users to whom each item was shown."""
        values, counts = np.unique(self.user, return_counts=True)
        shown = np.zeros(len(self.item))
        rows = max(1, PAIRS_AT_ONCE // max(1, len(self.item)))
        for start in range(0, len(values), rows):
            part = slice(start, start + rows)
            rate = values[part, None].astype(np.float64) * self.item
            shown += (-np.expm1(-rate) * counts[part, None]).sum(axis=0)
        return shown

    def average_logits(self) -> NDArray[np.float64]:
        """Return the flip logits of all items for the average user, which are used for a new user."""
        return average_logits(self.exposed_users(), len(self.user))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are saved, by name."""
        return {"exposure.user": self.user, "exposure.item": self.item}

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> ExposureRates | None:
        """Return the exposure of saved arrays; None if there is none.

        Raise ValueError if the arrays cannot be an exposure of a dataset of this shape.
        """
        if "exposure.user" not in arrays:
            return None
        user, item = (np.asarray(arrays[f"exposure.{name}"]) for name in ("user", "item"))
        if user.dtype != np.float32 or item.dtype != np.float32:
            raise ValueError("the arrays of the exposure have other types than were saved")
        if (user.shape, item.shape) != ((shape[0],), (shape[1],)):
            raise ValueError(f"the exposure is of {len(user)} users and {len(item)} items, not of {shape}")
        return cls(user, item)
