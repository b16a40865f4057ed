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

The loops take one structure, `Work`, and `entries`: the positives of a batch, as positions in the CSR of the training
data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from truelike.core.arrays import Codes, Floats
from truelike.core.compile_cache import INLINE, cached_njit, uniquely_named
from truelike.engines.row_ops import add_four, dot, dot_four, prefetch, prefetch_row, scaled_add
from truelike.engines.sgd.barrier import aborted, add_atomically, wait
from truelike.engines.sgd.negative_sampling import (
    BITS_PER_POSITIVE,
    GOLDEN,
    Source,
    draw_negative,
    mix,
    stream_start,
    uniform_number,
)
from truelike.engines.sgd.priority import PRIORITY_SIGNATURE
from truelike.objectives.compiler import STEPS_SIGNATURE

BLOCK = 64  # samples that are processed together: their rows fit into the L1 cache
CHUNKS_PER_THREAD = 8  # of the positives of a batch
CHUNK_WORK = 2**27  # numbers of item rows in a chunk at most: tenths of a second, after which an abort is noticed
ITEMS_BETWEEN_LOOKS = 1024  # for an abort
PREFETCH_ITEMS = 16  # how many items ahead rows are prefetched
PREFETCH_POSITIVES = 64  # how many positives ahead their users and items are prefetched
PREFETCH_USERS = 16  # how many positives ahead the next users' rows are prefetched, at least
PREFETCH_LINES = 16  # cache lines of a bit table that are prefetched at most
POSITIVES_PER_LINE = 64 * 8 // BITS_PER_POSITIVE  # of a bit table


class TrainedTables(NamedTuple):
    """The tables, flat, with the batch up to which L2 has been applied to each row, and the widths of both parts."""

    users: Floats
    items: Floats
    user_last_updated: Codes
    item_last_updated: Codes
    width: np.uint64
    flip_width: np.uint64


class Rates(NamedTuple):
    """The learning rate, and how rows shrink: see `L2Factors`.

    With `sequential` a user's row moves after each block of BLOCK samples at most, instead of once by their sum. The
    sum over a user with many positives in a batch would need a smaller learning rate.
    """

    rate: np.float32
    powers: Floats
    flip_powers: Floats
    shrink: np.float32
    flip_shrink: np.float32
    sequential: bool


class Drawing(NamedTuple):
    """How many negatives a positive has, each chosen among some candidates, and how much the positive counts.

    `key` is that of the candidates, `choice_key` that of the random numbers of the choice.
    """

    key: np.uint64
    choice_key: np.uint64
    n_negatives: int
    candidates: int
    pairwise: bool
    weight: np.float32


class Samples(NamedTuple):
    """The samples of a batch, which the first phase writes and the second reads.

    `old_rows` are the users' rows as they were scored, each in the slot of the first positive that was scored with it.
    A sample has an item, the slot of its user, and its steps of r and g.
    """

    old_rows: Floats
    item: Codes
    slot: Codes
    step: Floats
    flip: Floats


class Grouping(NamedTuple):
    """Buffers of the second phase, which groups the samples by item. Those of two dimensions have a row per thread.

    Thread t owns the items bounds[t] ... bounds[t + 1] - 1.
    """

    bounds: Codes
    cursor: Codes
    own_samples: Codes
    touched: Codes
    row_offsets: NDArray[np.uint32]
    steps: Floats
    flips: Floats


class Work(NamedTuple):
    """All that the threads share. `weights` is how much each positive counts; empty: all count 1."""

    source: Source
    drawing: Drawing
    tables: TrainedTables
    rates: Rates
    samples: Samples
    grouping: Grouping
    weights: Floats


class Scratch(NamedTuple):
    """Buffers of the first phase, a row per thread."""

    offsets: NDArray[np.uint64]
    gradient: Floats
    scratch: Floats


@numba.njit(**INLINE)
def _prepare_sample(item, sample, s, work, batch, offsets, item_scale, item_flip_scale):
    """Store a sample's item, the offset of its row and the missed L2 of the row, and prefetch the row."""
    tables, rates = work.tables, work.rates
    row_width = tables.width + tables.flip_width
    offset = item * row_width
    prefetch_row(tables.items, offset, row_width)
    missed = np.uint64(batch - tables.item_last_updated[item])
    work.samples.item[sample], offsets[s], item_scale[s] = item, offset, rates.powers[missed]
    if tables.flip_width > np.uint64(0):
        item_flip_scale[s] = rates.flip_powers[missed]


@numba.njit(**INLINE)
def _score(item, work, old_row, batch):
    """Return the score of an item for the user of a row."""
    tables, row_width = work.tables, work.tables.width + work.tables.flip_width
    scale = work.rates.powers[batch - tables.item_last_updated[item]]
    return scale * dot(work.samples.old_rows, old_row, tables.items, item * row_width, tables.width)


def _choose_samples(
    entries, base, start, stop, old_row, batch, priority, work, offsets, item_scale, item_flip_scale
):
    """Store the samples of some positives of a user. A negative is the candidate of the highest priority.

    Of equal candidates it is the first.
    """
    drawing, n_positives = work.drawing, np.uint64(len(entries))
    for p in range(n_positives):
        entry = np.uint64(entries[p])
        item = np.uint64(work.source.items[entry])
        _prepare_sample(item, base + p, p, work, batch, offsets, item_scale, item_flip_scale)
        state, choice = stream_start(drawing.key, entry), stream_start(drawing.choice_key, entry)
        r_i = _score(item, work, old_row, batch)
        for k in range(1, drawing.n_negatives + 1):
            chosen, highest = np.uint64(0), np.float32(0.0)
            for candidate in range(drawing.candidates):
                j, state = draw_negative(state, start, stop, work.source)
                choice += GOLDEN
                found = priority(r_i, _score(j, work, old_row, batch), uniform_number(mix(choice)))
                if candidate == 0 or found > highest:
                    chosen, highest = j, found
            negative = np.uint64(k) * n_positives + p
            _prepare_sample(chosen, base + negative, negative, work, batch, offsets, item_scale, item_flip_scale)


@numba.njit(**INLINE)
def _prefetch_user(at, n, entries, source, tables):
    """Prefetch the row of the user of a positive further on, and where the user's positives begin."""
    if at < n:
        user, row_width = np.uint64(source.users[np.uint64(entries[at])]), tables.width + tables.flip_width
        prefetch(source.indptr, user)
        prefetch(tables.user_last_updated, user)
        prefetch_row(tables.users, user * row_width, row_width)


@numba.njit(**INLINE)
def _prefetch_bits(at, n, entries, source):
    """Prefetch the first lines of the bit table of the user of a positive further on."""
    if at < n:
        user = np.uint64(source.users[np.uint64(entries[at])])
        start, stop = np.uint64(source.indptr[user]), np.uint64(source.indptr[user + np.uint64(1)])
        lines = min((stop - start) // np.uint64(POSITIVES_PER_LINE), np.uint64(PREFETCH_LINES)) + np.uint64(1)
        for k in range(lines):
            at_byte = (start + k * np.uint64(POSITIVES_PER_LINE)) * np.uint64(BITS_PER_POSITIVE // 8)
            prefetch(source.bit_table, at_byte)


def _update_users(
    chunk, n_chunks, entries, batch, positive_steps, negative_steps, choose_samples, priority, work,
    offsets, gradient, scratch,
):  # fmt: skip
    """Process the users of a chunk: score their samples, store the steps for the items, update the users' rows.

    A user's samples (some positives, then their negatives) go through short loops (draw, score, step, add), a
    block at a time. So the processor can work on many samples at once, and the rows of a block stay in its cache.
    """
    source, drawing, tables, rates, samples = work.source, work.drawing, work.tables, work.rates, work.samples
    entry_user, entry_item, indptr = source.users, source.items, source.indptr
    user_table, item_table, width, flip_width = tables.users, tables.items, tables.width, tables.flip_width
    rate, powers, flip_powers = rates.rate, rates.powers, rates.flip_powers
    n_negatives, pairwise, old_rows = drawing.n_negatives, drawing.pairwise, samples.old_rows
    r, g, item_scale, item_flip_scale = scratch[0], scratch[1], scratch[2], scratch[3]
    n, row_width, zero, one, four = len(entries), width + flip_width, np.uint64(0), np.uint64(1), np.uint64(4)
    rho, flips = np.uint64(n_negatives), flip_width > zero and not pairwise
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
        _prefetch_user(ahead_user, n, entries, source, tables)
        start, stop = np.uint64(indptr[user]), np.uint64(indptr[user + one])
        missed = batch - tables.user_last_updated[user]
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
            if drawing.candidates > 1:
                choose_samples(
                    entries[first : np.int64(first + n_positives)], base, start, stop, old_row, batch, priority, work,
                    offsets, item_scale, item_flip_scale,
                )  # fmt: skip
            else:
                for p in range(n_positives):
                    entry = np.uint64(entries[np.uint64(first) + p])
                    if np.int64(first + p) + PREFETCH_POSITIVES < n:
                        ahead = np.uint64(entries[np.uint64(first) + p + np.uint64(PREFETCH_POSITIVES)])
                        prefetch(entry_user, ahead)
                        prefetch(entry_item, ahead)
                    item = np.uint64(entry_item[entry])
                    _prepare_sample(item, base + p, p, work, batch, offsets, item_scale, item_flip_scale)
                    state = stream_start(drawing.key, entry)
                    for k in range(one, rho + one):
                        j, state = draw_negative(state, start, stop, source)
                        negative = k * n_positives + p
                        _prepare_sample(
                            j, base + negative, negative, work, batch, offsets, item_scale, item_flip_scale
                        )
            if first == at:
                _prefetch_bits(max(run_end, at + PREFETCH_USERS // 2), n, entries, source)
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
                    r[p] *= drawing.weight
                    g[p] *= drawing.weight
            if len(work.weights) > 0:  # the steps of a pair are the positive's and the negative's
                for k in range(zero, n_samples if pairwise else n_positives, n_positives):
                    for p in range(n_positives):
                        counted = work.weights[np.uint64(entries[np.uint64(first) + p])]
                        r[k + p] *= counted
                        g[k + p] *= counted
            for s in range(n_samples):
                samples.slot[base + s], samples.step[base + s] = slot, r[s]
                r[s] *= item_scale[s]
            if flips:
                for s in range(n_samples):
                    samples.flip[base + s] = g[s]
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
        tables.user_last_updated[user] = batch + 1
        at = run_end


def _update_items(thread, threads, barrier, n_samples, batch, work, last_offsets, scratch):
    """Update the rows of this thread's items, each by its samples in their order.

    The samples are first grouped by item, by a counting sort. Its loops have no branch that depends on the data:
    it would be mispredicted half of the time.
    """
    tables, rates, samples, grouping = work.tables, work.rates, work.samples, work.grouping
    item_table, item_last_updated = tables.items, tables.item_last_updated
    rate, width, flip_width, old_rows = rates.rate, tables.width, tables.flip_width, samples.old_rows
    bounds, item_cursor, sample_item = grouping.bounds, grouping.cursor, samples.item
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
        row_offsets[position] = np.uint64(samples.slot[sample]) * row_width
        steps[position] = rate * samples.step[sample]
        if flip_width > zero:
            flips[position] = rate * samples.flip[sample]
    # update the rows
    begin = zero
    for t in range(n_touched):
        if (t + one) % np.uint64(ITEMS_BETWEEN_LOOKS) == zero and aborted(barrier):
            return
        item = np.uint64(touched_items[t])
        if t + np.uint64(PREFETCH_ITEMS) < n_touched:
            ahead = np.uint64(touched_items[t + np.uint64(PREFETCH_ITEMS)])
            prefetch_row(item_table, ahead * row_width, row_width)
        end = np.uint64(item_cursor[item])
        item_cursor[item] = 0
        missed, row = batch - item_last_updated[item], item * row_width
        scale, flip_scale = rates.shrink * rates.powers[missed], rates.flip_shrink * rates.flip_powers[missed]
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
    update_users, update_items, choose_samples, thread, threads, counters, first, batch_size, entries,
    positive_steps, negative_steps, priority, work, scratch,
):  # fmt: skip
    """Run one thread's part of batches first, first + 1, ... of the given entries (sorted within each batch).

    A thread takes the next chunk of users when it is done with one, so that no thread waits long for a slower one. In
    every batch each thread asks once more than there are chunks for it, which the second of the counters accounts for.
    The first one is the barrier. After an abort there is no further chunk.
    """
    barrier, chunk_counter, per_entry = counters[0], counters[1], 1 + work.drawing.n_negatives
    numbers = min(batch_size, len(entries)) * per_entry * np.int64(work.tables.width + work.tables.flip_width)
    n_chunks = max(1 if threads == 1 else CHUNKS_PER_THREAD * threads, numbers // CHUNK_WORK)
    offsets, buffers = scratch.offsets[thread], scratch.scratch[thread]
    for b in range((len(entries) + batch_size - 1) // batch_size):
        part = entries[b * batch_size : (b + 1) * batch_size]
        batch = first + b
        chunk = add_atomically(chunk_counter, 1) - b * (n_chunks + threads)
        while chunk < n_chunks:
            update_users(
                chunk, n_chunks, part, batch, positive_steps, negative_steps, choose_samples, priority, work,
                offsets, scratch.gradient[thread], buffers,
            )  # fmt: skip
            chunk = add_atomically(chunk_counter, 1) - b * (n_chunks + threads)
        if not wait(barrier, threads):
            return
        update_items(thread, threads, barrier, len(part) * per_entry, batch, work, offsets, buffers)
        if not wait(barrier, threads):
            return


_f4, _i4, _i8 = types.float32, types.int32, types.int64
_u1, _u4, _u8 = types.uint8, types.uint32, types.uint64
_STEPS, _PRIORITY = types.FunctionType(STEPS_SIGNATURE), types.FunctionType(PRIORITY_SIGNATURE)
_WORK = types.NamedTuple(
    (
        types.NamedTuple(
            (_i4[::1], _i4[::1], _i4[::1], _u1[::1], _u8, _f4[::1], _i4[::1], types.float64[::1]), Source
        ),
        types.NamedTuple((_u8, _u8, _i8, _i8, types.boolean, _f4), Drawing),
        types.NamedTuple((_f4[::1], _f4[::1], _i4[::1], _i4[::1], _u8, _u8), TrainedTables),
        types.NamedTuple((_f4, _f4[::1], _f4[::1], _f4, _f4, types.boolean), Rates),
        types.NamedTuple((_f4[::1], _i4[::1], _i4[::1], _f4[::1], _f4[::1]), Samples),
        types.NamedTuple(
            (_i4[::1], _i4[::1], _i4[:, ::1], _i4[:, ::1], _u4[:, ::1], _f4[:, ::1], _f4[:, ::1]), Grouping
        ),
        _f4[::1],
    ),
    Work,
)
_SCRATCH = types.NamedTuple((_u8[:, ::1], _f4[:, ::1], _f4[:, :, ::1]), Scratch)
_OF_CHOICE = types.void(_i4[::1], _u8, _u8, _u8, _u8, _i8, _PRIORITY, _WORK, _u8[::1], _f4[::1], _f4[::1])
_CHOICE = types.FunctionType(_OF_CHOICE)
_OF_USERS = types.void(
    _i8, _i8, _i4[::1], _i8, _STEPS, _STEPS, _CHOICE, _PRIORITY, _WORK, _u8[::1], _f4[::1], _f4[:, ::1]
)
_OF_ITEMS = types.void(_i8, _i8, _i8[::1], _i8, _i8, _WORK, _u8[::1], _f4[:, ::1])
_OF_BATCHES = types.void(
    types.FunctionType(_OF_USERS), types.FunctionType(_OF_ITEMS), _CHOICE, _i8, _i8, _i8[:, ::1], _i8, _i8, _i4[::1],
    _STEPS, _STEPS, _PRIORITY, _WORK, _SCRATCH,
)  # fmt: skip


def compile_batches() -> Callable[..., Any]:
    """Return the compiled loop over batches, from the cache on disk after the first time.

    The signatures are explicit so that an objective and the priority of a sampler are passed as pointers: the loops
    are compiled once for all. The two phases are pointers, too: as ordinary calls they would be compiled a second time.
    And so is the choice among candidates: as a part of the first phase it would slow down the draw of one candidate.
    """
    options = {"nogil": True, "_nrt": False}
    phases = (
        cached_njit(signature, **options, no_cpython_wrapper=True)(uniquely_named(function))
        for signature, function in (
            (_OF_USERS, _update_users),
            (_OF_ITEMS, _update_items),
            (_OF_CHOICE, _choose_samples),
        )
    )
    return partial(
        cached_njit(_OF_BATCHES, **options, no_cfunc_wrapper=True)(uniquely_named(_run_batches)), *phases
    )


@cached_njit(nogil=True)
def apply_missed_l2(table, last_updated, width, batch, powers, flip_powers):
    """Apply the L2 that rows have missed up to a batch, and reset `last_updated` to 0."""
    for row in range(table.shape[0]):
        missed = batch - last_updated[row]
        for k in range(width):
            table[row, k] *= powers[missed]
        for k in range(width, table.shape[1]):
            table[row, k] *= flip_powers[missed]
        last_updated[row] = 0
