"""`Shown`: what was shown to whom, in the row numbers of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data import entries as rows
from truelike.data.ids import Codes
from truelike.errors import DataError

KNOWN = ("positions", "times", "propensities")  # what may be known of each showing


@dataclass(frozen=True, eq=False)
class Shown:
    """What was shown to the users of a dataset, whether it was taken or not: impressions.

    Attributes
    ----------
    csr
        CSR (users x items) of how often each pair was shown, as int32. Without positions, times and propensities each
        pair has one entry. Otherwise each row that was read has one, and a pair may have several.
    positions
        For each entry, the place in a list, from 1; None if it is not known.
    times
        For each entry, the time; None if it is not known.
    propensities
        For each entry, the probability that the pair was shown, above 0 and at most 1; None: it was shown.

    Examples
    --------
    >>> import truelike as tl
    >>> seen = [("ann", "tea"), ("ann", "rum"), ("ann", "rum"), ("bob", "rum")]
    >>> data = tl.read([("ann", "tea"), ("bob", "rum")], impressions=seen)
    >>> data.shown
    Shown(4 impressions, 3 entries)
    >>> data.shown.csr.toarray().tolist()
    [[2, 1], [1, 0]]
    """

    csr: sparse.csr_array
    positions: NDArray[np.int32] | None = None
    times: NDArray[np.int64] | None = None
    propensities: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        # otherwise SciPy would merge the entries of a pair in place, and leave those of `times` as they are
        self.csr.has_sorted_indices = self.csr.has_canonical_format = True

    @classmethod
    def from_pairs(
        cls,
        users: Codes,
        items: Codes,
        shape: tuple[int, int],
        counts: NDArray[np.integer] | None = None,
        **known: NDArray[Any] | None,
    ) -> Shown:
        """Build from row numbers; `known` are positions, times or propensities. Without them pairs are merged."""
        order = rows.sorted_pairs(users, items, shape)
        users, items = users[order], items[order].astype(np.int32)
        counts = np.ones(len(order), dtype=np.int32) if counts is None else counts[order]
        if any(known.get(name) is not None for name in KNOWN):
            of_rows = {name: rows.taken(known.get(name), order) for name in KNOWN}
        else:
            first, of_rows = rows.first_of_pairs(users, items), {}
            if len(first) < len(order):
                counts = np.add.reduceat(counts, first, dtype=np.int64)
                users, items = users[first], items[first]
        if len(counts) and counts.max() > np.iinfo(np.int32).max:
            raise DataError(
                f"a pair was shown {counts.max():,} times; at most {np.iinfo(np.int32).max:,} are possible"
            )
        parts = (counts.astype(np.int32, copy=False), items, rows.pointers(users, shape[0]))
        return cls(sparse.csr_array(parts, shape=shape), **of_rows)

    @property
    def n_entries(self) -> int:
        """The number of entries."""
        return int(self.csr.nnz)

    @property
    def n_impressions(self) -> int:
        """How often anything was shown."""
        return int(self.csr.data.sum(dtype=np.int64))

    @property
    def users(self) -> Codes:
        """For each entry, the row number of its user."""
        return rows.users_of(self.csr)

    @property
    def items(self) -> Codes:
        """For each entry, the row number of its item."""
        items: Codes = self.csr.indices
        return items

    @property
    def known(self) -> Mapping[str, NDArray[Any]]:
        """What is known of each entry, by name: positions, times, propensities."""
        found = {name: getattr(self, name) for name in KNOWN}
        return {name: values for name, values in found.items() if values is not None}

    @cached_property
    def counts(self) -> sparse.csr_array:
        """CSR (users x items) of how often each pair was shown; each pair has one entry."""
        if not self.known:
            return self.csr
        return Shown.from_pairs(self.users, self.items, self.csr.shape, self.csr.data).csr

    def select(self, entries: NDArray[np.bool_]) -> Shown:
        """The marked entries."""
        return self._taken(rows.select(self.csr, entries), entries)

    def recode(self, users: Codes, items: Codes, shape: tuple[int, int]) -> Shown:
        """The entries in other row numbers: user n becomes users[n], or is left out where it is -1."""
        return self._taken(*rows.recode(self.csr, users, items, shape))

    def _taken(self, csr: sparse.csr_array, entries: rows.Entries) -> Shown:
        return Shown(csr, **{name: values[entries] for name, values in self.known.items()})

    def merge(self, other: Shown) -> Shown:
        """The entries of both. Positions and times are kept if both have them."""
        if (self.propensities is None) != (other.propensities is None):
            raise DataError(
                "one table of impressions has propensities, the other has not. Give a propensity in both or in none."
            )
        both = (self, other)
        return Shown.from_pairs(
            np.concatenate([each.users for each in both]),
            np.concatenate([each.items for each in both]),
            self.csr.shape,
            np.concatenate([each.csr.data for each in both]),
            **{
                name: np.concatenate([each.known[name] for each in both])
                for name in self.known.keys() & other.known.keys()
            },
        )

    def __repr__(self) -> str:
        known = "".join(f", {name}" for name in self.known)
        return f"Shown({self.n_impressions:,} impressions, {self.n_entries:,} entries{known})"
