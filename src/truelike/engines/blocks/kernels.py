"""The compiled loops of training on blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from truelike.core.compile_cache import cached_njit
from truelike.engines.als.conjugate_gradient import _add, _add_positives


@cached_njit(nogil=True, _nrt=False)
def add_products(
    first: Any, stop: Any, n_items: Any, out: Any, x: Any, width: Any,
    table: Any, tile_users: Any, tile_starts: Any, weights: Any, target: Any, sign: Any,
) -> Any:  # fmt: skip
    """For items first ... stop - 1, set out += the sum over the users u of a block of c (target + sign u.x) u.

    Tile after tile, so that the rows of its users stay in the cache. `weights` are those of the interactions by item,
    or None. Returns the sum of c (target + sign u.x)^2.
    """
    width = np.uint64(width)
    squares = 0.0
    for tile in range((len(tile_starts) - 1) // n_items):
        for item in range(first, stop):
            begin, end = tile_starts[tile * n_items + item], tile_starts[tile * n_items + item + 1]
            if begin < end:
                at = np.uint64(item) * width
                squares += _add_positives(
                    out, at, table, tile_users, weights, begin, end, x, at, target, sign, width
                )
    return squares


@cached_njit(nogil=True, _nrt=False)
def add_scaled(
    first: Any, stop: Any, n_rows: Any, out: Any, width: Any, table: Any, entries: Any, starts: Any, scale: Any
) -> None:  # fmt: skip
    """For rows first ... stop - 1 of a matrix in tiles, set out += the sum over their entries e of scale_e table_e."""
    width = np.uint64(width)
    for tile in range((len(starts) - 1) // n_rows):
        for row in range(first, stop):
            at = np.uint64(row) * width
            for place in range(starts[tile * n_rows + row], starts[tile * n_rows + row + 1]):
                entry = entries[place]
                _add(out, at, scale[entry], table, np.uint64(entry) * width, width)


@cached_njit(nogil=True)
def part_of_block(indptr: Any, indices: Any, part_of_item: Any, place_of_item: Any, part: Any, size: Any) -> Any:
    """The interactions of a block with the `size` items of a part, as a CSR with the items' places in the part.

    Places are in the order of the items, so that the rows of the CSR are sorted. A user with all items of the part has
    no negative there, and so none of them.
    """
    pointers = np.zeros(len(indptr), dtype=np.int32)
    places = np.empty(len(indices), dtype=np.int32)
    at = 0
    for user in range(len(indptr) - 1):
        begin = at
        for entry in range(indptr[user], indptr[user + 1]):
            item = indices[entry]
            places[at] = place_of_item[item]
            at += part_of_item[item] == part
        if at - begin == size:
            at = begin
        pointers[user + 1] = at
    return pointers, places[:at].copy()
