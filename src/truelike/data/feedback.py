"""`Feedback`: pairs (user, item), each once, with a weight and maybe a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data import entries as rows
from truelike.data.ids import Codes
from truelike.data.matrix import read_only
from truelike.errors import DataError

Times = NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class Feedback:
    """Feedback of one kind over the users and items of a dataset, such as views or refunds.

    Attributes
    ----------
    csr
        CSR (users x items) of the weights, as float32. They may be negative.
    times
        For each entry, the time of its last row; None if there are no times.

    Examples
    --------
    >>> import truelike as tl
    >>> log = [("ann", "tea", "buy"), ("ann", "rum", "view"), ("bob", "tea", "refund"), ("bob", "rum", "buy")]
    >>> log = [dict(zip(("user", "item", "event"), row)) for row in log]
    >>> data = tl.read(log, kind="event", kinds={"buy": 1, "view": 0.2, "refund": -1}, target="buy")
    >>> {name: kind.csr.toarray().tolist() for name, kind in data.kinds.items()}
    {'refund': [[0.0, 0.0], [0.0, -1.0]], 'view': [[0.20000000298023224, 0.0], [0.0, 0.0]]}
    """

    csr: sparse.csr_array
    times: Times = None

    @classmethod
    def from_pairs(
        cls,
        users: Codes,
        items: Codes,
        shape: tuple[int, int],
        weights: NDArray[np.floating] | None = None,
        times: Times = None,
    ) -> Feedback:
        """Build from row numbers of users and items; repeated pairs are merged (sum of weights, latest time)."""
        order = rows.sorted_pairs(users, items, shape)
        users, items = users[order], items[order]
        first = rows.first_of_pairs(users, items)
        merged = np.diff(first, append=len(order)) if weights is None else _sums(weights[order], first)
        if times is not None:
            times = read_only(np.maximum.reduceat(times[order], first) if len(first) else times[:0])
        parts = (merged.astype(np.float32), items[first].astype(np.int32), rows.pointers(users[first], shape[0]))
        return cls(sparse.csr_array(parts, shape=shape), times)

    def table(self) -> pl.DataFrame:
        """The row numbers, weights and times (null if there are none) of the entries."""
        times = pl.lit(None, dtype=pl.Int64) if self.times is None else pl.Series(self.times)
        columns = {"user": rows.users_of(self.csr), "item": self.csr.indices, "weight": self.csr.data}
        return pl.DataFrame(columns).with_columns(times.alias("time"))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of the entries by name."""
        times = {} if self.times is None else {"times": self.times}
        return {"indptr": self.csr.indptr, "indices": self.csr.indices, "weights": self.csr.data, **times}

    def select(self, entries: NDArray[np.bool_]) -> Feedback:
        """The marked entries."""
        return Feedback(rows.select(self.csr, entries), rows.taken(self.times, entries))

    def recode(self, users: Codes, items: Codes, shape: tuple[int, int]) -> Feedback:
        """The entries in other row numbers: user n becomes users[n], or is left out where it is -1."""
        csr, entries = rows.recode(self.csr, users, items, shape)
        return Feedback(csr, rows.taken(self.times, entries))

    def without_repeated(self, known: Feedback) -> Feedback:
        """The entries, but those of a pair and a time that another one of the same shape has; all without times."""
        if self.times is None or known.times is None or not known.csr.nnz:
            return self
        n_items = self.csr.shape[1]
        pairs, others = (
            rows.users_of(each.csr).astype(np.int64) * n_items + each.csr.indices for each in (self, known)
        )
        at = np.minimum(np.searchsorted(others, pairs), len(others) - 1)
        return self.select(~((others[at] == pairs) & (known.times[at] == self.times)))

    def merge(self, other: Feedback) -> Feedback:
        """The entries of both; those of the same pair are merged (sum of weights, latest time)."""
        both = (self, other)
        times = None
        if self.times is not None and other.times is not None:
            times = np.concatenate([self.times, other.times])
        return Feedback.from_pairs(
            np.concatenate([rows.users_of(each.csr) for each in both]),
            np.concatenate([each.csr.indices for each in both]),
            self.csr.shape,
            np.concatenate([each.csr.data for each in both]),
            times,
        )


def _sums(weights: NDArray[np.floating], first: NDArray[np.intp]) -> NDArray[np.floating]:
    """The sum of the weights of each pair, whose rows begin at `first`; an error if float32 cannot hold it."""
    sums: NDArray[np.floating] = np.add.reduceat(weights, first, dtype=np.float64) if len(first) else weights[:0]
    largest = float(np.finfo(np.float32).max)
    if len(sums) and not np.abs(sums).max() <= largest:
        raise DataError(
            f"the weights of a pair (user, item) add up to {sums.max():.3g}; at most {largest:.3g} is possible. "
            "Divide all weights by a large number."
        )
    return sums
