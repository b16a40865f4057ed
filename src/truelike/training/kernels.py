"""The compiled loops of the sampled engine: mini-batches of (positive, negatives), the same bits on any threads.

A batch has two halves. In the first, each user of the batch belongs to one thread: scores, steps and the
user's own row. In the second, each item belongs to one thread: its row, from the stored steps. No two threads
write one row and every sum is taken in the order of the samples, so the number of threads never shows.

A row of a table is [preference | flip]: U and P side by side (V and Q likewise), so that one look at memory
brings both. L2 shrinks *every* row at every batch; that is applied lazily: a row remembers the batch of its
last touch (`*_settled`) and is scaled by the product of the missed factors when it is next read.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from truelike import objectives
from truelike.training.drawing import GOLDEN, LOOP, draw_unvoted, mix
from truelike.training.meeting import meet

_SUMS = {"reassoc", "contract", "nsz"}  # a dot product may be summed in vector lanes; always the same ones
BLOCK = 96  # negatives that go through the short loops together


@overload(objectives.sigmoid, inline="always")
def _sigmoid(x: Any) -> Any:
    """1/2 + 1/2 tanh(x/2), with tanh(h) as h times a ratio of polynomials in h^2; the error is below 2e-7.

    exp would take three times as long, and the compiler sees that sigmoid(x) and sigmoid(-x) share the ratio.
    """

    def rational(x: Any) -> Any:
        half = np.float32(0.5) * x
        y = min(half * half, np.float32(62.41))
        top = np.float32(-2.76076847742355e-16)
        top = top * y + np.float32(2.00018790482477e-13)
        top = top * y + np.float32(-8.60467152213735e-11)
        top = top * y + np.float32(5.12229709037114e-08)
        top = top * y + np.float32(1.48572235717979e-05)
        top = top * y + np.float32(6.37261928875436e-04)
        top = top * y + np.float32(4.89352455891786e-03)
        bottom = np.float32(1.19825839466702e-06)
        bottom = bottom * y + np.float32(1.18534705686654e-04)
        bottom = bottom * y + np.float32(2.26843463243900e-03)
        bottom = bottom * y + np.float32(4.89352518554385e-03)
        sigma = np.float32(0.5) + np.float32(0.5) * half * (top / bottom)
        return min(np.float32(1.0), max(np.float32(0.0), sigma))

    return rational


# Tables are passed flat, with unsigned places of rows: a slice would count references and a signed index might
# be negative, and either would cost more than the arithmetic.
@numba.njit(**LOOP, fastmath=_SUMS, forceinline=True)
def _dot(a: Any, at_a: Any, b: Any, at_b: Any, n: Any) -> Any:
    total = np.float32(0.0)
    for k in range(n):
        total += a[at_a + k] * b[at_b + k]
    return total


@numba.njit(**LOOP, fastmath=_SUMS, forceinline=True)
def _add(out: Any, at: Any, scale: Any, row: Any, at_row: Any, n: Any) -> None:
    for k in range(n):
        out[at + k] += scale * row[at_row + k]


@numba.njit(**LOOP, fastmath=_SUMS, forceinline=True)
def _mend(
    out: Any, at: Any, scale: Any, old: Any, at_old: Any, rate: Any, gradient: Any, at_g: Any, n: Any
) -> None:
    """Out = scale x old + rate x gradient."""
    for k in range(n):
        out[at + k] = scale * old[at_old + k] + rate * gradient[at_g + k]


@numba.njit(**LOOP, forceinline=True)
def _draw_negatives(
    key: Any, entries: Any, first: Any, last: Any, n_negatives: Any, candidates: Any, sample_item: Any,
    entry_item: Any, start: Any, stop: Any, marks: Any, marked: Any, keep: Any, alias: Any, weights: Any,
    old: Any, mine: Any, item_table: Any, whole: Any, width: Any, item_settled: Any, batch: Any, powers: Any,
) -> None:  # fmt: skip
    """Draw the negatives of the positives first ... last - 1 of the batch; each has a stream of its own."""
    n_items = np.uint64(len(item_settled))
    for p in range(first, last):
        stream = key + GOLDEN * (np.uint64(entries[p]) * np.uint64(64))
        for negative in range(n_negatives):
            state = mix(stream + GOLDEN * np.uint64(negative))
            j = draw_unvoted(state, entry_item, start, stop, marks, marked, n_items, keep, alias, weights)
            if candidates > 1:  # hard negatives: the best-scored of several draws
                r_j = powers[batch - item_settled[j]] * _dot(old, mine, item_table, j * whole, width)
                for candidate in range(1, candidates):
                    state = mix(state + np.uint64(candidate))
                    other = draw_unvoted(
                        state, entry_item, start, stop, marks, marked, n_items, keep, alias, weights
                    )
                    score = powers[batch - item_settled[other]] * _dot(old, mine, item_table, other * whole, width)
                    if score > r_j:
                        j, r_j = other, score
            sample_item[np.uint64(p * (n_negatives + 1) + negative + 1)] = j


@numba.njit(**LOOP)
def _users_half(
    thread: Any, threads: Any, entries: Any, batch: Any, key: Any,
    entry_user: Any, entry_item: Any, indptr: Any,
    user_table: Any, item_table: Any, user_settled: Any, item_settled: Any, width: Any, flip_width: Any,
    rate: Any, powers: Any, flip_powers: Any, shrink: Any, flip_shrink: Any,
    n_negatives: Any, candidates: Any, keep: Any, alias: Any, weights: Any,
    pairwise: Any, weight: Any, positive_steps: Any, negative_steps: Any,
    slot: Any, old: Any, sample_item: Any, sample_step: Any, sample_flip: Any, marks: Any,
    gradient: Any, r_i: Any, g_i: Any, r_j: Any, g_j: Any,
) -> None:  # fmt: skip
    """Score the samples of this thread's users, store the steps for the items, and move the users' rows.

    A user's samples go through four short loops (draw, score, step, add), a block at a time, so that the
    processor works at many samples at once and the rows of a block stay in its cache from loop to loop.
    """
    n, whole, none = len(entries), width + flip_width, np.uint64(0)
    block = max(1, BLOCK // n_negatives)
    at, end = thread * n // threads, (thread + 1) * n // threads
    while 0 < at < n and entry_user[entries[at]] == entry_user[entries[at - 1]]:
        at += 1  # the run of the user before belongs to the thread before
    while at < end:
        user = np.uint64(entry_user[entries[at]])
        run = at + 1
        while run < n and np.uint64(entry_user[entries[run]]) == user:
            run += 1
        start, stop = np.uint64(indptr[user]), np.uint64(indptr[user + np.uint64(1)])
        marked = np.uint64((run - at) * n_negatives * candidates * 4) > stop - start
        if marked:
            for place in range(start, stop):
                marks[np.uint64(entry_item[place])] = True
        missed = batch - user_settled[user]
        row, mine = user * whole, np.uint64(at) * whole
        flip_row, flip_mine = row + width, mine + width
        gradient[:] = np.float32(0.0)
        _mend(old, mine, powers[missed], user_table, row, np.float32(0.0), gradient, none, width)
        _mend(
            old,
            flip_mine,
            flip_powers[missed],
            user_table,
            flip_row,
            np.float32(0.0),
            gradient,
            none,
            flip_width,
        )
        for first in range(at, run, block):
            last = min(first + block, run)
            _draw_negatives(
                key, entries, first, last, n_negatives, candidates, sample_item,
                entry_item, start, stop, marks, marked, keep, alias, weights,
                old, mine, item_table, whole, width, item_settled, batch, powers,
            )  # fmt: skip
            # score
            negative = none
            for p in range(first, last):
                sample = np.uint64(p * (n_negatives + 1))
                sample_item[sample] = entry_item[entries[p]]
                slot[p] = at
                item = np.uint64(sample_item[sample])
                missed = batch - item_settled[item]
                score = powers[missed] * _dot(old, mine, item_table, item * whole, width)
                r_i[p - first] = score
                g_i[p - first] = flip_powers[missed] * _dot(
                    old, flip_mine, item_table, item * whole + width, flip_width
                )
                for _ in range(n_negatives):
                    sample += np.uint64(1)
                    item = np.uint64(sample_item[sample])
                    missed = batch - item_settled[item]
                    r_j[negative] = powers[missed] * _dot(old, mine, item_table, item * whole, width)
                    if pairwise:
                        g_j[negative] = score
                    else:
                        g_j[negative] = flip_powers[missed] * _dot(
                            old, flip_mine, item_table, item * whole + width, flip_width
                        )
                    negative += np.uint64(1)
            # step
            negative_steps(r_j, g_j, negative)
            if not pairwise:
                positive_steps(r_i, g_i, np.uint64(last - first))
            # add
            negative = none
            for p in range(first, last):
                sample = np.uint64(p * (n_negatives + 1))
                step, flip = weight * r_i[p - first], weight * g_i[p - first]
                if pairwise:
                    step, flip = np.float32(0.0), np.float32(0.0)
                    for k in range(n_negatives):
                        step += g_j[negative + np.uint64(k)]
                        g_j[negative + np.uint64(k)] = np.float32(0.0)
                for k in range(n_negatives + 1):
                    if k > 0:
                        step, flip = r_j[negative], g_j[negative]
                        negative += np.uint64(1)
                    sample_step[sample], sample_flip[sample] = step, flip
                    item = np.uint64(sample_item[sample])
                    missed = batch - item_settled[item]
                    _add(gradient, none, step * powers[missed], item_table, item * whole, width)
                    _add(
                        gradient,
                        width,
                        flip * flip_powers[missed],
                        item_table,
                        item * whole + width,
                        flip_width,
                    )
                    sample += np.uint64(1)
        _mend(user_table, row, shrink, old, mine, rate, gradient, none, width)
        _mend(user_table, flip_row, flip_shrink, old, flip_mine, rate, gradient, width, flip_width)
        user_settled[user] = batch + 1
        if marked:
            for place in range(start, stop):
                marks[np.uint64(entry_item[place])] = False
        at = run


@numba.njit(**LOOP)
def _items_half(
    thread: Any, threads: Any, n_samples: Any, per_positive: Any, batch: Any,
    item_table: Any, item_settled: Any, width: Any, flip_width: Any,
    rate: Any, powers: Any, flip_powers: Any, shrink: Any, flip_shrink: Any,
    slot: Any, old: Any, sample_item: Any, sample_step: Any, sample_flip: Any,
    head: Any, following: Any, touched: Any, gradient: Any,
) -> None:  # fmt: skip
    """Move the rows of this thread's items, each by its samples in their order."""
    whole, none = width + flip_width, np.uint64(0)
    n_touched = 0
    # chains from the back to the front, so that following one goes from the front to the back
    for back in range(n_samples):
        sample = np.uint64(n_samples - 1 - back)
        item = np.uint64(sample_item[sample])
        if threads > 1:
            spread = (item * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
            if (spread * np.uint64(threads)) >> np.uint64(32) != np.uint64(thread):
                continue  # another thread's item
        if head[item] < 0:
            touched[n_touched] = item
            n_touched += 1
        following[sample] = head[item]
        head[item] = sample
    for t in range(n_touched):
        item = np.uint64(touched[t])
        gradient[:] = np.float32(0.0)
        link = head[item]
        while link >= 0:
            sample = np.uint64(link)
            mine = np.uint64(slot[sample // np.uint64(per_positive)]) * whole
            _add(gradient, none, sample_step[sample], old, mine, width)
            _add(gradient, width, sample_flip[sample], old, mine + width, flip_width)
            link = following[sample]
        head[item] = -1
        missed, row = batch - item_settled[item], item * whole
        flip_row = row + width
        _mend(item_table, row, shrink * powers[missed], item_table, row, rate, gradient, none, width)
        _mend(
            item_table, flip_row, flip_shrink * flip_powers[missed], item_table, flip_row,
            rate, gradient, width, flip_width,
        )  # fmt: skip
        item_settled[item] = batch + 1


def _run_batches(
    thread: Any, threads: Any, meeting: Any, first: Any, batch_size: Any, entries: Any, key: Any,
    entry_user: Any, entry_item: Any, indptr: Any,
    user_table: Any, item_table: Any, user_settled: Any, item_settled: Any, width: Any, flip_width: Any,
    rate: Any, powers: Any, flip_powers: Any, shrink: Any, flip_shrink: Any,
    n_negatives: Any, candidates: Any, keep: Any, alias: Any, weights: Any,
    pairwise: Any, weight: Any, positive_steps: Any, negative_steps: Any,
    slot: Any, old: Any, sample_item: Any, sample_step: Any, sample_flip: Any,
    head: Any, following: Any, touched: Any, marks: Any, scratch: Any,
) -> None:  # fmt: skip
    """One thread's share of batches first, first + 1, ... over the given entries (sorted within each batch)."""
    per_positive = n_negatives + 1
    for b in range((len(entries) + batch_size - 1) // batch_size):
        part = entries[b * batch_size : (b + 1) * batch_size]
        batch = first + b
        _users_half(
            thread, threads, part, batch, key, entry_user, entry_item, indptr,
            user_table, item_table, user_settled, item_settled, width, flip_width,
            rate, powers, flip_powers, shrink, flip_shrink,
            n_negatives, candidates, keep, alias, weights,
            pairwise, weight, positive_steps, negative_steps,
            slot, old, sample_item, sample_step, sample_flip, marks[thread],
            scratch[thread, 0], scratch[thread, 1], scratch[thread, 2], scratch[thread, 3], scratch[thread, 4],
        )  # fmt: skip
        meet(meeting, threads)
        _items_half(
            thread, threads, len(part) * per_positive, per_positive, batch,
            item_table, item_settled, width, flip_width, rate, powers, flip_powers, shrink, flip_shrink,
            slot, old, sample_item, sample_step, sample_flip, head, following, touched[thread],
            scratch[thread, 0],
        )  # fmt: skip
        meet(meeting, threads)


_f4, _i4, _i8, _u8 = types.float32, types.int32, types.int64, types.uint64
_STEPS = types.void(_f4[::1], _f4[::1], _u8)
_FUNCTION = types.FunctionType(_STEPS)
# Spelled out so that an objective is passed as a pointer: the loops are compiled once for all objectives, and
# an objective of the user's own needs only its two functions compiled.
_SIGNATURE = types.void(
    _i8, _i8, _i8[::1], _i8, _i8, _i4[::1], _u8,
    _i4[::1], _i4[::1], _i4[::1],
    _f4[::1], _f4[::1], _i4[::1], _i4[::1], _u8, _u8,
    _f4, _f4[::1], _f4[::1], _f4, _f4,
    _i8, _i8, _f4[::1], _i4[::1], types.float64[::1],
    types.boolean, _f4, _FUNCTION, _FUNCTION,
    _i4[::1], _f4[::1], _i4[::1], _f4[::1], _f4[::1],
    _i4[::1], _i4[::1], _i4[:, ::1], types.boolean[:, ::1], _f4[:, :, ::1],
)  # fmt: skip


def compile_batches() -> Any:
    """The compiled loop over batches; from numba's cache on disk after the first time."""
    return numba.njit(_SIGNATURE, **LOOP)(_run_batches)


def compile_steps(function: Any, *, pairwise: bool = False) -> Any:
    """A function of an objective as a loop over arrays: r and g (or r_j and r_i) become their steps, in place."""
    inlined = register_jitable(function)
    # part of the key in numba's cache, which would otherwise not notice that the equation was changed
    equation = (function.__code__.co_code, repr(function.__code__.co_consts), function.__code__.co_names)

    def pointwise_steps(r: Any, g: Any, n: Any) -> None:
        _ = equation
        for k in range(n):
            r[k], g[k] = inlined(r[k], g[k])

    def pairwise_steps(r_j: Any, r_i: Any, n: Any) -> None:
        _ = equation
        for k in range(n):
            r_i[k], r_j[k] = inlined(r_i[k], r_j[k])

    loop = pairwise_steps if pairwise else pointwise_steps
    # The compiled loop is found by name, which must be that of the equation: numba's own numbering of functions
    # of one name starts anew in each process, and loops cached by two processes could then be taken for another.
    bound = [cell.cell_contents for cell in function.__closure__ or ()]
    mark = hashlib.sha256(repr((function.__qualname__, equation, bound)).encode()).hexdigest()[:16]
    loop.__name__ = loop.__qualname__ = f"{loop.__name__}_{mark}"
    ours = function.__module__ == objectives.__name__  # what others write may change without a trace
    return numba.njit(_STEPS, cache=ours, nogil=True, _nrt=False, fastmath=_SUMS)(loop)


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
