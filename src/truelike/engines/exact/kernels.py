"""The compiled loops of the exact engine: scores become steps, and rows are updated by SGD or Adam.

The loops work on a block of users x a tile of items. `users` are the users of the block, `first` is the first
item of the tile, and `indptr` and `indices` are the CSR of the positives. Where a batch is trained on a sample of the
items, an item is its place in the sample.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types

from truelike.core.compile_cache import cached_njit
from truelike.core.sorting import first_at_least
from truelike.engines.objective_compiler import STEPS_SIGNATURE, uniquely_named

BETA_1, BETA_2, EPSILON = np.float32(0.9), np.float32(0.99), np.float32(1e-8)


def _pointwise(
    r: Any, g: Any, bias: Any, users: Any, indptr: Any, indices: Any, positive_weights: Any, first: Any,
    positive_steps: Any, negative_steps: Any, weights: Any,
    positive_r: Any, positive_g: Any, zero_g: Any, step_sums: Any, flip_step_sums: Any,
) -> None:  # fmt: skip
    """Replace the scores r (and the flip logits g, if there are any) by the steps of a pointwise objective.

    The steps of unobserved items are multiplied by the weights of the items, those of positives by
    `positive_weights`, if there are any. `step_sums` and `flip_step_sums` are
    set to the sums over the users, which are the gradients of the biases. `positive_r`, `positive_g` and `zero_g` are
    buffers.
    """
    n, flips, zero = r.shape[1], g.shape[0] > 0, np.uint64(0)
    weighted = len(positive_weights) > 0
    step_sums[:] = np.float32(0.0)
    flip_step_sums[:] = np.float32(0.0)
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
            step_sums[k] += scores[k]
        if flips:
            for k in range(n):
                flip_step_sums[k] += logits[k]


def _subtract_row_max(
    r: Any, bias: Any, weights: Any, users: Any, indptr: Any, indices: Any, positive_weights: Any, first: Any,
    row_max: Any,
) -> None:  # fmt: skip
    """Add the biases to the scores and subtract the maximum of each row, which is stored in `row_max`.

    exp(score) of an unobserved item counts `weights` times.
    """
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


def _softmax(
    r: Any, scale: Any, users: Any, indptr: Any, indices: Any, positive_weights: Any, first: Any, step_sums: Any
) -> None:
    """Replace exp(scores) by the steps of the softmax: -scale x exp(score) = -n_u p_ui, plus 1 for positives.

    A positive counts `positive_weights` instead of 1, if there are any; n_u is then their sum.
    """
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


def _adam(
    table: Any, rows: Any, gradient: Any, regularization: Any, rate: Any,
    first_moment: Any, second_moment: Any, n_updates: Any,
) -> None:  # fmt: skip
    """Update some rows by Adam (Kingma and Ba, 2015). Each row has its own count of updates."""
    one = np.float32(1.0)
    for n in range(len(rows)):
        row, l2 = rows[n], regularization[n]
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
_STEPS_POINTER = types.FunctionType(STEPS_SIGNATURE)
_ROWS = (_f4[:, ::1], _i4[::1], _f4[:, ::1], _f4[::1], _f4[::1])
_SIGNATURES = {
    _pointwise: types.void(
        _f4[:, ::1], _f4[:, ::1], _f4[::1], _i4[::1], _i4[::1], _i4[::1], _f4[::1], _i8,
        _STEPS_POINTER, _STEPS_POINTER, _f4[::1], _f4[::1], _f4[::1], _f4[::1], _f4[::1], _f4[::1],
    ),
    _subtract_row_max: types.void(
        _f4[:, ::1], _f4[::1], _f4[::1], _i4[::1], _i4[::1], _i4[::1], _f4[::1], _i8, _f4[::1],
    ),
    _softmax: types.void(_f4[:, ::1], _f4[::1], _i4[::1], _i4[::1], _i4[::1], _f4[::1], _i8, _f4[::1]),
    _adam: types.void(*_ROWS, _f4[:, ::1], _f4[:, ::1], _i8[::1]),
}  # fmt: skip


@cache
def compiled(name: str) -> Any:
    """Return a loop of this module by its name, from the cache on disk after the first time."""
    [function] = [known for known in _SIGNATURES if known.__code__.co_name == f"_{name}"]
    signature = _SIGNATURES[function]
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
    return cached_njit(signature, **options)(uniquely_named(function))
