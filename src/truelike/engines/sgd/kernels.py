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

The loops take structures (`Positives`, `TrainedTables`, `Samples` ...), which the engine fills, and `entries`: the
positives of a batch, as positions in the CSR of the training data. `engines/shown` has another first phase, of pairs
that have a label, and shares the second.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from truelike.core.compile_cache import cached_njit
from truelike.engines.objective_compiler import STEPS_SIGNATURE, uniquely_named
from truelike.engines.row_ops import INLINE, LOOP, add_four, dot, dot_four, prefetch, prefetch_row, scaled_add
from truelike.engines.sgd.barrier import aborted, add_atomically, wait
from truelike.engines.sgd.negative_sampling import BITS_PER_POSITIVE, draw_negative, stream_start

BLOCK = 64  # samples that are processed together: their rows fit into the L1 cache
CHUNKS_PER_THREAD = 8  # of the positives of a batch
CHUNK_WORK = 2**27  # numbers of item rows in a chunk at most: tenths of a second, after which an abort is noticed
ITEMS_BETWEEN_LOOKS = 1024  # for an abort
PREFETCH_ITEMS = 16  # how many items ahead rows are prefetched
PREFETCH_POSITIVES = 64  # how many positives ahead their users and items are prefetched
PREFETCH_USERS = 16  # how many positives ahead the next users' rows are prefetched, at least
PREFETCH_LINES = 16  # cache lines of a bit table that are prefetched at most
POSITIVES_PER_LINE = 64 * 8 // BITS_PER_POSITIVE  # of a bit table


class Pairs(NamedTuple):
    """The CSR of the training data.

    Attributes
    ----------
    users, items
        Of each entry.
    indptr
        Where the entries of each user begin.
    """

    users: Any
    items: Any
    indptr: Any


class TrainedTables(NamedTuple):
    """The tables, flat, with the batch up to which L2 has been applied to each row.

    Attributes
    ----------
    users, items
        The rows [preference | flip].
    user_last_updated, item_last_updated
        The batch up to which L2 has been applied to a row.
    width, flip_width
        The numbers of columns of preference and flip.
    """

    users: Any
    items: Any
    user_last_updated: Any
    item_last_updated: Any
    width: Any
    flip_width: Any


class Rates(NamedTuple):
    """How far rows move, and shrink.

    Attributes
    ----------
    rate
        The learning rate.
    powers, flip_powers
        The factors by which a row shrinks in 0, 1, 2, ... batches that do not touch it.
    shrink, flip_shrink
        In the batch that does.
    sequential
        Whether a user's row moves after each block of BLOCK samples at most, instead of once by their sum. The sum over
        a user with many positives in a batch would need a smaller learning rate.
    """

    rate: Any
    powers: Any
    flip_powers: Any
    shrink: Any
    flip_shrink: Any
    sequential: Any


class Drawing(NamedTuple):
    """How negatives are drawn, and what their steps are.

    Attributes
    ----------
    key
        The random key of the epoch.
    bit_table
        Tells positives from other items, see `negative_sampling`.
    n_negatives, candidates
        Negatives of a positive, and the items of which each is the hardest.
    keep, alias, weights
        The alias table of the distribution.
    pairwise
        Whether the objective is.
    weight
        How much a positive counts.
    """

    key: Any
    bit_table: Any
    n_negatives: Any
    candidates: Any
    keep: Any
    alias: Any
    weights: Any
    pairwise: Any
    weight: Any


class Samples(NamedTuple):
    """The samples of a batch, which the first phase writes and the second reads.

    Attributes
    ----------
    old_rows
        The users' rows as they were scored, each in the slot of the first positive that was scored with it.
    item, slot, step, flip
        A sample's item, the slot of its user in `old_rows`, and its steps of r and g.
    """

    old_rows: Any
    item: Any
    slot: Any
    step: Any
    flip: Any


class Grouping(NamedTuple):
    """Buffers of the second phase, which groups the samples by item. Those of two dimensions have a row per thread."""

    bounds: Any
    cursor: Any
    own_samples: Any
    touched: Any
    row_offsets: Any
    steps: Any
    flips: Any


class Scratch(NamedTuple):
    """Buffers of the first phase, a row per thread."""

    offsets: Any
    gradient: Any
    scratch: Any


@numba.njit(**LOOP)
def _hardest_negative(
    j: Any, state: Any, drawing: Any, entry_item: Any, start: Any, stop: Any, n_items: Any,
    old_rows: Any, old_row: Any, tables: Any, row_width: Any, batch: Any, powers: Any,
) -> Any:  # fmt: skip
    """Return the best-scored of the drawn item j and further candidates, and the state of the random stream."""
    width, last_updated = tables.width, tables.item_last_updated
    r_j = powers[batch - last_updated[j]] * dot(old_rows, old_row, tables.items, j * row_width, width)
    for _ in range(1, drawing.candidates):
        other, state = draw_negative(
            state,
            entry_item,
            start,
            stop,
            drawing.bit_table,
            n_items,
            drawing.keep,
            drawing.alias,
            drawing.weights,
        )
        scale = powers[batch - last_updated[other]]
        score = scale * dot(old_rows, old_row, tables.items, other * row_width, width)
        if score > r_j:
            j, r_j = other, score
    return j, state


@numba.njit(**INLINE)
def prepare_sample(
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


@numba.njit(**INLINE)
def prefetch_user(
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
    chunk: Any, n_chunks: Any, entries: Any, batch: Any, drawing: Any, positive_steps: Any, negative_steps: Any,
    pairs: Any, tables: Any, rates: Any, samples: Any, offsets: Any, gradient: Any, scratch: Any,
) -> None:  # fmt: skip
    """Process the users of a chunk: score their samples, store the steps for the items, update the users' rows.

    A user's samples (some positives, then their negatives) go through short loops (draw, score, step, add), a
    block at a time. So the processor can work on many samples at once, and the rows of a block stay in its cache.
    """
    entry_user, entry_item, indptr = pairs.users, pairs.items, pairs.indptr
    user_table, item_table = tables.users, tables.items
    user_last_updated, item_last_updated = tables.user_last_updated, tables.item_last_updated
    width, flip_width = tables.width, tables.flip_width
    rate, powers, flip_powers = rates.rate, rates.powers, rates.flip_powers
    bit_table, n_negatives, pairwise, weight = (
        drawing.bit_table, drawing.n_negatives, drawing.pairwise, drawing.weight,
    )  # fmt: skip
    old_rows, sample_item, sample_slot = samples.old_rows, samples.item, samples.slot
    sample_step, sample_flip = samples.step, samples.flip
    r, g, item_scale, item_flip_scale = scratch[0], scratch[1], scratch[2], scratch[3]
    n, row_width, zero, one, four = len(entries), width + flip_width, np.uint64(0), np.uint64(1), np.uint64(4)
    n_items, rho = np.uint64(len(item_last_updated)), np.uint64(n_negatives)
    flips = flip_width > zero and not pairwise
    block = max(1, BLOCK // (n_negatives + 1))
    at, end = chunk * n // n_chunks, (chunk + 1) * n // n_chunks
    while 0 < at < n and entry_user[entries[at]] == entry_user[entries[at - 1]]:
        at += 1  # the positives of the previous user belong to the previous chunk
    while at < end:
        user = np.uint64(entry_user[entries[at]])
        run_end = at + 1
        while run_end < n and np.uint64(entry_user[entries[run_end]]) == user:
            run_end += 1
        ahead_user = max(run_end, at + PREFETCH_USERS)
        prefetch_user(ahead_user, n, entries, entry_user, indptr, user_table, user_last_updated, row_width)
        start, stop = np.uint64(indptr[user]), np.uint64(indptr[user + one])
        missed = batch - user_last_updated[user]
        row, old_row = user * row_width, np.uint64(at) * row_width
        flip_row, old_flip_row = row + width, old_row + width
        for k in range(row_width):
            gradient[k] = np.float32(0.0)
        scaled_add(old_rows, old_row, powers[missed], user_table, row, np.float32(0.0), gradient, zero, width)
        scaled_add(
            old_rows, old_flip_row, flip_powers[missed], user_table, flip_row,
            np.float32(0.0), gradient, zero, flip_width,
        )  # fmt: skip
        slot = at
        for first in range(at, run_end, block):
            n_positives = np.uint64(min(block, run_end - first))
            base, n_samples = np.uint64(first) * (rho + one), n_positives * (rho + one)
            # draw
            for p in range(n_positives):
                entry = np.uint64(entries[np.uint64(first) + p])
                if np.int64(first + p) + PREFETCH_POSITIVES < n:
                    ahead = np.uint64(entries[np.uint64(first) + p + np.uint64(PREFETCH_POSITIVES)])
                    prefetch(entry_user, ahead)
                    prefetch(entry_item, ahead)
                prepare_sample(
                    np.uint64(entry_item[entry]), base + p, sample_item, p, offsets, item_scale,
                    item_flip_scale, item_table, width, flip_width, item_last_updated, batch, powers, flip_powers,
                )  # fmt: skip
                state = stream_start(drawing.key, entry)
                for k in range(one, rho + one):
                    j, state = draw_negative(
                        state, entry_item, start, stop, bit_table, n_items,
                        drawing.keep, drawing.alias, drawing.weights,
                    )  # fmt: skip
                    if drawing.candidates > 1:
                        j, state = _hardest_negative(
                            j, state, drawing, entry_item, start, stop, n_items,
                            old_rows, old_row, tables, row_width, batch, powers,
                        )  # fmt: skip
                    negative = k * n_positives + p
                    prepare_sample(
                        j, base + negative, sample_item, negative, offsets, item_scale, item_flip_scale,
                        item_table, width, flip_width, item_last_updated, batch, powers, flip_powers,
                    )  # fmt: skip
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
                for s in range(n_samples):
                    g[s] = np.float32(0.0)
            # step
            if pairwise:
                for k in range(n_positives, n_samples, n_positives):
                    for p in range(n_positives):
                        g[k + p] = r[p]
                negative_steps(r, g, n_positives, n_samples)
                for p in range(n_positives):
                    r[p] = g[n_positives + p]
                for k in range(n_positives + n_positives, n_samples, n_positives):
                    for p in range(n_positives):
                        r[p] += g[k + p]
            else:
                positive_steps(r, g, zero, n_positives)
                negative_steps(r, g, n_positives, n_samples)
                for p in range(n_positives):
                    r[p] *= weight
                    g[p] *= weight
            for s in range(n_samples):
                sample_slot[base + s], sample_step[base + s] = slot, r[s]
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
            if rates.sequential and first + block < run_end:  # the next block starts from the updated row
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
        scaled_add(user_table, row, rates.shrink, old_rows, old_row, rate, gradient, zero, width)
        scaled_add(
            user_table, flip_row, rates.flip_shrink, old_rows, old_flip_row, rate, gradient, width, flip_width
        )
        user_last_updated[user] = batch + 1
        at = run_end


def _update_items(
    thread: Any, threads: Any, barrier: Any, n_samples: Any, batch: Any, tables: Any, rates: Any, samples: Any,
    grouping: Any, last_offsets: Any, scratch: Any,
) -> None:  # fmt: skip
    """Update the rows of this thread's items, each by its samples in their order.

    The samples are first grouped by item, by a counting sort. Its loops have no branch that depends on the data:
    it would be mispredicted half of the time.
    """
    item_table, item_last_updated, width, flip_width = (
        tables.items, tables.item_last_updated, tables.width, tables.flip_width,
    )  # fmt: skip
    rate, powers, flip_powers, shrink, flip_shrink = (
        rates.rate, rates.powers, rates.flip_powers, rates.shrink, rates.flip_shrink,
    )  # fmt: skip
    old_rows, sample_item, sample_slot = samples.old_rows, samples.item, samples.slot
    sample_step, sample_flip = samples.step, samples.flip
    bounds, item_cursor = grouping.bounds, grouping.cursor
    own_samples, touched_items = grouping.own_samples[thread], grouping.touched[thread]
    row_offsets, steps, flips = grouping.row_offsets[thread], grouping.steps[thread], grouping.flips[thread]
    last_steps, last_flips = scratch[0], scratch[1]
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
    update_users: Any, update_items: Any, thread: Any, threads: Any, barrier: Any, chunk_counter: Any,
    first: Any, batch_size: Any, samples_per_entry: Any, entries: Any,
    about: Any, positive_steps: Any, negative_steps: Any,
    pairs: Any, tables: Any, rates: Any, samples: Any, grouping: Any, scratch: Any,
) -> None:  # fmt: skip
    """Run one thread's part of batches first, first + 1, ... of the given entries (sorted within each batch).

    `about` is what `update_users` needs beside the pairs, e.g. `Drawing`. A thread takes the next chunk of users when
    it is done with one, so that no thread waits long for a slower one. In every batch each thread asks once more than
    there are chunks for it, which `chunk_counter` accounts for. After an abort there is no further chunk.
    """
    work = min(batch_size, len(entries)) * samples_per_entry * np.int64(tables.width + tables.flip_width)
    n_chunks = max(1 if threads == 1 else CHUNKS_PER_THREAD * threads, work // CHUNK_WORK)
    for b in range((len(entries) + batch_size - 1) // batch_size):
        part = entries[b * batch_size : (b + 1) * batch_size]
        batch = first + b
        chunk = add_atomically(chunk_counter, 1) - b * (n_chunks + threads)
        while chunk < n_chunks:
            update_users(
                chunk, n_chunks, part, batch, about, positive_steps, negative_steps, pairs, tables, rates, samples,
                scratch.offsets[thread], scratch.gradient[thread], scratch.scratch[thread],
            )  # fmt: skip
            chunk = add_atomically(chunk_counter, 1) - b * (n_chunks + threads)
        if not wait(barrier, threads):
            return
        update_items(
            thread, threads, barrier, len(part) * samples_per_entry, batch, tables, rates, samples,
            grouping, scratch.offsets[thread], scratch.scratch[thread],
        )  # fmt: skip
        if not wait(barrier, threads):
            return


_f4, _i4, _i8 = types.float32, types.int32, types.int64
_u1, _u4, _u8 = types.uint8, types.uint32, types.uint64
_STEPS = types.FunctionType(STEPS_SIGNATURE)
_PAIRS = types.NamedUniTuple(_i4[::1], 3, Pairs)
_TABLES = types.NamedTuple((_f4[::1], _f4[::1], _i4[::1], _i4[::1], _u8, _u8), TrainedTables)
_RATES = types.NamedTuple((_f4, _f4[::1], _f4[::1], _f4, _f4, types.boolean), Rates)
_SAMPLES = types.NamedTuple((_f4[::1], _i4[::1], _i4[::1], _f4[::1], _f4[::1]), Samples)
_GROUPING = types.NamedTuple(
    (_i4[::1], _i4[::1], _i4[:, ::1], _i4[:, ::1], _u4[:, ::1], _f4[:, ::1], _f4[:, ::1]), Grouping
)
_SCRATCH = types.NamedTuple((_u8[:, ::1], _f4[:, ::1], _f4[:, :, ::1]), Scratch)
_DRAWING = types.NamedTuple(
    (_u8, _u1[::1], _i8, _i8, _f4[::1], _i4[::1], types.float64[::1], types.boolean, _f4), Drawing
)
_UPDATE_ITEMS = types.void(
    _i8, _i8, _i8[::1], _i8, _i8, _TABLES, _RATES, _SAMPLES, _GROUPING, _u8[::1], _f4[:, ::1]
)


def compile_batches(update_users: Any = _update_users, about: Any = _DRAWING) -> Any:
    """Return the compiled loop over batches, from the cache on disk after the first time.

    The signatures are explicit so that an objective is passed as a pointer: the loops are compiled once for all
    objectives. The two phases are pointers, too: as ordinary calls they would be compiled a second time.

    Parameters
    ----------
    update_users
        The first phase.
    about
        The type of what it needs beside the pairs.
    """
    objective, trained = (_STEPS, _STEPS), (_PAIRS, _TABLES, _RATES, _SAMPLES)
    of_users = types.void(_i8, _i8, _i4[::1], _i8, about, *objective, *trained, _u8[::1], _f4[::1], _f4[:, ::1])
    of_batches = types.void(
        types.FunctionType(of_users), types.FunctionType(_UPDATE_ITEMS), _i8, _i8, _i8[::1], _i8[::1],
        _i8, _i8, _i8, _i4[::1], about, *objective, *trained, _GROUPING, _SCRATCH,
    )  # fmt: skip
    options = {"nogil": True, "_nrt": False}
    phases = (
        cached_njit(signature, **options, no_cpython_wrapper=True)(uniquely_named(function))
        for signature, function in ((of_users, update_users), (_UPDATE_ITEMS, _update_items))
    )
    batches = cached_njit(of_batches, **options, no_cfunc_wrapper=True)(uniquely_named(_run_batches))
    return partial(batches, *phases)


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
