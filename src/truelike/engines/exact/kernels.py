"""The compiled loops of the exact engine: scores become steps, and rows are updated by SGD or Adam.

The loops work on a block of users x a tile of items; `first` is the first item of the tile. Where a batch is trained on
a sample of the items, an item is its place in the sample.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types

from truelike.core.arrays import Codes, Counts, Floats
from truelike.core.compile_cache import cached_njit, uniquely_named
from truelike.core.sorting import first_at_least
from truelike.objectives.compiler import STEPS_SIGNATURE

BETA_1, BETA_2, EPSILON = np.float32(0.9), np.float32(0.99), np.float32(1e-8)


class Positives(NamedTuple):
    """The positives of some users: those of user n are indices[indptr[users[n]] : indptr[users[n] + 1]].

    `weights` is how much each counts; empty: all count 1.
    """

    users: Codes
    indptr: Codes
    indices: Codes
    weights: Floats


class Moments(NamedTuple):
    """A table that Adam updates, its state, and the L2 of each row."""

    table: Floats
    l2: Floats
    first: Floats
    second: Floats
    n_updates: Counts


def pointwise(r, g, bias, weights, positives, first, positive_steps, negative_steps, step_sums):
    """Replace the scores r (and the flip logits g, if there are any) by the steps of a pointwise objective.

    The steps of unobserved items are multiplied by the weights of the items. The two rows of `step_sums` are set to the
    sums over the users of the steps of r and of g, which are the gradients of the biases.
    """
    users, indptr, indices, positive_weights = positives
    n, flips, zero = r.shape[1], g.shape[0] > 0, np.uint64(0)
    weighted = len(positive_weights) > 0
    positive_r, positive_g, zero_g = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    step_sums[:] = np.float32(0.0)
    for row in range(r.shape[0]):
        scores = r[row]
        for k in range(n):
            scores[k] += bias[k]
        start = first_at_least(indices, indptr[users[row]], indptr[users[row] + 1], first)
        stop = first_at_least(indices, start, indptr[users[row] + 1], first + n)
        for entry in range(start, stop):  # saved before `negative_steps` overwrites them
            item = indices[entry] - first
            positive_r[entry - start] = scores[item]
            positive_g[entry - start] = g[row, item] if flips else np.float32(0.0)
        positive_steps(positive_r, positive_g, zero, np.uint64(stop - start))
        if weighted:
            for entry in range(start, stop):
                positive_r[entry - start] *= positive_weights[entry]
                positive_g[entry - start] *= positive_weights[entry]
        logits = g[row] if flips else zero_g
        if not flips:
            for k in range(n):
                logits[k] = np.float32(0.0)
        negative_steps(scores, logits, zero, np.uint64(n))
        for k in range(n):
            scores[k] *= weights[k]
        if flips:
            for k in range(n):
                logits[k] *= weights[k]
        for entry in range(start, stop):
            item = indices[entry] - first
            scores[item] = positive_r[entry - start]
            if flips:
                logits[item] = positive_g[entry - start]
        for k in range(n):
            step_sums[0, k] += scores[k]
        if flips:
            for k in range(n):
                step_sums[1, k] += logits[k]


def subtract_row_max(r, bias, weights, positives, first, row_max):
    """Add the biases to the scores and subtract the maximum of each row, which is stored in `row_max`.

    exp(score) of an unobserved item counts `weights` times.
    """
    users, indptr, indices, _ = positives
    n = r.shape[1]
    total = np.empty(n, dtype=np.float32)
    for k in range(n):
        total[k] = bias[k] + np.log(weights[k])
    for row in range(r.shape[0]):
        scores, top = r[row], np.float32(-np.inf)
        for k in range(n):
            scores[k] += total[k]
        start = first_at_least(indices, indptr[users[row]], indptr[users[row] + 1], first)
        stop = first_at_least(indices, start, indptr[users[row] + 1], first + n)
        for entry in range(start, stop):
            k = indices[entry] - first
            scores[k] -= total[k] - bias[k]
        for k in range(n):
            top = max(top, scores[k])
        for k in range(n):
            scores[k] -= top
        row_max[row] = top


def softmax(r, scale, positives, first, step_sums):
    """Replace exp(scores) by the steps of the softmax: -scale x exp(score) = -n_u p_ui, plus 1 for positives.

    Where positives have weights, n_u is the sum of them.
    """
    users, indptr, indices, positive_weights = positives
    n, weighted = r.shape[1], len(positive_weights) > 0
    step_sums[:] = np.float32(0.0)
    for row in range(r.shape[0]):
        steps, factor = r[row], -scale[row]
        for k in range(n):
            steps[k] *= factor
        start = first_at_least(indices, indptr[users[row]], indptr[users[row] + 1], first)
        stop = first_at_least(indices, start, indptr[users[row] + 1], first + n)
        for entry in range(start, stop):
            steps[indices[entry] - first] += positive_weights[entry] if weighted else np.float32(1.0)
        for k in range(n):
            step_sums[k] += steps[k]


def adam(moments, rows, gradient, l2_part, rate):
    """Update some rows by Adam (Kingma and Ba, 2015), each by a part of its L2, with its own count of updates."""
    table, regularization, first_moment, second_moment, n_updates = moments
    one = np.float32(1.0)
    for n in range(len(rows)):
        row = rows[n]
        l2 = l2_part[n] * regularization[row]
        n_updates[row] += 1
        step = rate[n] / np.float32(1.0 - float(BETA_1) ** n_updates[row])
        root = np.float32(1.0 / np.sqrt(1.0 - float(BETA_2) ** n_updates[row]))
        for k in range(table.shape[1]):
            total = gradient[n, k] - l2 * table[row, k]
            m = BETA_1 * first_moment[row, k] + (one - BETA_1) * total
            v = BETA_2 * second_moment[row, k] + (one - BETA_2) * total * total
            first_moment[row, k], second_moment[row, k] = m, v
            table[row, k] += step * m / (np.sqrt(v) * root + EPSILON)


_f4, _i4, _i8 = types.float32, types.int32, types.int64
_STEPS = types.FunctionType(STEPS_SIGNATURE)
_POSITIVES = types.NamedTuple((_i4[::1], _i4[::1], _i4[::1], _f4[::1]), Positives)
_MOMENTS = types.NamedTuple((_f4[:, ::1], _f4[::1], _f4[:, ::1], _f4[:, ::1], _i8[::1]), Moments)
_SIGNATURES = {
    pointwise: types.void(
        _f4[:, ::1], _f4[:, ::1], _f4[::1], _f4[::1], _POSITIVES, _i8, _STEPS, _STEPS, _f4[:, ::1]
    ),
    subtract_row_max: types.void(_f4[:, ::1], _f4[::1], _f4[::1], _POSITIVES, _i8, _f4[::1]),
    softmax: types.void(_f4[:, ::1], _f4[::1], _POSITIVES, _i8, _f4[::1]),
    adam: types.void(_MOMENTS, _i4[::1], _f4[:, ::1], _f4[::1], _f4[::1]),
}


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loop of this module compiled, from the cache on disk after the first time."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
    found: Callable[..., Any] = cached_njit(_SIGNATURES[loop], **options)(uniquely_named(loop))
    return found
