"""The compiled loops of the exact engine: steps of a block of users x items, and rows moved by SGD or Adam."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from truelike.training.equations import STEPS, named

FIRST_MOMENT, SECOND_MOMENT, TINY = np.float32(0.9), np.float32(0.99), np.float32(1e-8)


@numba.njit(nogil=True, inline="always")
def _from(indices: Any, start: Any, stop: Any, value: Any) -> Any:
    """The first place from `start` on whose index is at least `value`."""
    while start < stop:
        middle = (start + stop) // 2
        if indices[middle] < value:
            start = middle + 1
        else:
            stop = middle
    return start


def _pointwise(
    r: Any, g: Any, bias: Any, users: Any, indptr: Any, indices: Any, first: Any,
    positive_steps: Any, unvoted_steps: Any, weight: Any,
    some_r: Any, some_g: Any, no_g: Any, up: Any, flip_up: Any,
) -> None:  # fmt: skip
    """Scores r (and flip logits g, where there are any) of users x a tile of items become their steps.

    `up` and `flip_up` get the sums over the users, which are the steps of the biases.
    """
    n, flips, none = r.shape[1], g.shape[0] > 0, np.uint64(0)
    up[:] = np.float32(0.0)
    flip_up[:] = np.float32(0.0)
    for row in range(r.shape[0]):
        scores = r[row]
        for k in range(n):
            scores[k] += bias[k]
        start = _from(indices, indptr[users[row]], indptr[users[row] + 1], first)
        stop = _from(indices, start, indptr[users[row] + 1], first + n)
        for entry in range(start, stop):  # before the steps of unvoted items take their place
            item = indices[entry] - first
            some_r[entry - start] = scores[item]
            some_g[entry - start] = g[row, item] if flips else np.float32(0.0)
        positive_steps(some_r, some_g, none, np.uint64(stop - start))
        logits = g[row] if flips else no_g
        if not flips:
            for k in range(n):
                logits[k] = np.float32(0.0)
        unvoted_steps(scores, logits, none, np.uint64(n))
        for k in range(n):
            scores[k] *= weight
        if flips:
            for k in range(n):
                logits[k] *= weight
        for entry in range(start, stop):
            item = indices[entry] - first
            scores[item] = some_r[entry - start]
            if flips:
                logits[item] = some_g[entry - start]
        for k in range(n):
            up[k] += scores[k]
        if flips:
            for k in range(n):
                flip_up[k] += logits[k]


def _below_best(r: Any, bias: Any, best: Any) -> None:
    """Add the biases, and say by how much each score is below the best of its row, which goes into `best`."""
    n = r.shape[1]
    for row in range(r.shape[0]):
        scores, top = r[row], np.float32(-np.inf)
        for k in range(n):
            scores[k] += bias[k]
            top = max(top, scores[k])
        for k in range(n):
            scores[k] -= top
        best[row] = top


def _softmax(r: Any, scale: Any, users: Any, indptr: Any, indices: Any, first: Any, up: Any) -> None:
    """The exp of scores become steps: minus n_u p_ui (`scale` times them), and 1 more for votes."""
    n = r.shape[1]
    up[:] = np.float32(0.0)
    for row in range(r.shape[0]):
        steps, by = r[row], -scale[row]
        for k in range(n):
            steps[k] *= by
        start = _from(indices, indptr[users[row]], indptr[users[row] + 1], first)
        stop = _from(indices, start, indptr[users[row] + 1], first + n)
        for entry in range(start, stop):
            steps[indices[entry] - first] += np.float32(1.0)
        for k in range(n):
            up[k] += steps[k]


def _fill_flips(g: Any, never: Any, users: Any, indptr: Any, indices: Any, logits: Any, first: Any) -> None:
    """Known flip logits: those of pairs that were shown, and one for all that never were."""
    n = g.shape[1]
    for row in range(g.shape[0]):
        g[row, :] = never
        start = _from(indices, indptr[users[row]], indptr[users[row] + 1], first)
        stop = _from(indices, start, indptr[users[row] + 1], first + n)
        for entry in range(start, stop):
            g[row, indices[entry] - first] = logits[entry]


def _descend(table: Any, rows: Any, gradient: Any, strength: Any, rate: Any) -> None:
    """Plain SGD: each row moves by rate x (gradient - strength x row)."""
    for n in range(len(rows)):
        row, shrink = rows[n], np.float32(1.0) - rate * strength[n]
        for k in range(table.shape[1]):
            table[row, k] = shrink * table[row, k] + rate * gradient[n, k]


def _adam(
    table: Any, rows: Any, gradient: Any, strength: Any, rate: Any, mean: Any, square: Any, count: Any
) -> None:
    """Adam (Kingma and Ba, 2015) of some rows, each with its own count of steps; the others stand still."""
    one = np.float32(1.0)
    for n in range(len(rows)):
        row, prior = rows[n], strength[n]
        count[row] += 1
        step = rate / np.float32(1.0 - float(FIRST_MOMENT) ** count[row])
        root = np.float32(1.0 / np.sqrt(1.0 - float(SECOND_MOMENT) ** count[row]))
        for k in range(table.shape[1]):
            slope = gradient[n, k] - prior * table[row, k]
            m = FIRST_MOMENT * mean[row, k] + (one - FIRST_MOMENT) * slope
            s = SECOND_MOMENT * square[row, k] + (one - SECOND_MOMENT) * slope * slope
            mean[row, k], square[row, k] = m, s
            table[row, k] += step * m / (np.sqrt(s) * root + TINY)


_f4, _i4, _i8 = types.float32, types.int32, types.int64
_STEPS = types.FunctionType(STEPS)
_ROWS = (_f4[:, ::1], _i4[::1], _f4[:, ::1], _f4[::1], _f4)
_SIGNATURES = {
    _pointwise: types.void(
        _f4[:, ::1], _f4[:, ::1], _f4[::1], _i4[::1], _i4[::1], _i4[::1], _i8,
        _STEPS, _STEPS, _f4, _f4[::1], _f4[::1], _f4[::1], _f4[::1], _f4[::1],
    ),
    _below_best: types.void(_f4[:, ::1], _f4[::1], _f4[::1]),
    _softmax: types.void(_f4[:, ::1], _f4[::1], _i4[::1], _i4[::1], _i4[::1], _i8, _f4[::1]),
    _fill_flips: types.void(_f4[:, ::1], _f4, _i4[::1], _i4[::1], _i4[::1], _f4[::1], _i8),
    _descend: types.void(*_ROWS),
    _adam: types.void(*_ROWS, _f4[:, ::1], _f4[:, ::1], _i8[::1]),
}  # fmt: skip


@cache
def compiled(name: str) -> Any:
    """One of the loops of this file by its name, from numba's cache on disk after the first time."""
    [function] = [known for known in _SIGNATURES if known.__code__.co_name == f"_{name}"]
    signature = _SIGNATURES[function]
    options = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
    return numba.njit(signature, **options)(named(function))
