"""The first phase of a batch of shown pairs: each is scored once, with its label. The second is that of `sgd.kernels`.

The item biases are in the place of the flips, so that they are trained with the row: that of a user is [1, 0, ...] and
does not change, and that of an item is [bias, 0, ...].
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import types

from truelike.core.compile_cache import cached_njit
from truelike.core.progress import compiling
from truelike.engines.row_ops import add_four, dot_four, prefetch, scaled_add
from truelike.engines.sgd.kernels import (
    BLOCK,
    PREFETCH_POSITIVES,
    PREFETCH_USERS,
    compile_batches,
    prefetch_user,
    prepare_sample,
)


class Labels(NamedTuple):
    """What is known of the pairs.

    Attributes
    ----------
    taken
        Whether each pair was taken: 1 or 0.
    logits, logit
        The flip logit of each pair, or, if that is empty, of all.
    offset
        What is added to all scores.
    """

    taken: Any
    logits: Any
    logit: Any
    offset: Any


def _update_users_of_pairs(
    chunk: Any, n_chunks: Any, entries: Any, batch: Any, labels: Any, positive_steps: Any, negative_steps: Any,
    pairs: Any, tables: Any, rates: Any, samples: Any, offsets: Any, gradient: Any, scratch: Any,
) -> None:  # fmt: skip
    """Process the users of a chunk: score their pairs, store the steps for the items, update the users' rows."""
    entry_user, entry_item = pairs.users, pairs.items
    user_table, item_table = tables.users, tables.items
    user_last_updated, item_last_updated = tables.user_last_updated, tables.item_last_updated
    width, bias_width = tables.width, tables.flip_width
    rate, powers, bias_powers = rates.rate, rates.powers, rates.flip_powers
    old_rows = samples.old_rows
    r, g, item_scale, bias_scale = scratch[0], scratch[1], scratch[2], scratch[3]
    n, row_width, zero, one, four = len(entries), width + bias_width, np.uint64(0), np.uint64(1), np.uint64(4)
    at, end = chunk * n // n_chunks, (chunk + 1) * n // n_chunks
    while 0 < at < n and entry_user[entries[at]] == entry_user[entries[at - 1]]:
        at += 1  # the pairs of the previous user belong to the previous chunk
    while at < end:
        user = np.uint64(entry_user[entries[at]])
        run_end = at + 1
        while run_end < n and np.uint64(entry_user[entries[run_end]]) == user:
            run_end += 1
        ahead_user = max(run_end, at + PREFETCH_USERS)
        prefetch_user(ahead_user, n, entries, entry_user, pairs.indptr, user_table, user_last_updated, row_width)
        row, old_row = user * row_width, np.uint64(at) * row_width
        for k in range(row_width):
            gradient[k] = np.float32(0.0)
        missed = powers[batch - user_last_updated[user]]
        scaled_add(old_rows, old_row, missed, user_table, row, np.float32(0.0), gradient, zero, width)
        for k in range(width, row_width):
            old_rows[old_row + k] = user_table[row + k]
        slot = at
        for first in range(at, run_end, BLOCK):
            base, n_pairs = np.uint64(first), np.uint64(min(BLOCK, run_end - first))
            n_taken, n_skipped = zero, zero
            for p in range(n_pairs):
                entry = np.uint64(entries[base + p])
                if np.int64(base + p) + PREFETCH_POSITIVES < n:
                    ahead = np.uint64(entries[base + p + np.uint64(PREFETCH_POSITIVES)])
                    prefetch(entry_user, ahead)
                    prefetch(entry_item, ahead)
                is_taken = np.uint64(labels.taken[entry])  # those that were taken come first
                n_taken += is_taken
                n_skipped += one - is_taken
                place: Any = n_taken - one if is_taken else n_pairs - n_skipped
                g[place] = labels.logits[entry] if len(labels.logits) > 0 else labels.logit
                prepare_sample(
                    np.uint64(entry_item[entry]), base + place, samples.item, place, offsets, item_scale, bias_scale,
                    item_table, width, bias_width, item_last_updated, batch, powers, bias_powers,
                )  # fmt: skip
            for s in range(n_pairs, n_pairs + four):  # pad to groups of four
                offsets[s], item_scale[s], bias_scale[s] = offsets[zero], np.float32(0.0), np.float32(0.0)
            for s in range(zero, n_pairs, four):
                dot_four(r, s, old_rows, old_row, item_table, offsets, zero, width)
            for s in range(n_pairs):
                bias = item_table[offsets[s] + width]
                r[s] = r[s] * item_scale[s] + (bias * bias_scale[s] + labels.offset)
            positive_steps(r, g, zero, n_taken)
            negative_steps(r, g, n_taken, n_pairs)
            for s in range(n_pairs):
                samples.slot[base + s], samples.step[base + s], samples.flip[base + s] = slot, r[s], r[s]
                r[s] *= item_scale[s]
            for s in range(n_pairs, n_pairs + four):
                r[s] = np.float32(0.0)
            for s in range(zero, n_pairs, four):
                add_four(gradient, zero, np.float32(1.0), r, s, item_table, offsets, zero, width)
            if first + BLOCK < run_end:  # the next block starts from the updated row
                slot = first + BLOCK
                next_row = np.uint64(slot) * row_width
                scaled_add(old_rows, next_row, np.float32(1.0), old_rows, old_row, rate, gradient, zero, width)
                for k in range(width, row_width):
                    old_rows[next_row + k] = old_rows[old_row + k]
                old_row = next_row
                for k in range(row_width):
                    gradient[k] = np.float32(0.0)
        scaled_add(user_table, row, rates.shrink, old_rows, old_row, rate, gradient, zero, width)
        user_last_updated[user] = batch + 1
        at = run_end


_LABELS = types.NamedTuple((types.uint8[::1], types.float32[::1], types.float32, types.float32), Labels)


@lru_cache(maxsize=1)
def compiled_batches() -> Any:
    """Return the compiled loops. The first call of an installation compiles them and reports it."""
    with compiling("the training loops of impressions"):
        return compile_batches(_update_users_of_pairs, _LABELS)


@cached_njit(nogil=True)
def pairs_of_part(
    indptr: Any, indices: Any, taken: Any, logits: Any, part_of_item: Any, place_of_item: Any, part: Any
) -> Any:
    """The shown pairs of a block with the items of a part, as a CSR with the items' places in the part.

    Returns indptr, places, taken and logits.
    """
    pointers = np.zeros(len(indptr), dtype=np.int32)
    n = 0
    for user in range(len(indptr) - 1):
        for entry in range(indptr[user], indptr[user + 1]):
            n += part_of_item[indices[entry]] == part
        pointers[user + 1] = n
    places, labels = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.uint8)
    flips = np.empty(n if len(logits) > 0 else 0, dtype=np.float32)
    at = 0
    for entry in range(len(indices)):
        if part_of_item[indices[entry]] == part:
            places[at], labels[at] = place_of_item[indices[entry]], taken[entry]
            if len(flips) > 0:
                flips[at] = logits[entry]
            at += 1
    return pointers, places, labels, flips
