"""The compiled loop of alternating least squares: conjugate gradients for a block of rows, two at a time.

A row x solves A x = b, where A = G + ridge I + the sum of v v' over its votes and b is the sum of v, v being the
voted rows of the other table and G = w V'V the same for all. A is never built. A step needs A p: G p is taken for
two rows at once, so that G is loaded half as often, and the votes' dot products and additions go four votes at a
time. Tables are passed flat, and rows are padded with zeros to whole registers (see `rows.py`).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

_LOOP = {"nogil": True, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_SUMS = {"reassoc", "contract", "nsz"}  # a dot product may be summed in vector lanes; always the same ones


@numba.njit(**_LOOP, fastmath=_SUMS)
def _dot(a: Any, at_a: Any, b: Any, at_b: Any, width: Any) -> Any:
    total = np.float32(0.0)
    for k in range(width):
        total += a[at_a + k] * b[at_b + k]
    return total


@numba.njit(**_LOOP, fastmath=_SUMS)
def _add(out: Any, at_out: Any, scale: Any, row: Any, at_row: Any, width: Any) -> None:
    """Out += scale x row."""
    for k in range(width):
        out[at_out + k] += scale * row[at_row + k]


@numba.njit(**_LOOP, fastmath=_SUMS)
def _add_votes(
    out: Any, at_out: Any, table: Any, voted: Any, start: Any, stop: Any,
    x: Any, at_x: Any, target: Any, sign: Any, width: Any,
) -> Any:  # fmt: skip
    """Out += the sum over the votes v of (target + sign v.x) v; gives the sum of the squares of these scales."""
    squares = np.float32(0.0)
    n = start
    while n + 4 <= stop:
        a, b = np.uint64(voted[n]) * width, np.uint64(voted[n + 1]) * width
        c, d = np.uint64(voted[n + 2]) * width, np.uint64(voted[n + 3]) * width
        s = t = u = v = np.float32(0.0)
        for k in range(width):
            value = x[at_x + k]
            s += value * table[a + k]
            t += value * table[b + k]
            u += value * table[c + k]
            v += value * table[d + k]
        s, t, u, v = target + sign * s, target + sign * t, target + sign * u, target + sign * v
        squares += (s * s + t * t) + (u * u + v * v)
        for k in range(width):
            out[at_out + k] += (s * table[a + k] + t * table[b + k]) + (u * table[c + k] + v * table[d + k])
        n += 4
    while n < stop:
        a = np.uint64(voted[n]) * width
        s = target + sign * _dot(x, at_x, table, a, width)
        squares += s * s
        _add(out, at_out, s, table, a, width)
        n += 1
    return squares


@numba.njit(**_LOOP, fastmath=_SUMS)
def _times_gram(out: Any, gram: Any, x: Any, width: Any) -> None:
    """The first two rows of out = those of x times G; four rows of G at a time."""
    for k in range(np.uint64(2) * width):
        out[k] = np.float32(0.0)
    for j in range(np.uint64(0), width, np.uint64(4)):
        a0, a1, a2, a3 = x[j], x[j + np.uint64(1)], x[j + np.uint64(2)], x[j + np.uint64(3)]
        i = width + j
        b0, b1, b2, b3 = x[i], x[i + np.uint64(1)], x[i + np.uint64(2)], x[i + np.uint64(3)]
        g0 = j * width
        g1, g2, g3 = g0 + width, g0 + np.uint64(2) * width, g0 + np.uint64(3) * width
        for k in range(width):
            out[k] += (a0 * gram[g0 + k] + a1 * gram[g1 + k]) + (a2 * gram[g2 + k] + a3 * gram[g3 + k])
            out[width + k] += (b0 * gram[g0 + k] + b1 * gram[g1 + k]) + (b2 * gram[g2 + k] + b3 * gram[g3 + k])


@numba.njit(**_LOOP, fastmath=_SUMS)
def _begin(
    which: Any, row: Any, table: Any, indptr: Any, voted: Any, ridge: Any,
    p: Any, q: Any, r: Any, rs: Any, width: Any,
) -> Any:  # fmt: skip
    """From x in p and G x in q: r = p = b - A x; gives the objective's terms of the row at x."""
    at = np.uint64(which) * width
    for k in range(width):
        r[at + k] = -(q[at + k] + ridge[row] * p[at + k])
    terms = -_dot(p, at, r, at, width)
    one = np.float32(1.0)
    terms += _add_votes(r, at, table, voted, indptr[row], indptr[row + 1], p, at, one, -one, width)
    for k in range(width):
        p[at + k] = r[at + k]
    rs[which] = _dot(r, at, r, at, width)
    return terms


@numba.njit(**_LOOP, fastmath=_SUMS)
def _step(
    which: Any, row: Any, rows: Any, table: Any, indptr: Any, voted: Any, ridge: Any,
    p: Any, q: Any, r: Any, rs: Any, width: Any,
) -> Any:  # fmt: skip
    """From G p in q: one step of x, r and p; gives by how much the objective falls, alpha |r|^2."""
    zero, one, at = np.float32(0.0), np.float32(1.0), np.uint64(which) * width
    _add(q, at, ridge[row], p, at, width)
    _add_votes(q, at, table, voted, indptr[row], indptr[row + 1], p, at, zero, one, width)
    curvature = _dot(p, at, q, at, width)
    if not (rs[which] > zero and curvature > zero):  # already there
        return zero
    alpha = rs[which] / curvature
    fall = alpha * rs[which]
    _add(rows, np.uint64(row) * width, alpha, p, at, width)
    _add(r, at, -alpha, q, at, width)
    left = _dot(r, at, r, at, width)
    beta = left / rs[which]
    rs[which] = left
    for k in range(width):
        p[at + k] = r[at + k] + beta * p[at + k]
    return fall


@numba.njit(**_LOOP)
def _take(which: Any, row: Any, rows: Any, indptr: Any, p: Any, width: Any) -> None:
    """P = x; a row without a vote has nothing to explain, and zero is its solution."""
    at, at_x = np.uint64(which) * width, np.uint64(row) * width
    if indptr[row] == indptr[row + 1]:
        for k in range(width):
            rows[at_x + k] = np.float32(0.0)
    for k in range(width):
        p[at + k] = rows[at_x + k]


@numba.njit(cache=True, nogil=True, _nrt=False)
def solve_rows(
    first: Any, stop: Any, rows: Any, width: Any, table: Any, gram: Any,
    indptr: Any, voted: Any, ridge: Any, steps: Any, p: Any, q: Any, r: Any, rs: Any,
) -> Any:  # fmt: skip
    """Some steps of conjugate gradients for each of rows first ... stop - 1, from where it stands.

    `p`, `q` and `r` are room for two rows each, `rs` for two numbers; they come as zeros. Gives the objective's
    terms of these rows: the error of their votes, what the unobserved pairs weigh, and the ridge. They cost
    nothing more to know, since each step tells by how much it lowers them.
    """
    width = np.uint64(width)
    terms = 0.0
    for pair in range(first, stop, 2):
        count = min(2, stop - pair)  # a last row without a partner goes along with what is left in the room
        for which in range(count):
            _take(which, pair + which, rows, indptr, p, width)
        _times_gram(q, gram, p, width)
        for which in range(count):
            terms += _begin(which, pair + which, table, indptr, voted, ridge, p, q, r, rs, width)
        for _ in range(steps):
            _times_gram(q, gram, p, width)
            for which in range(count):
                terms -= _step(which, pair + which, rows, table, indptr, voted, ridge, p, q, r, rs, width)
    return terms
