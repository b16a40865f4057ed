"""Flips that are known instead of learned: from what was shown to whom, or how likely it was shown."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike import objectives
from truelike.data.dataset import Dataset
from truelike.data.files import column_names
from truelike.data.ids import Codes
from truelike.data.interactions import read
from truelike.errors import DataError

CERTAIN = 30.0  # a flip logit beyond which sigma is 0 or 1 in float32


@dataclass(frozen=True, eq=False)
class KnownFlips:
    """p(observed 0 | truly 1) of every pair: a value for each listed pair, and 1 for all others.

    Attributes
    ----------
    logits
        CSR (users x items) of the flip logits of the pairs that are listed.
    """

    logits: Any

    @classmethod
    def of_counts(cls, shown: Any, overlooked: float) -> KnownFlips:
        """A like is hidden if the item was overlooked each time that it was shown: overlooked^n, 1 if never."""
        return cls.of_probabilities(shown, np.power(overlooked, np.maximum(shown.data, 0), dtype=np.float64))

    @classmethod
    def of_probabilities(cls, pattern: Any, hidden: NDArray[np.floating]) -> KnownFlips:
        """From the probability that a like of each listed pair is hidden."""
        with np.errstate(divide="ignore"):
            logits = np.clip(np.log(hidden) - np.log1p(-hidden), -CERTAIN, CERTAIN).astype(np.float32)
        parts = (logits, pattern.indices.astype(np.int32), pattern.indptr.astype(np.int32))
        return cls(sparse.csr_array(parts, shape=pattern.shape))

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> KnownFlips | None:
        """From saved arrays; None where there are none."""
        from truelike.storage import checked_csr

        if "flips.logits" not in arrays:
            return None
        return cls(checked_csr((arrays["flips.logits"], arrays["flips.indices"], arrays["flips.indptr"]), shape))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is saved."""
        return {
            "flips.logits": self.logits.data,
            "flips.indices": self.logits.indices,
            "flips.indptr": self.logits.indptr,
        }

    def digest(self) -> str:
        """A name for these very flips."""
        arrays = self.arrays().values()
        return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()

    def moved(self, users: Codes, items: Codes, shape: tuple[int, int]) -> KnownFlips:
        """The same flips where user n is now users[n] and item n is items[n] of a larger log."""
        listed = self.logits.tocoo()
        data = listed.data + np.float32(2 * CERTAIN)  # none of them 0, which a sparse matrix may drop
        wider = sparse.csr_array((data, (users[listed.row], items[listed.col])), shape=shape)
        wider.sort_indices()
        parts = (
            wider.data - np.float32(2 * CERTAIN),
            wider.indices.astype(np.int32),
            wider.indptr.astype(np.int32),
        )
        return KnownFlips(sparse.csr_array(parts, shape=shape))

    def audience(self) -> NDArray[np.float64]:
        """To how many users each item was shown, about."""
        seen = 1 - objectives.sigmoid(self.logits.data.astype(np.float64))
        return np.asarray(
            np.bincount(self.logits.indices, weights=seen, minlength=self.logits.shape[1]), np.float64
        )

    def typical(self) -> NDArray[np.float64]:
        """The flip logits of a user of whom nothing is known: each item was shown to them as often as to all."""
        hidden = np.clip(1 - self.audience() / self.logits.shape[0], 1e-9, 1 - 1e-9)
        return np.asarray(np.log(hidden) - np.log1p(-hidden))

    def fill(self, room: NDArray[np.float32], users: NDArray[np.int32], first: int) -> None:
        """Write the flip logits of some users and of the items from `first` on."""
        from truelike.training.blocks import compiled

        of = (self.logits.indptr, self.logits.indices, self.logits.data)
        compiled("fill_flips")(room, np.float32(CERTAIN), users, *of, first)

    def of(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """The flip logits of all items for some users."""
        room = np.empty((len(users), self.logits.shape[1]), dtype=np.float32)
        self.fill(room, users, 0)
        return room


def known_flips(impressions: Any, train: Dataset, overlooked: float) -> KnownFlips:
    """Flips from a table of impressions in any form, for the users and items of a log."""
    likely = None if isinstance(impressions, Dataset) else _propensities(impressions)
    shown = likely or (impressions if isinstance(impressions, Dataset) else read(impressions))
    here, _ = shown.recode(train.users, train.items)
    if not here.n_interactions:
        raise DataError(f"none of the {shown.n_interactions:,} impressions is of a user and an item of the log")
    if likely is None:
        if here.matrix.data.min() < 0:
            raise DataError("an impression has a negative weight; a weight is how often the pair was shown")
        return KnownFlips.of_counts(here.matrix, overlooked)
    chance = here.matrix.data.astype(np.float64)
    if not (chance.min() >= 0 and chance.max() <= 1):
        raise DataError("a propensity is outside 0 to 1: it is the probability that the pair was shown")
    return KnownFlips.of_probabilities(here.matrix, 1 - chance * (1 - overlooked))


def _propensities(table: Any) -> Dataset | None:
    """The pairs of a frame or a file with a column `propensity`, as their weight; None: there is none."""
    import narwhals as nw

    if isinstance(table, str | Path):
        columns, rows = column_names(Path(table)), None
    else:
        try:
            frame = nw.from_native(table, eager_only=True)
        except TypeError:
            return None  # a list of pairs, a matrix
        columns, rows = frame.columns, len(frame)
    if "propensity" not in columns:
        return None
    likely = read(table, weight="propensity")
    if rows is not None and likely.n_interactions < rows:
        raise DataError("a pair is listed more than once; a propensity is one number for a pair of user and item")
    return likely
