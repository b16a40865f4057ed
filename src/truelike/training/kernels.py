"""The compiled loops of the sampled engine: mini-batches of (positive, negatives), the same bits on any threads.

A batch has two halves. In the first, each user of the batch belongs to one thread: scores, steps and the
user's own row. In the second, each item belongs to one thread: its row, from the stored steps. No two threads
write one row and every sum is taken in the order of the samples, so the number of threads never shows.

A row of a table is [preference | flip]: U and P side by side (V and Q likewise), so that one look at memory
brings both. L2 shrinks *every* row at every batch; that is applied lazily: a row remembers the batch of its
last touch (`*_settled`) and is scaled by the product of the missed factors when it is next read.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numba
import numpy as np
from numba import types

from truelike.training.drawing import BITS, draw_unvoted, stream
from truelike.training.equations import STEPS, named
from truelike.training.meeting import add_atomically, meet
from truelike.training.rows import INLINE, LOOP, add_four, dot, dot_four, mend, prefetch, prefetch_row

BLOCK = 64  # samples that go through the short loops together: their rows fit into the fastest cache
SHARES = 8  # of the users of a batch, for each thread
AHEAD = 16  # items whose rows are on their way while one is moved


@numba.njit(**LOOP)
def _hardest(
    j: Any, state: Any, candidates: Any,
    entry_item: Any, start: Any, stop: Any, votes: Any, n_items: Any, keep: Any, alias: Any, weights: Any,
    old: Any, mine: Any, item_table: Any, whole: Any, width: Any, item_settled: Any, batch: Any, powers: Any,
) -> Any:  # fmt: skip
    """Hard negatives: the best-scored of a drawn item and further ones."""
    r_j = powers[batch - item_settled[j]] * dot(old, mine, item_table, j * whole, width)
    for _ in range(1, candidates):
        other, state = draw_unvoted(state, entry_item, start, stop, votes, n_items, keep, alias, weights)
        score = powers[batch - item_settled[other]] * dot(old, mine, item_table, other * whole, width)
        if score > r_j:
            j, r_j = other, score
    return j, state


@numba.njit(**INLINE)
def _look_up(
    item: Any, sample: Any, sample_item: Any, s: Any, places: Any, fade: Any, flip_fade: Any,
    item_table: Any, width: Any, flip_width: Any, item_settled: Any, batch: Any, powers: Any, flip_powers: Any,
) -> None:  # fmt: skip
    """Note a sample's item, the place of its row and what its row has missed, and ask for the row."""
    place = item * (width + flip_width)
    prefetch_row(item_table, place, width + flip_width)
    missed = np.uint64(batch - item_settled[item])
    sample_item[sample], places[s], fade[s] = item, place, powers[missed]
    if flip_width > np.uint64(0):
        flip_fade[s] = flip_powers[missed]


@numba.njit(**INLINE)
def _ask_ahead(
    at: Any, n: Any, entries: Any, entry_user: Any, entry_item: Any, indptr: Any, votes: Any,
    user_table: Any, user_settled: Any, whole: Any,
) -> None:  # fmt: skip
    """Ask for what users soon to come will need, in three stages.

    A shuffled batch has a user for nearly each positive, who would wait for memory several times in a row.
    """
    if at + 24 < n:
        entry = np.uint64(entries[at + 24])
        prefetch(entry_user, entry)
        prefetch(entry_item, entry)
        user = np.uint64(entry_user[entries[at + 16]])
        prefetch(indptr, user)
        prefetch(user_settled, user)
        prefetch_row(user_table, user * whole, whole)
        user = np.uint64(entry_user[entries[at + 8]])
        prefetch(votes, np.uint64(indptr[user]) * np.uint64(BITS // 8))


def _users_half(
    share: Any, shares: Any, entries: Any, batch: Any, key: Any,
    entry_user: Any, entry_item: Any, indptr: Any, votes: Any,
    user_table: Any, item_table: Any, user_settled: Any, item_settled: Any, width: Any, flip_width: Any,
    rate: Any, powers: Any, flip_powers: Any, shrink: Any, flip_shrink: Any,
    n_negatives: Any, candidates: Any, keep: Any, alias: Any, weights: Any,
    pairwise: Any, weight: Any, positive_steps: Any, negative_steps: Any,
    old: Any, sample_item: Any, sample_slot: Any, sample_step: Any, sample_flip: Any,
    places: Any, gradient: Any, r: Any, g: Any, fade: Any, flip_fade: Any,
) -> None:  # fmt: skip
    """Score the samples of a share of the users, store the steps for the items, and move the users' rows.

    A user's samples (some positives, then their negatives) go through short loops (draw, score, step, add), a
    block at a time, so that the processor works at many samples at once and the rows of a block stay in its cache
    from loop to loop.
    """
    n, whole, none, one, four = len(entries), width + flip_width, np.uint64(0), np.uint64(1), np.uint64(4)
    n_items, rho = np.uint64(len(item_settled)), np.uint64(n_negatives)
    flips = flip_width > none and not pairwise
    block = max(1, BLOCK // (n_negatives + 1))
    at, end = share * n // shares, (share + 1) * n // shares
    while 0 < at < n and entry_user[entries[at]] == entry_user[entries[at - 1]]:
        at += 1  # the run of the user before belongs to the share before
    while at < end:
        _ask_ahead(at, n, entries, entry_user, entry_item, indptr, votes, user_table, user_settled, whole)
        user = np.uint64(entry_user[entries[at]])
        run = at + 1
        while run < n and np.uint64(entry_user[entries[run]]) == user:
            run += 1
        start, stop = np.uint64(indptr[user]), np.uint64(indptr[user + one])
        missed = batch - user_settled[user]
        row, mine = user * whole, np.uint64(at) * whole
        flip_row, flip_mine = row + width, mine + width
        for k in range(whole):
            gradient[k] = np.float32(0.0)
        mend(old, mine, powers[missed], user_table, row, np.float32(0.0), gradient, none, width)
        mend(
            old, flip_mine, flip_powers[missed], user_table, flip_row, np.float32(0.0), gradient, none, flip_width
        )
        for first in range(at, run, block):
            positives = np.uint64(min(block, run - first))
            base, samples = np.uint64(first) * (rho + one), positives * (rho + one)
            # draw
            for p in range(positives):
                entry = entries[np.uint64(first) + p]
                _look_up(
                    np.uint64(entry_item[entry]), base + p, sample_item, p, places, fade, flip_fade,
                    item_table, width, flip_width, item_settled, batch, powers, flip_powers,
                )  # fmt: skip
                state = stream(key, entry)
                for k in range(one, rho + one):
                    j, state = draw_unvoted(state, entry_item, start, stop, votes, n_items, keep, alias, weights)
                    if candidates > 1:
                        j, state = _hardest(
                            j, state, candidates, entry_item, start, stop, votes, n_items, keep, alias, weights,
                            old, mine, item_table, whole, width, item_settled, batch, powers,
                        )  # fmt: skip
                    negative = k * positives + p
                    _look_up(
                        j, base + negative, sample_item, negative, places, fade, flip_fade,
                        item_table, width, flip_width, item_settled, batch, powers, flip_powers,
                    )  # fmt: skip
            for s in range(samples, samples + four):  # to whole groups of four
                places[s], fade[s], flip_fade[s] = places[none], np.float32(0.0), np.float32(0.0)
            # score
            for s in range(none, samples, four):
                dot_four(r, s, old, mine, item_table, places, none, width)
            for s in range(samples):
                r[s] *= fade[s]
            if flips:
                for s in range(none, samples, four):
                    dot_four(g, s, old, flip_mine, item_table, places, width, flip_width)
                for s in range(samples):
                    g[s] *= flip_fade[s]
            elif not pairwise:
                for s in range(samples):
                    g[s] = np.float32(0.0)
            # step
            if pairwise:
                for k in range(positives, samples, positives):
                    for p in range(positives):
                        g[k + p] = r[p]
                negative_steps(r, g, positives, samples)
                for p in range(positives):
                    r[p] = g[positives + p]
                for k in range(positives + positives, samples, positives):
                    for p in range(positives):
                        r[p] += g[k + p]
            else:
                positive_steps(r, g, none, positives)
                negative_steps(r, g, positives, samples)
                for p in range(positives):
                    r[p] *= weight
                    g[p] *= weight
            for s in range(samples):
                sample_slot[base + s], sample_step[base + s] = at, r[s]
                r[s] *= fade[s]
            if flips:
                for s in range(samples):
                    sample_flip[base + s] = g[s]
                    g[s] *= flip_fade[s]
            # add
            for s in range(samples, samples + four):
                r[s], g[s] = np.float32(0.0), np.float32(0.0)
            for s in range(none, samples, four):
                add_four(gradient, none, np.float32(1.0), r, s, item_table, places, none, width)
            if flips:
                for s in range(none, samples, four):
                    add_four(gradient, width, np.float32(1.0), g, s, item_table, places, width, flip_width)
        mend(user_table, row, shrink, old, mine, rate, gradient, none, width)
        mend(user_table, flip_row, flip_shrink, old, flip_mine, rate, gradient, width, flip_width)
        user_settled[user] = batch + 1
        at = run


def _items_half(
    thread: Any, threads: Any, n_samples: Any, batch: Any,
    item_table: Any, item_settled: Any, width: Any, flip_width: Any,
    rate: Any, powers: Any, flip_powers: Any, shrink: Any, flip_shrink: Any,
    old: Any, sample_item: Any, sample_slot: Any, sample_step: Any, sample_flip: Any,
    bounds: Any, cursor: Any, own: Any, touched: Any, slots: Any, steps: Any, flips: Any,
    last_slots: Any, last_steps: Any, last_flips: Any,
) -> None:  # fmt: skip
    """Move the rows of this thread's items, each by its samples in their order.

    The samples are first sorted by item, by counting. No loop of that has a branch that depends on the data: it
    would be guessed wrongly half of the time.
    """
    whole, none, one, four = width + flip_width, np.uint64(0), np.uint64(1), np.uint64(4)
    n_own, n_touched = np.uint64(n_samples), none
    # choose
    if threads > 1:
        n_own, low, high = none, bounds[thread], bounds[thread + 1]
        for s in range(np.uint64(n_samples)):
            item = sample_item[s]
            own[n_own] = s
            n_own += np.uint64((low <= item) & (item < high))
    # count
    for k in range(n_own):
        item = np.uint64(sample_item[np.uint64(own[k])])
        touched[n_touched] = item
        n_touched += np.uint64(cursor[item] == 0)
        cursor[item] += 1
    # sort
    end = none
    for t in range(n_touched):
        item = np.uint64(touched[t])
        count = np.uint64(cursor[item])
        cursor[item] = end
        end += count
    for k in range(n_own):
        sample = np.uint64(own[k])
        item = np.uint64(sample_item[sample])
        place = np.uint64(cursor[item])
        cursor[item] += 1
        slots[place] = np.uint64(sample_slot[sample]) * whole
        steps[place] = rate * sample_step[sample]
        if flip_width > none:
            flips[place] = rate * sample_flip[sample]
    # move
    begin = none
    for t in range(n_touched):
        item = np.uint64(touched[t])
        if t + np.uint64(AHEAD) < n_touched:
            prefetch_row(item_table, np.uint64(touched[t + np.uint64(AHEAD)]) * whole, whole)
        end = np.uint64(cursor[item])
        cursor[item] = 0
        missed, row = batch - item_settled[item], item * whole
        scale, flip_scale = shrink * powers[missed], flip_shrink * flip_powers[missed]
        while begin + four <= end:
            add_four(item_table, row, scale, steps, begin, old, slots, none, width)
            add_four(item_table, row + width, flip_scale, flips, begin, old, slots, width, flip_width)
            scale = flip_scale = np.float32(1.0)
            begin += four
        if begin < end:  # the last few, made four
            for k in range(four):
                sample = min(begin + k, end - one)
                counts = np.float32(begin + k < end)
                last_slots[k], last_steps[k] = slots[sample], counts * steps[sample]
                if flip_width > none:
                    last_flips[k] = counts * flips[sample]
            add_four(item_table, row, scale, last_steps, none, old, last_slots, none, width)
            add_four(item_table, row + width, flip_scale, last_flips, none, old, last_slots, width, flip_width)
            begin = end
        item_settled[item] = batch + 1


def _run_batches(
    users_half: Any, items_half: Any,
    thread: Any, threads: Any, meeting: Any, claims: Any, first: Any, batch_size: Any, entries: Any, key: Any,
    entry_user: Any, entry_item: Any, indptr: Any, votes: Any,
    user_table: Any, item_table: Any, user_settled: Any, item_settled: Any, width: Any, flip_width: Any,
    rate: Any, powers: Any, flip_powers: Any, shrink: Any, flip_shrink: Any,
    n_negatives: Any, candidates: Any, keep: Any, alias: Any, weights: Any,
    pairwise: Any, weight: Any, positive_steps: Any, negative_steps: Any,
    old: Any, sample_item: Any, sample_slot: Any, sample_step: Any, sample_flip: Any,
    bounds: Any, cursor: Any, own: Any, touched: Any, slots: Any, steps: Any, flips: Any,
    places: Any, gradient: Any, scratch: Any,
) -> None:  # fmt: skip
    """One thread's part of batches first, first + 1, ... over the given entries (sorted within each batch).

    Users are claimed a share at a time, so that no thread waits long for another that has long lists or a slow
    core; each thread's last claim in a batch is in vain.
    """
    shares = 1 if threads == 1 else SHARES * threads
    for b in range((len(entries) + batch_size - 1) // batch_size):
        part = entries[b * batch_size : (b + 1) * batch_size]
        batch = first + b
        share = add_atomically(claims, 1) - b * (shares + threads)
        while share < shares:
            users_half(
                share, shares, part, batch, key, entry_user, entry_item, indptr, votes,
                user_table, item_table, user_settled, item_settled, width, flip_width,
                rate, powers, flip_powers, shrink, flip_shrink,
                n_negatives, candidates, keep, alias, weights,
                pairwise, weight, positive_steps, negative_steps,
                old, sample_item, sample_slot, sample_step, sample_flip, places[thread], gradient[thread],
                scratch[thread, 0], scratch[thread, 1], scratch[thread, 2], scratch[thread, 3],
            )  # fmt: skip
            share = add_atomically(claims, 1) - b * (shares + threads)
        meet(meeting, threads)
        items_half(
            thread, threads, len(part) * (n_negatives + 1), batch,
            item_table, item_settled, width, flip_width, rate, powers, flip_powers, shrink, flip_shrink,
            old, sample_item, sample_slot, sample_step, sample_flip,
            bounds, cursor, own[thread], touched[thread], slots[thread], steps[thread], flips[thread],
            places[thread], scratch[thread, 0], scratch[thread, 1],
        )  # fmt: skip
        meet(meeting, threads)


_f4, _i4, _i8 = types.float32, types.int32, types.int64
_u1, _u4, _u8 = types.uint8, types.uint32, types.uint64
_STEPS = types.FunctionType(STEPS)
_LOG = (_i4[::1], _i4[::1], _i4[::1], _u1[::1])
_TABLES = (_f4[::1], _f4[::1], _i4[::1], _i4[::1], _u8, _u8)
_SHRINKING = (_f4, _f4[::1], _f4[::1], _f4, _f4)
_LAW = (_i8, _i8, _f4[::1], _i4[::1], types.float64[::1])
_OBJECTIVE = (types.boolean, _f4, _STEPS, _STEPS)
_SAMPLES = (_f4[::1], _i4[::1], _i4[::1], _f4[::1], _f4[::1])
_USERS_HALF = types.void(
    _i8, _i8, _i4[::1], _i8, _u8, *_LOG, *_TABLES, *_SHRINKING, *_LAW, *_OBJECTIVE, *_SAMPLES,
    _u8[::1], _f4[::1], _f4[::1], _f4[::1], _f4[::1], _f4[::1],
)  # fmt: skip
_ITEMS_HALF = types.void(
    _i8, _i8, _i8, _i8, _f4[::1], _i4[::1], _u8, _u8, *_SHRINKING, *_SAMPLES,
    _i4[::1], _i4[::1], _i4[::1], _i4[::1], _u4[::1], _f4[::1], _f4[::1], _u8[::1], _f4[::1], _f4[::1],
)  # fmt: skip
_BATCHES = types.void(
    types.FunctionType(_USERS_HALF), types.FunctionType(_ITEMS_HALF),
    _i8, _i8, _i8[::1], _i8[::1], _i8, _i8, _i4[::1], _u8, *_LOG, *_TABLES, *_SHRINKING, *_LAW, *_OBJECTIVE,
    *_SAMPLES, _i4[::1], _i4[::1], _i4[:, ::1], _i4[:, ::1], _u4[:, ::1], _f4[:, ::1], _f4[:, ::1],
    _u8[:, ::1], _f4[:, ::1], _f4[:, :, ::1],
)  # fmt: skip


def compile_batches() -> Any:
    """The compiled loop over batches; from numba's cache on disk after the first time.

    The signatures are spelled out so that an objective is passed as a pointer: the loops are compiled once for all
    objectives. The two halves are pointers as well: within the loop they would be compiled a second time.
    """
    options = {"nogil": True, "_nrt": False, "cache": True}
    users_half, items_half = (
        numba.njit(signature, **options, no_cpython_wrapper=True)(named(function))
        for signature, function in ((_USERS_HALF, _users_half), (_ITEMS_HALF, _items_half))
    )
    batches = numba.njit(_BATCHES, **options, no_cfunc_wrapper=True)(named(_run_batches))
    return partial(batches, users_half, items_half)


@numba.njit(cache=True, nogil=True)
def settle(table: Any, settled: Any, width: Any, batch: Any, powers: Any, flip_powers: Any) -> None:
    """Apply all the shrinking that rows have missed up to a batch, and start counting anew."""
    for row in range(table.shape[0]):
        missed = batch - settled[row]
        for k in range(width):
            table[row, k] *= powers[missed]
        for k in range(width, table.shape[1]):
            table[row, k] *= flip_powers[missed]
        settled[row] = 0
