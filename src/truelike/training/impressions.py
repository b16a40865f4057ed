"""Known flip probabilities, computed from impressions instead of learned.

Impressions are the items that were shown to a user, with how often or how likely they were shown. The flip
probability p(observed 0 | truly 1) of an item that was never shown is 1: a missing interaction with it carries no
information. If an item was shown n times, a user who likes it missed it every time with probability miss_rate^n.
"""

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

CERTAIN = 30.0  # the largest flip logit: sigma is 1 in float32, and 0 for its negative


@dataclass(frozen=True, eq=False)
class KnownFlips:
    """The flip probability p(observed 0 | truly 1) of every pair: given for listed pairs, 1 for all others.

    Attributes
    ----------
    logits
        CSR (users x items) of the flip logits of the listed pairs.
    """

    logits: Any

    @classmethod
    def from_counts(cls, shown: Any, miss_rate: float) -> KnownFlips:
        """Return the flips of a CSR of impression counts: miss_rate^n for n impressions, 1 without any."""
        return cls.from_probabilities(shown, np.power(miss_rate, np.maximum(shown.data, 0), dtype=np.float64))

    @classmethod
    def from_probabilities(cls, pattern: Any, hidden: NDArray[np.floating]) -> KnownFlips:
        """Return flips of the given probabilities, one for each entry of a CSR."""
        with np.errstate(divide="ignore"):
            logits = np.clip(np.log(hidden) - np.log1p(-hidden), -CERTAIN, CERTAIN).astype(np.float32)
        parts = (logits, pattern.indices.astype(np.int32), pattern.indptr.astype(np.int32))
        return cls(sparse.csr_array(parts, shape=pattern.shape))

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> KnownFlips | None:
        """Return the flips of saved arrays; None if there are none."""
        from truelike.data.matrix import checked_csr

        if "flips.logits" not in arrays:
            return None
        return cls(checked_csr((arrays["flips.logits"], arrays["flips.indices"], arrays["flips.indptr"]), shape))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are saved, by name."""
        return {
            "flips.logits": self.logits.data,
            "flips.indices": self.logits.indices,
            "flips.indptr": self.logits.indptr,
        }

    def digest(self) -> str:
        """Return a hash of the flips."""
        arrays = self.arrays().values()
        return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()

    def reindexed(self, users: Codes, items: Codes, shape: tuple[int, int]) -> KnownFlips:
        """Return the same flips for a larger dataset, in which user n is users[n] and item n is items[n]."""
        listed = self.logits.tocoo()
        data = listed.data + np.float32(2 * CERTAIN)  # avoids zeros, which a sparse matrix may drop
        wider = sparse.csr_array((data, (users[listed.row], items[listed.col])), shape=shape)
        wider.sort_indices()
        parts = (
            wider.data - np.float32(2 * CERTAIN),
            wider.indices.astype(np.int32),
            wider.indptr.astype(np.int32),
        )
        return KnownFlips(sparse.csr_array(parts, shape=shape))

    def exposed_users(self) -> NDArray[np.float64]:
        """Return the expected number of users who noticed each item."""
        seen = 1 - objectives.sigmoid(self.logits.data.astype(np.float64))
        return np.asarray(
            np.bincount(self.logits.indices, weights=seen, minlength=self.logits.shape[1]), np.float64
        )

    def average_logits(self) -> NDArray[np.float64]:
        """Return the flip logits of all items for the average user, which are used for a new user."""
        hidden = np.clip(1 - self.exposed_users() / self.logits.shape[0], 1e-9, 1 - 1e-9)
        return np.asarray(np.log(hidden) - np.log1p(-hidden))

    def fill(self, out: NDArray[np.float32], users: NDArray[np.int32], first: int) -> None:
        """Write the flip logits of some users, and of as many items from `first` on as `out` has columns."""
        from truelike.training.exact.kernels import compiled

        listed = (self.logits.indptr, self.logits.indices, self.logits.data)
        compiled("fill_flips")(out, np.float32(CERTAIN), users, *listed, first)

    def among(self, users: NDArray[np.int32], items: NDArray[np.int32] | None) -> KnownFlips:
        """Return the flips of some users and items; None: of all items."""
        listed = self.logits[users]
        return KnownFlips(listed if items is None else sparse.csr_array(listed[:, items]))

    def dense_logits(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return the flip logits of all items for some users."""
        out = np.empty((len(users), self.logits.shape[1]), dtype=np.float32)
        self.fill(out, users, 0)
        return out


def known_flips(impressions: Any, train: Dataset, miss_rate: float) -> KnownFlips:
    """Return the flips of the users and items of a dataset, from impressions in any form that `tl.read` accepts.

    A table with a column `propensity` contains the probability that a pair was shown. In any other form the
    weight of a pair is the number of its impressions.
    """
    propensities = None if isinstance(impressions, Dataset) else _propensities(impressions)
    shown = propensities or (impressions if isinstance(impressions, Dataset) else read(impressions))
    known, _ = shown.recode(train.users, train.items)
    if not known.n_interactions:
        raise DataError(
            f"none of the {shown.n_interactions:,} impressions has both a user and an item of the training data; "
            "check that the ids are the same"
        )
    if propensities is None:
        if known._csr.data.min() < 0:
            raise DataError("an impression has a negative weight; a weight is how often the pair was shown")
        return KnownFlips.from_counts(known._csr, miss_rate)
    probability = known._csr.data.astype(np.float64)
    if not (probability.min() >= 0 and probability.max() <= 1):
        raise DataError("a propensity is outside 0 to 1; it is the probability that the pair was shown")
    return KnownFlips.from_probabilities(known._csr, 1 - probability * (1 - miss_rate))


def _propensities(table: Any) -> Dataset | None:
    """Read a frame or a file with a column `propensity`, as the weight of the pairs; None without that column."""
    import narwhals as nw

    if isinstance(table, str | Path):
        columns, rows = column_names(Path(table)), None
    else:
        try:
            frame = nw.from_native(table, eager_only=True)
        except TypeError:
            return None  # not a frame, but a list of pairs or a matrix
        columns, rows = frame.columns, len(frame)
    if "propensity" not in columns:
        return None
    propensities = read(table, weight="propensity")
    if rows is not None and propensities.n_interactions < rows:
        raise DataError("a pair of user and item is listed more than once; it must have one propensity")
    return propensities
