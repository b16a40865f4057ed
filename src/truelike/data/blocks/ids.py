"""`BlockIds`: the ids of users that need not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.ids import Codes, Ids, Kind, check_count, find_sorted

READ_BLOCKS = 2  # of ids that are kept in memory


class BlockIds(Ids):
    """The ids of the users of a block directory. Those of a block are read when one of them is asked for.

    They need the first id of each block, and the row number of the first user of each block with the number of users.
    """

    _firsts: pl.Series
    _bounds: NDArray[np.int64]
    _read: Callable[[int], pl.Series]

    def __init__(
        self, kind: Kind, firsts: Sequence[Any], bounds: NDArray[np.int64], read: Callable[[int], pl.Series]
    ) -> None:
        check_count(int(bounds[-1]), "users")
        own = {"kind": kind, "what": "user", "_bounds": bounds, "_read": lru_cache(READ_BLOCKS)(read)}
        for name, value in own.items():
            object.__setattr__(self, name, value)  # the class is frozen
        object.__setattr__(self, "_firsts", pl.Series("id", list(firsts), dtype=self.dtype))

    @property
    def values(self) -> pl.Series:
        """All ids, which must fit into memory."""
        return pl.concat([self._read(n) for n in range(len(self._firsts))])

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def _find(self, wanted: pl.Series) -> Codes:
        after = self._firsts.search_sorted(wanted.fill_null(self._firsts[0]), side="right")
        blocks = after.to_numpy().astype(np.int64) - 1  # they are unsigned, and -1 is an id before all others
        codes = np.full(len(wanted), -1, dtype=np.int32)
        asked = np.flatnonzero((blocks >= 0) & wanted.is_not_null().to_numpy())
        for block in np.unique(blocks[asked]):
            here = asked[blocks[asked] == block]
            found = find_sorted(self._read(int(block)), wanted.gather(here))
            codes[here] = np.where(found >= 0, found + self._bounds[block], -1)
        return codes

    def stored(self, codes: NDArray[np.integer]) -> pl.Series:
        """The ids at the given row numbers, as they are stored."""
        codes = np.asarray(codes)
        blocks = np.searchsorted(self._bounds, codes, side="right") - 1
        order = np.argsort(blocks, kind="stable")
        parts = [pl.Series("id", [], dtype=self.dtype)]
        for block in np.unique(blocks):
            here = np.flatnonzero(blocks == block)
            parts.append(self._read(int(block)).gather(codes[here] - self._bounds[block]).alias("id"))
        back = np.empty(len(codes), dtype=np.int64)
        back[order] = np.arange(len(codes))
        return pl.concat(parts).gather(back)
