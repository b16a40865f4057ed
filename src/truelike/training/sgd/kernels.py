"""The compiled loops of the sampled engine: mini-batches of positives, each with its drawn negatives.

A batch has two phases. In the first, each user of the batch belongs to one thread, which computes the scores and
steps of the user's samples and updates the user's row: once, or with `sequential` after each block of samples. In
the second, each item belongs to one thread, which updates the item's row by the stored steps. No two threads write
the same row, and every sum is taken in the order of the samples. So the result does not depend on the number of
threads.

A row of a table is [preference | flip]: U and P side by side, and V and Q, so that one access loads both. L2
shrinks *every* row at every batch, but it is applied lazily: `*_last_updated` holds the batch up to which it has
been applied to a row, and the factor of the missed batches, `powers[batch - last_updated]`, is applied when the
row is read.

Arguments of several functions:

- `entries`: the positives of a batch, as positions in the CSR of the training data.
- `bit_table`: tells positives from other items, see `negative_sampling`.
- `powers`, `flip_powers`: the factors by which a row shrinks in 0, 1, 2, ... batches that do not touch it;
  `shrink`, `flip_shrink`: in the batch that does.
- `sequential`: whether a user's row moves after each block of BLOCK samples at most, instead of once by their sum.
  The sum over a user with many positives in a batch would need a smaller learning rate.
- `old_rows`: the users' rows as they were scored, each in the slot of the first positive that was scored with it.
- `sample_item`, `sample_slot`, `sample_step`, `sample_flip`: a sample's item, the slot of its user in `old_rows`,
  and its steps of r and g.

What is known of exposure (see `KnownExposure`; an array that is not used is empty):

- `taken`: for entries that are shown pairs instead of positives, whether each was taken. No negatives are drawn then:
  what was shown and not taken are the negatives.
- `logits`, `logit`: the flip logit of each entry, or of all.
- `skipped_indptr`, `skipped_items`, `skipped_share`: what was shown to each user and not taken, and the share of the
  drawn negatives that are taken from it.
- `user_rate`, `item_rate`, `least_rate`: p(shown) = 1 - exp(-user_rate x item_rate), from which flip logits are
  computed; the product is at least `least_rate`.
- `biased`, `offset`: whether the flip tables hold item biases, and what is added to all scores. The flip row of a
  user is then [1, 0, ...] and does not change, and that of an item is [bias, 0, ...].
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numba
import numpy as np
from numba import types

from truelike.compile_cache import cached_njit
from truelike.training.objective_compiler import STEPS_SIGNATURE, uniquely_named
from truelike.training.row_ops import INLINE, LOOP, add_four, dot, dot_four, prefetch, prefetch_row, scaled_add
from truelike.training.sgd.barrier import aborted, add_atomically, wait
from truelike.training.sgd.negative_sampling import BITS_PER_POSITIVE, draw_from_shown, draw_negative, stream_start

BLOCK = 64  # samples that are processed together: their rows fit into the L1 cache
CHUNKS_PER_THREAD = 8  # of the positives of a batch
CHUNK_WORK = 2**27  # numbers of item rows in a chunk at most: tenths of a second, after which an abort is noticed
ITEMS_BETWEEN_LOOKS = 1024  # for an abort
PREFETCH_ITEMS = 16  # how many items ahead rows are prefetched
PREFETCH_POSITIVES = 64  # how many positives ahead their users and items are prefetched
PREFETCH_USERS = 16  # how many positives ahead the next users' rows are prefetched, at least
PREFETCH_LINES = 16  # cache lines of a bit table that are prefetched at most
CERTAIN = np.float32(30.0)  # the largest flip logit
POSITIVES_PER_LINE = 64 * 8 // BITS_PER_POSITIVE  # of a bit table


@numba.njit(**LOOP)
def _hardest_negative(
    j: Any, state: Any, candidates: Any,
    entry_item: Any, start: Any, stop: Any, bit_table: Any, n_items: Any, keep: Any, alias: Any, weights: Any,
    old_rows: Any, old_row: Any, item_table: Any, row_width: Any, width: Any,
    item_last_updated: Any, batch: Any, powers: Any,
) -> Any:  # fmt: skip
    """Return the best-scored of the drawn item j and further candidates, and the state of the random stream."""
    r_j = powers[batch - item_last_updated[j]] * dot(old_rows, old_row, item_table, j * row_width, width)
    for _ in range(1, candidates):
        other, state = draw_negative(state, entry_item, start, stop, bit_table, n_items, keep, alias, weights)
        scale = powers[batch - item_last_updated[other]]
        score = scale * dot(old_rows, old_row, item_table, other * row_width, width)
        if score > r_j:
            j, r_j = other, score
    return j, state


@numba.njit(**INLINE)
def _prepare_sample(
    item: Any, sample: Any, sample_item: Any, s: Any, offsets: Any, item_scale: Any, item_flip_scale: Any,
    item_table: Any, width: Any, flip_width: Any,
    item_last_updated: Any, batch: Any, powers: Any, flip_powers: Any,
) -> None:  # fmt: skip
    """Store a sample's item, the offset of its row and the missed L2 of the row, and prefetch the row."""
    offset = item * (width + flip_width)
    prefetch_row(item_table, offset, width + flip_width)
    missed = np.uint64(batch - item_last_updated[item])
    sample_item[sample], offsets[s], item_scale[s] = item, offset, powers[missed]
    if flip_width > np.uint64(0):
        item_flip_scale[s] = flip_powers[missed]


@numba.njit(**LOOP)
def _flip_logit(rate: Any) -> Any:
    """Return the logit of exp(-rate), the probability that a pair was never shown, within CERTAIN."""
    if rate > CERTAIN:
        return -CERTAIN
    return min(CERTAIN, -np.log(np.expm1(max(rate, np.float32(1e-30)))))


@numba.njit(**INLINE)
def _prefetch_user(
    at: Any, n: Any, entries: Any, entry_user: Any, indptr: Any, user_table: Any, user_last_updated: Any, row_width: Any
) -> None:  # fmt: skip
    """Prefetch the row of the user of a positive further on, and where the user's positives begin."""
    if at < n:
        user = np.uint64(entry_user[np.uint64(entries[at])])
        prefetch(indptr, user)
        prefetch(user_last_updated, user)
        prefetch_row(user_table, user * row_width, row_width)


@numba.njit(**INLINE)
def _prefetch_bits(at: Any, n: Any, entries: Any, entry_user: Any, indptr: Any, bit_table: Any) -> None:
    """Prefetch the first lines of the bit table of the user of a positive further on."""
    if at < n:
        user = np.uint64(entry_user[np.uint64(entries[at])])
        start, stop = np.uint64(indptr[user]), np.uint64(indptr[user + np.uint64(1)])
        lines = min((stop - start) // np.uint64(POSITIVES_PER_LINE), np.uint64(PREFETCH_LINES)) + np.uint64(1)
        for k in range(lines):
            at_byte = (start + k * np.uint64(POSITIVES_PER_LINE)) * np.uint64(BITS_PER_POSITIVE // 8)
            prefetch(bit_table, at_byte)


def _update_users(
    chunk: Any, n_chunks: Any, entries: Any, batch: Any, key: Any,
    entry_user: Any, entry_item: Any, indptr: Any, bit_table: Any,
    user_table: Any, item_table: Any, user_last_updated: Any, item_last_updated: Any, width: Any, flip_width: Any,
    rate: Any, powers: Any, flip_powers: Any, shrink: Any, flip_shrink: Any, sequential: Any,
    n_negatives: Any, candidates: Any, keep: Any, alias: Any, weights: Any,
    pairwise: Any, weight: Any, positive_steps: Any, negative_steps: Any,
    skipped_indptr: Any, skipped_items: Any, skipped_share: Any, taken: Any, logits: Any, logit: Any,
    user_rate: Any, item_rate: Any, least_rate: Any, biased: Any, offset: Any,
    old_rows: Any, sample_item: Any, sample_slot: Any, sample_step: Any, sample_flip: Any,
    offsets: Any, gradient: Any, r: Any, g: Any, item_scale: Any, item_flip_scale: Any, known: Any, known_i: Any,
) -> None:  # fmt: skip
    """Process the users of a chunk: score their samples, store the steps for the items, update the users' rows.

    A user's samples (some positives, then their negatives) go through short loops (draw, score, step, add), a
    block at a time. So the processor can work on many samples at once, and the rows of a block stay in its cache.
    """
    n, row_width, zero, one, four = len(entries), width + flip_width, np.uint64(0), np.uint64(1), np.uint64(4)
    n_items, rho = np.uint64(len(item_last_updated)), np.uint64(n_negatives)
    flips = flip_width > zero and not pairwise and not biased
    labelled, by_rates = len(taken) > 0, len(item_rate) > 0
    block = max(1, BLOCK // (n_negatives + 1))
    at, end = chunk * n // n_chunks, (chunk + 1) * n // n_chunks
    while 0 < at < n and entry_user[entries[at]] == entry_user[entries[at - 1]]:
        at += 1  # the positives of the previous user belong to the previous chunk
    while at < end:
        user = np.uint64(entry_user[entries[at]])
        run_end = at + 1
        while run_end < n and np.uint64(entry_user[entries[run_end]]) == user:
            run_end += 1
        _prefetch_user(
            max(run_end, at + PREFETCH_USERS),
            n,
            entries,
            entry_user,
            indptr,
            user_table,
            user_last_updated,
            row_width,
        )
        start, stop = np.uint64(indptr[user]), np.uint64(indptr[user + one])
        missed = batch - user_last_updated[user]
        row, old_row = user * row_width, np.uint64(at) * row_width
        flip_row, old_flip_row = row + width, old_row + width
        for k in range(row_width):
            gradient[k] = np.float32(0.0)
        scaled_add(old_rows, old_row, powers[missed], user_table, row, np.float32(0.0), gradient, zero, width)
        flip_scale = np.float32(1.0) if biased else flip_powers[missed]
        scaled_add(
            old_rows, old_flip_row, flip_scale, user_table, flip_row, np.float32(0.0), gradient, zero, flip_width
        )
        slot = at
        for first in range(at, run_end, block):
            n_positives = np.uint64(min(block, run_end - first))
            base, n_samples = np.uint64(first) * (rho + one), n_positives * (rho + one)
            # draw
            n_taken, n_skipped = zero, zero
            for p in range(n_positives):
                entry = entries[np.uint64(first) + p]
                if np.int64(first + p) + PREFETCH_POSITIVES < n:
                    ahead = np.uint64(entries[np.uint64(first) + p + np.uint64(PREFETCH_POSITIVES)])
                    prefetch(entry_user, ahead)
                    prefetch(entry_item, ahead)
                place: Any = p
                if labelled:  # those that were taken come first
                    is_taken = np.uint64(taken[entry])
                    n_taken += is_taken
                    n_skipped += one - is_taken
                    place = n_taken - one if is_taken else n_positives - n_skipped
                    known[place] = logits[entry] if len(logits) > 0 else logit
                _prepare_sample(
                    np.uint64(entry_item[entry]), base + place, sample_item, place, offsets, item_scale,
                    item_flip_scale, item_table, width, flip_width, item_last_updated, batch, powers, flip_powers,
                )  # fmt: skip
                state = stream_start(key, entry)
                for k in range(one, rho + one):
                    if len(skipped_items) > 0:
                        j, state = draw_from_shown(
                            state, skipped_items, np.uint64(skipped_indptr[user]),
                            np.uint64(skipped_indptr[user + one]), skipped_share,
                            entry_item, start, stop, bit_table, n_items, keep, alias, weights,
                        )  # fmt: skip
                    else:
                        j, state = draw_negative(
                            state, entry_item, start, stop, bit_table, n_items, keep, alias, weights
                        )
                    if candidates > 1:
                        j, state = _hardest_negative(
                            j, state, candidates,
                            entry_item, start, stop, bit_table, n_items, keep, alias, weights,
                            old_rows, old_row, item_table, row_width, width, item_last_updated, batch, powers,
                        )  # fmt: skip
                    negative = k * n_positives + p
                    _prepare_sample(
                        j, base + negative, sample_item, negative, offsets, item_scale, item_flip_scale,
                        item_table, width, flip_width, item_last_updated, batch, powers, flip_powers,
                    )  # fmt: skip
            if not labelled:
                n_taken = n_positives
            if by_rates:
                for s in range(n_samples):
                    rate_of_pair = user_rate[user] * item_rate[np.uint64(sample_item[base + s])]
                    known[s] = _flip_logit(max(rate_of_pair, least_rate))
            if first == at:
                _prefetch_bits(max(run_end, at + PREFETCH_USERS // 2), n, entries, entry_user, indptr, bit_table)
            for s in range(n_samples, n_samples + four):  # pad to groups of four
                offsets[s], item_scale[s], item_flip_scale[s] = offsets[zero], np.float32(0.0), np.float32(0.0)
            # score
            for s in range(zero, n_samples, four):
                dot_four(r, s, old_rows, old_row, item_table, offsets, zero, width)
            for s in range(n_samples):
                r[s] *= item_scale[s]
            if flips:
                for s in range(zero, n_samples, four):
                    dot_four(g, s, old_rows, old_flip_row, item_table, offsets, width, flip_width)
                for s in range(n_samples):
                    g[s] *= item_flip_scale[s]
            elif not pairwise:
                if biased:
                    for s in range(zero, n_samples, four):
                        dot_four(g, s, old_rows, old_flip_row, item_table, offsets, width, flip_width)
                    for s in range(n_samples):
                        r[s] += g[s] * item_flip_scale[s] + offset
                for s in range(n_samples):
                    g[s] = known[s] if labelled or by_rates else np.float32(0.0)
            # step
            if pairwise:
                for k in range(n_positives, n_samples, n_positives):
                    for p in range(n_positives):
                        g[k + p] = r[p]
                        known_i[k + p] = known[p]
                negative_steps(r, g, known, known_i, n_positives, n_samples)
                for p in range(n_positives):
                    r[p] = g[n_positives + p]
                for k in range(n_positives + n_positives, n_samples, n_positives):
                    for p in range(n_positives):
                        r[p] += g[k + p]
            else:
                positive_steps(r, g, known, known_i, zero, n_taken)
                negative_steps(r, g, known, known_i, n_taken, n_samples)
                for p in range(n_taken):
                    r[p] *= weight
                    g[p] *= weight
            for s in range(n_samples):
                sample_slot[base + s], sample_step[base + s] = slot, r[s]
                if biased:
                    sample_flip[base + s] = r[s]
                r[s] *= item_scale[s]
            if flips:
                for s in range(n_samples):
                    sample_flip[base + s] = g[s]
                    g[s] *= item_flip_scale[s]
            # add
            for s in range(n_samples, n_samples + four):
                r[s], g[s] = np.float32(0.0), np.float32(0.0)
            for s in range(zero, n_samples, four):
                add_four(gradient, zero, np.float32(1.0), r, s, item_table, offsets, zero, width)
            if flips:
                for s in range(zero, n_samples, four):
                    add_four(gradient, width, np.float32(1.0), g, s, item_table, offsets, width, flip_width)
            if sequential and first + block < run_end:  # the next block starts from the updated row
                slot = first + block
                next_row = np.uint64(slot) * row_width
                scaled_add(old_rows, next_row, np.float32(1.0), old_rows, old_row, rate, gradient, zero, width)
                scaled_add(
                    old_rows, next_row + width, np.float32(1.0), old_rows, old_flip_row,
                    rate, gradient, width, flip_width,
                )  # fmt: skip
                old_row, old_flip_row = next_row, next_row + width
                for k in range(row_width):
                    gradient[k] = np.float32(0.0)
        scaled_add(user_table, row, shrink, old_rows, old_row, rate, gradient, zero, width)
        if not biased:
            scaled_add(
                user_table, flip_row, flip_shrink, old_rows, old_flip_row, rate, gradient, width, flip_width
            )
        user_last_updated[user] = batch + 1
        at = run_end


def _update_items(
    thread: Any, threads: Any, barrier: Any, n_samples: Any, batch: Any,
    item_table: Any, item_last_updated: Any, width: Any, flip_width: Any,
    rate: Any, powers: Any, flip_powers: Any, shrink: Any, flip_shrink: Any,
    old_rows: Any, sample_item: Any, sample_slot: Any, sample_step: Any, sample_flip: Any,
    bounds: Any, item_cursor: Any, own_samples: Any, touched_items: Any, row_offsets: Any, steps: Any, flips: Any,
    last_offsets: Any, last_steps: Any, last_flips: Any,
) -> None:  # fmt: skip
    """Update the rows of this thread's items, each by its samples in their order.

    The samples are first grouped by item, by a counting sort. Its loops have no branch that depends on the data:
    it would be mispredicted half of the time.
    """
    row_width, zero, one, four = width + flip_width, np.uint64(0), np.uint64(1), np.uint64(4)
    n_own, n_touched = np.uint64(n_samples), zero
    # select the samples of this thread's items
    if threads > 1:
        n_own, low, high = zero, bounds[thread], bounds[thread + 1]
        for s in range(np.uint64(n_samples)):
            item = sample_item[s]
            own_samples[n_own] = s
            n_own += np.uint64((low <= item) & (item < high))
    # count the samples of each item
    for k in range(n_own):
        item = np.uint64(sample_item[np.uint64(own_samples[k])])
        touched_items[n_touched] = item
        n_touched += np.uint64(item_cursor[item] == 0)
        item_cursor[item] += 1
    # group the samples by item
    end = zero
    for t in range(n_touched):
        item = np.uint64(touched_items[t])
        count = np.uint64(item_cursor[item])
        item_cursor[item] = end
        end += count
    for k in range(n_own):
        sample = np.uint64(own_samples[k])
        item = np.uint64(sample_item[sample])
        position = np.uint64(item_cursor[item])
        item_cursor[item] += 1
        row_offsets[position] = np.uint64(sample_slot[sample]) * row_width
        steps[position] = rate * sample_step[sample]
        if flip_width > zero:
            flips[position] = rate * sample_flip[sample]
    # update the rows
    begin = zero
    for t in range(n_touched):
        if (t + one) % np.uint64(ITEMS_BETWEEN_LOOKS) == zero and aborted(barrier):
            return
        item = np.uint64(touched_items[t])
        if t + np.uint64(PREFETCH_ITEMS) < n_touched:
            prefetch_row(
                item_table, np.uint64(touched_items[t + np.uint64(PREFETCH_ITEMS)]) * row_width, row_width
            )
        end = np.uint64(item_cursor[item])
        item_cursor[item] = 0
        missed, row = batch - item_last_updated[item], item * row_width
        scale, flip_scale = shrink * powers[missed], flip_shrink * flip_powers[missed]
        while begin + four <= end:
            add_four(item_table, row, scale, steps, begin, old_rows, row_offsets, zero, width)
            add_four(item_table, row + width, flip_scale, flips, begin, old_rows, row_offsets, width, flip_width)
            scale = flip_scale = np.float32(1.0)
            begin += four
        if begin < end:  # the last one to three, padded to four
            for k in range(four):
                sample = min(begin + k, end - one)
                counts = np.float32(begin + k < end)
                last_offsets[k], last_steps[k] = row_offsets[sample], counts * steps[sample]
                if flip_width > zero:
                    last_flips[k] = counts * flips[sample]
            add_four(item_table, row, scale, last_steps, zero, old_rows, last_offsets, zero, width)
            add_four(
                item_table, row + width, flip_scale, last_flips, zero, old_rows, last_offsets, width, flip_width
            )
            begin = end
        item_last_updated[item] = batch + 1


def _run_batches(
    update_users: Any, update_items: Any,
    thread: Any, threads: Any, barrier: Any, chunk_counter: Any,
    first: Any, batch_size: Any, entries: Any, key: Any,
    entry_user: Any, entry_item: Any, indptr: Any, bit_table: Any,
    user_table: Any, item_table: Any, user_last_updated: Any, item_last_updated: Any, width: Any, flip_width: Any,
    rate: Any, powers: Any, flip_powers: Any, shrink: Any, flip_shrink: Any, sequential: Any,
    n_negatives: Any, candidates: Any, keep: Any, alias: Any, weights: Any,
    pairwise: Any, weight: Any, positive_steps: Any, negative_steps: Any,
    skipped_indptr: Any, skipped_items: Any, skipped_share: Any, taken: Any, logits: Any, logit: Any,
    user_rate: Any, item_rate: Any, least_rate: Any, biased: Any, offset: Any,
    old_rows: Any, sample_item: Any, sample_slot: Any, sample_step: Any, sample_flip: Any,
    bounds: Any, item_cursor: Any, own_samples: Any, touched_items: Any, row_offsets: Any, steps: Any, flips: Any,
    offsets: Any, gradient: Any, scratch: Any,
) -> None:  # fmt: skip
    """Run one thread's part of batches first, first + 1, ... of the given entries (sorted within each batch).

    A thread takes the next chunk of users when it is done with one, so that no thread waits long for a slower one.
    In every batch each thread asks once more than there are chunks for it, which `chunk_counter` accounts for. After an
    abort there is no further chunk.
    """
    work = min(batch_size, len(entries)) * (n_negatives + 1) * np.int64(width + flip_width)
    n_chunks = max(1 if threads == 1 else CHUNKS_PER_THREAD * threads, work // CHUNK_WORK)
    for b in range((len(entries) + batch_size - 1) // batch_size):
        part = entries[b * batch_size : (b + 1) * batch_size]
        batch = first + b
        chunk = add_atomically(chunk_counter, 1) - b * (n_chunks + threads)
        while chunk < n_chunks:
            update_users(
                chunk, n_chunks, part, batch, key, entry_user, entry_item, indptr, bit_table,
                user_table, item_table, user_last_updated, item_last_updated, width, flip_width,
                rate, powers, flip_powers, shrink, flip_shrink, sequential,
                n_negatives, candidates, keep, alias, weights,
                pairwise, weight, positive_steps, negative_steps,
                skipped_indptr, skipped_items, skipped_share, taken, logits, logit,
                user_rate, item_rate, least_rate, biased, offset,
                old_rows, sample_item, sample_slot, sample_step, sample_flip, offsets[thread], gradient[thread],
                scratch[thread, 0], scratch[thread, 1], scratch[thread, 2], scratch[thread, 3],
                scratch[thread, 4], scratch[thread, 5],
            )  # fmt: skip
            chunk = add_atomically(chunk_counter, 1) - b * (n_chunks + threads)
        if not wait(barrier, threads):
            return
        update_items(
            thread, threads, barrier, len(part) * (n_negatives + 1), batch,
            item_table, item_last_updated, width, flip_width, rate, powers, flip_powers, shrink, flip_shrink,
            old_rows, sample_item, sample_slot, sample_step, sample_flip,
            bounds, item_cursor, own_samples[thread], touched_items[thread],
            row_offsets[thread], steps[thread], flips[thread],
            offsets[thread], scratch[thread, 0], scratch[thread, 1],
        )  # fmt: skip
        if not wait(barrier, threads):
            return


_f4, _i4, _i8 = types.float32, types.int32, types.int64
_u1, _u4, _u8 = types.uint8, types.uint32, types.uint64
_STEPS_POINTER = types.FunctionType(STEPS_SIGNATURE)
_DATASET = (_i4[::1], _i4[::1], _i4[::1], _u1[::1])
_TABLES = (_f4[::1], _f4[::1], _i4[::1], _i4[::1], _u8, _u8)
_SHRINKING = (_f4, _f4[::1], _f4[::1], _f4, _f4)
_DISTRIBUTION = (_i8, _i8, _f4[::1], _i4[::1], types.float64[::1])
_OBJECTIVE = (types.boolean, _f4, _STEPS_POINTER, _STEPS_POINTER)
_EXPOSURE = (
    _i4[::1], _i4[::1], _f4, _u1[::1], _f4[::1], _f4, _f4[::1], _f4[::1], _f4, types.boolean, _f4,
)  # fmt: skip
_SAMPLES = (_f4[::1], _i4[::1], _i4[::1], _f4[::1], _f4[::1])
_UPDATE_USERS = types.void(
    _i8, _i8, _i4[::1], _i8, _u8,
    *_DATASET, *_TABLES, *_SHRINKING, types.boolean, *_DISTRIBUTION, *_OBJECTIVE, *_EXPOSURE, *_SAMPLES,
    _u8[::1], _f4[::1], _f4[::1], _f4[::1], _f4[::1], _f4[::1], _f4[::1], _f4[::1],
)  # fmt: skip
_UPDATE_ITEMS = types.void(
    _i8, _i8, _i8[::1], _i8, _i8, _f4[::1], _i4[::1], _u8, _u8, *_SHRINKING, *_SAMPLES,
    _i4[::1], _i4[::1], _i4[::1], _i4[::1], _u4[::1], _f4[::1], _f4[::1], _u8[::1], _f4[::1], _f4[::1],
)  # fmt: skip
_BATCHES = types.void(
    types.FunctionType(_UPDATE_USERS), types.FunctionType(_UPDATE_ITEMS),
    _i8, _i8, _i8[::1], _i8[::1], _i8, _i8, _i4[::1], _u8,
    *_DATASET, *_TABLES, *_SHRINKING, types.boolean, *_DISTRIBUTION, *_OBJECTIVE, *_EXPOSURE, *_SAMPLES,
    _i4[::1], _i4[::1], _i4[:, ::1], _i4[:, ::1], _u4[:, ::1], _f4[:, ::1], _f4[:, ::1],
    _u8[:, ::1], _f4[:, ::1], _f4[:, :, ::1],
)  # fmt: skip


def compile_batches() -> Any:
    """Return the compiled loop over batches, from the cache on disk after the first time.

    The signatures are explicit so that an objective is passed as a pointer: the loops are compiled once for all
    objectives. The two phases are pointers, too: as ordinary calls they would be compiled a second time.
    """
    options = {"nogil": True, "_nrt": False}
    update_users, update_items = (
        cached_njit(signature, **options, no_cpython_wrapper=True)(uniquely_named(function))
        for signature, function in ((_UPDATE_USERS, _update_users), (_UPDATE_ITEMS, _update_items))
    )
    batches = cached_njit(_BATCHES, **options, no_cfunc_wrapper=True)(uniquely_named(_run_batches))
    return partial(batches, update_users, update_items)


@cached_njit(nogil=True)
def apply_missed_l2(table: Any, last_updated: Any, width: Any, batch: Any, powers: Any, flip_powers: Any) -> None:
    """Apply the L2 that rows have missed up to a batch, and reset `last_updated` to 0."""
    for row in range(table.shape[0]):
        missed = batch - last_updated[row]
        for k in range(width):
            table[row, k] *= powers[missed]
        for k in range(width, table.shape[1]):
            table[row, k] *= flip_powers[missed]
        last_updated[row] = 0
