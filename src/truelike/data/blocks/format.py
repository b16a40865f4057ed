"""The files of a block directory.

A block has the interactions of a contiguous range of users. The users of all blocks, in their order, are sorted, and so
are the items, as in a `Dataset`: the row numbers are the same.

- `blocks.json`: the description, with checksums of all other files
- `items.parquet`: the item ids, with `popularity`, and with `title` if there are titles
- `block-00000.safetensors`: the arrays of block 0
    - `indptr`, `indices`: the CSR of its users, with the row numbers of the items, sorted for each user
    - `weights`, `times`: of each interaction; only if there are any
    - `tile_users`, `tile_starts`: the same interactions by item, in tiles of `tile` users (see `by_item`)
- `users-00000.parquet`: the ids of its users
- `shown`: a block directory of how often each pair was shown; only if that is known
- `kinds.parquet`, `item_features.parquet`, `user_features.parquet`, `schema.json`: other feedback, features and what
  the kinds of events mean; only if there are any
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike._version import __version__
from truelike.core.array_files import write_arrays
from truelike.core.files import describe_files, replacing_directory, write_description
from truelike.data.ids import MOST, Codes, Kind
from truelike.errors import DataError

FORMAT = 3
DESCRIPTION, ITEMS = "blocks.json", "items.parquet"
SHOWN = "shown"
Further = Callable[[Path], Sequence[str]]  # writes files to a directory, and returns their names
OWN_FILES = re.compile(
    r"blocks\.json|items\.parquet|(block-\d{5,}\.safetensors)|(users-\d{5,}\.parquet)|shown|kinds\.parquet"
    r"|(item|user)_features\.parquet|schema\.json"
)
SMALLEST_TILE = 4_096  # users whose rows fit into the cache of a core
ENTRIES_PER_ITEM = 4  # of a tile, at least, on average: fewer, and the rows of the items would be loaded too often


def array_file(number: int) -> str:
    """The name of the file with the arrays of a block."""
    return f"block-{number:05}.safetensors"


def user_file(number: int) -> str:
    """The name of the file with the user ids of a block."""
    return f"users-{number:05}.parquet"


def tile_size(n_users: int, n_items: int, n_interactions: int) -> int:
    """The number of users in a tile of a block.

    >>> tile_size(50_000, 20_000, 5_000_000), tile_size(300_000, 1_000_000, 15_000_000), tile_size(10, 5, 20)
    (4096, 80000, 10)
    """
    enough = -(-ENTRIES_PER_ITEM * n_items * n_users // max(1, n_interactions))
    return max(1, min(n_users, max(SMALLEST_TILE, enough)))


def by_item(
    indptr: NDArray[np.int32], indices: Codes, n_items: int, tile: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The users of each item, tile by tile: the transposed matrix of each tile of `tile` users.

    Of item i in tile t they are users[starts[t * n_items + i] : starts[t * n_items + i + 1]], as rows of the block.

    >>> users, starts = by_item(np.array([0, 2, 3, 4]), np.array([0, 1, 1, 0]), 2, 2)
    >>> users.tolist(), starts.tolist()
    ([0, 0, 1, 2], [0, 1, 3, 4, 4])
    """
    n_tiles = -(-(len(indptr) - 1) // tile)
    users, starts = np.empty(len(indices), dtype=np.int32), np.zeros(n_tiles * n_items + 1, dtype=np.int32)
    ones = np.ones(len(indices), dtype=np.int8)
    for t, (mine, turned) in enumerate(tiles(indptr, indices, ones, n_items, tile)):
        users[mine] = turned.indices + np.int32(t * tile)
        starts[t * n_items + 1 : (t + 1) * n_items + 1] = turned.indptr[1:] + mine.start
    return users, starts


def tiles(
    indptr: NDArray[np.int32], indices: Codes, values: NDArray[Any], n_items: int, tile: int
) -> Iterator[tuple[slice, sparse.csc_array]]:
    """The places of the interactions of each tile of users, and their matrix by item."""
    for first in range(0, len(indptr) - 1, tile):
        pointers = indptr[first : first + tile + 1]
        mine = slice(int(pointers[0]), int(pointers[-1]))
        parts = (values[mine], indices[mine], (pointers - pointers[0]).astype(np.int32))
        yield mine, sparse.csr_array(parts, shape=(len(pointers) - 1, n_items)).tocsc()


def block_bounds(counts: NDArray[np.integer], blocks: int) -> NDArray[np.int64]:
    """The first user of each block, and the number of users: blocks with about as many interactions each.

    `counts` are the interactions of each user. Every block has a user, so there are at most as many blocks as users.

    >>> block_bounds(np.array([5, 1, 1, 1, 1, 1]), 2).tolist()
    [0, 1, 6]
    """
    n = len(counts)
    ends = np.cumsum(counts, dtype=np.int64)
    wanted = ends[-1] * np.arange(1, blocks) / blocks
    inner = np.searchsorted(ends, wanted) + 1
    for b in range(len(inner)):  # every block has a user
        low = inner[b - 1] + 1 if b else 1
        inner[b] = min(max(inner[b], low), n - (blocks - 1 - b))
    return np.concatenate([[0], inner, [n]]).astype(np.int64)


@dataclass
class BlockWriter:
    """Writes the blocks of a directory, one after the other; `writing` makes one."""

    place: Path
    items: pl.Series
    kinds: dict[str, Kind]
    name: str
    titles: pl.Series | None = None
    blocks: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.popularity = np.zeros(len(self.items), dtype=np.int64)
        self.weighted = self.timed = False

    def add(
        self,
        users: pl.Series,
        indptr: NDArray[np.integer],
        indices: Codes,
        weights: NDArray[np.float32] | None = None,
        times: NDArray[np.int64] | None = None,
    ) -> None:
        """Write the next block: its user ids, all above those of the last block, and the CSR of their interactions.

        Weights that are all 1 are left out.
        """
        number, n_items = len(self.blocks), len(self.items)
        if len(indices) > MOST:
            raise DataError(f"block {number} would have {len(indices):,} interactions; use more blocks")
        tile = tile_size(len(users), n_items, len(indices))
        arrays: dict[str, NDArray[Any]] = {
            "indptr": indptr.astype(np.int32, copy=False),
            "indices": indices.astype(np.int32, copy=False),
        }
        arrays["tile_users"], arrays["tile_starts"] = by_item(arrays["indptr"], arrays["indices"], n_items, tile)
        if weights is not None and (weights != 1).any():
            arrays["weights"], self.weighted = weights, True
        if times is not None:
            arrays["times"], self.timed = times, True
        described = write_arrays(self.place / array_file(number), arrays)
        pl.DataFrame({"user_id": users}).write_parquet(self.place / user_file(number))
        self.popularity += np.bincount(indices, minlength=n_items)
        self.blocks.append(
            {
                "users": len(users),
                "interactions": len(indices),
                "tile": tile,
                "first_user": users[0],
                "arrays": described,
                "files": describe_files(self.place, [user_file(number)]),
            }
        )

    def finish(self, further: Further | None) -> None:
        """Write the items, what else is known, and the description."""
        items = pl.DataFrame({"item_id": self.items, "popularity": self.popularity})
        if self.titles is not None:
            items = items.with_columns(self.titles.alias("title"))
        items.write_parquet(self.place / ITEMS)
        files = () if further is None else further(self.place)
        about = {
            "format": FORMAT,
            "name": self.name,
            "ids": self.kinds,
            "users": sum(block["users"] for block in self.blocks),
            "items": len(self.items),
            "interactions": sum(block["interactions"] for block in self.blocks),
            "weights": self.weighted,
            "times": self.timed,
            "blocks": self.blocks,
            "files": describe_files(self.place, [ITEMS, *(name for name in files if name != SHOWN)]),
            "shown": SHOWN in files,
            "library_version": __version__,
        }
        write_description(self.place / DESCRIPTION, about)


@contextmanager
def writing(
    directory: str | Path,
    items: pl.Series,
    kinds: dict[str, Kind],
    name: str,
    titles: pl.Series | None = None,
    further: Further | None = None,
) -> Iterator[BlockWriter]:
    """Yield a writer of a block directory. It replaces an older one when everything is written.

    `further` writes what else is known to the directory, and returns the names of the files.
    """
    with replacing_directory(directory, own=OWN_FILES) as place:
        writer = BlockWriter(place, items, kinds, name, titles)
        yield writer
        writer.finish(further)
