"""The compiled loop of alternating least squares: conjugate gradients for a block of rows, two at a time.

A row x solves A x = b. Here A = G + ridge I + the sum of c v v' over its positives, and b is the sum of c v, where v
are the positives' rows of the other table, c their weights and G = w V'V is the same for all rows. A is never built.
A step needs A p: G p is computed for two rows at once, so that G is loaded half as often, and positives are processed
four at a time. Tables are passed as flat arrays, and rows are padded with zeros to whole registers (see `row_ops` and
`tables`).

Where all positives count the same, `weights` is None. The compiler then leaves out all that is done with them, so there
are two compiled loops of the same lines.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from truelike.core.arrays import Codes, Floats
from truelike.core.compile_cache import FAST_SUMS, LOOP, cached_njit, uniquely_named
from truelike.engines.row_ops import dot


class Equations(NamedTuple):
    """The rows to solve, the other table, G, the CSR of the positives and the ridge of each row."""

    rows: Floats
    table: Floats
    gram: Floats
    indptr: Codes
    positives: Codes
    ridge: Floats
    width: np.uint64


class Buffers(NamedTuple):
    """Of two rows each; `squares` has |r|^2 of both. All are zero on entry."""

    p: Floats
    q: Floats
    r: Floats
    old: Floats
    squares: Floats


@numba.njit(**LOOP, fastmath=FAST_SUMS)
def _add(out, at_out, scale, row, at_row, width):
    """Set out += scale x row."""
    for k in range(width):
        out[at_out + k] += scale * row[at_row + k]


@numba.njit(**LOOP, fastmath=FAST_SUMS)
def _add_positives(out, at_out, table, positives, weights, start, stop, x, at_x, target, sign, width):
    """Set out += the sum over the positives v of c (target + sign v.x) v.

    Return the sum of c (target + sign v.x)^2.
    """
    squares = np.float32(0.0)
    n = start
    while n + 4 <= stop:
        a, b = np.uint64(positives[n]) * width, np.uint64(positives[n + 1]) * width
        c, d = np.uint64(positives[n + 2]) * width, np.uint64(positives[n + 3]) * width
        s = t = u = v = np.float32(0.0)
        for k in range(width):
            value = x[at_x + k]
            s += value * table[a + k]
            t += value * table[b + k]
            u += value * table[c + k]
            v += value * table[d + k]
        s, t, u, v = target + sign * s, target + sign * t, target + sign * u, target + sign * v
        if weights is None:
            squares += (s * s + t * t) + (u * u + v * v)
        else:
            cs, ct, cu, cv = weights[n] * s, weights[n + 1] * t, weights[n + 2] * u, weights[n + 3] * v
            squares += (cs * s + ct * t) + (cu * u + cv * v)
            s, t, u, v = cs, ct, cu, cv
        for k in range(width):
            out[at_out + k] += (s * table[a + k] + t * table[b + k]) + (u * table[c + k] + v * table[d + k])
        n += 4
    while n < stop:
        a = np.uint64(positives[n]) * width
        s = target + sign * dot(x, at_x, table, a, width)
        if weights is None:
            squares += s * s
        else:
            cs = weights[n] * s
            squares += cs * s
            s = cs
        _add(out, at_out, s, table, a, width)
        n += 1
    return squares


@numba.njit(**LOOP, fastmath=FAST_SUMS)
def _times_gram(out, gram, x, width):
    """Set the two rows of out to those of x times G, four rows of G at a time."""
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


@numba.njit(**LOOP, fastmath=FAST_SUMS)
def _begin(slot, row, equations, weights, buffers):
    """Given x in p and G x in q, set r = p = b - A x. Return the objective's terms of the row at x."""
    p, q, r, _, squares = buffers
    width, indptr, ridge = equations.width, equations.indptr, equations.ridge
    at, one = np.uint64(slot) * width, np.float32(1.0)
    for k in range(width):
        r[at + k] = -(q[at + k] + ridge[row] * p[at + k])
    terms = -dot(p, at, r, at, width)
    terms += _add_positives(
        r, at, equations.table, equations.positives, weights, indptr[row], indptr[row + 1], p, at, one, -one, width
    )
    for k in range(width):
        p[at + k] = r[at + k]
    squares[slot] = dot(r, at, r, at, width)
    return terms


@numba.njit(**LOOP, fastmath=FAST_SUMS)
def _step(slot, row, equations, weights, buffers):
    """Given G p in q, do one step of x, r and p. Return the decrease of the objective, alpha |r|^2."""
    p, q, r, _, squares = buffers
    width, indptr = equations.width, equations.indptr
    zero, one, at = np.float32(0.0), np.float32(1.0), np.uint64(slot) * width
    _add(q, at, equations.ridge[row], p, at, width)
    _add_positives(
        q, at, equations.table, equations.positives, weights, indptr[row], indptr[row + 1], p, at, zero, one, width
    )
    curvature = dot(p, at, q, at, width)
    if not (squares[slot] > zero and curvature > zero):  # already solved
        return zero
    alpha = squares[slot] / curvature
    decrease = alpha * squares[slot]
    _add(equations.rows, np.uint64(row) * width, alpha, p, at, width)
    _add(r, at, -alpha, q, at, width)
    after = dot(r, at, r, at, width)
    beta = after / squares[slot]
    squares[slot] = after
    for k in range(width):
        p[at + k] = r[at + k] + beta * p[at + k]
    return decrease


@numba.njit(**LOOP)
def _load(slot, row, equations, buffers):
    """Set p = old = x. The solution of a row without positives is zero."""
    rows, width = equations.rows, equations.width
    at, at_x = np.uint64(slot) * width, np.uint64(row) * width
    if equations.indptr[row] == equations.indptr[row + 1]:
        for k in range(width):
            rows[at_x + k] = np.float32(0.0)
    for k in range(width):
        buffers.p[at + k] = buffers.old[at + k] = rows[at_x + k]


@numba.njit(**LOOP, fastmath=FAST_SUMS)
def _go_beyond(slot, row, rows, old, beyond, width):
    """Set x += beyond (x - old)."""
    at, at_x = np.uint64(slot) * width, np.uint64(row) * width
    for k in range(width):
        rows[at_x + k] += beyond * (rows[at_x + k] - old[at + k])


def _solve_rows(first, stop, equations, weights, steps, beyond, buffers):
    """Do some steps of conjugate gradients for each of rows first ... stop - 1, starting from its present value.

    Then go on in the direction of all steps together, by a share `beyond` of their length. `weights` are those of the
    positives, or None. Returns the objective's terms of these rows: the error of their positives, the weighted
    unobserved pairs and the ridge. They are a by-product: each step yields the decrease of the objective. Along the
    direction of all steps the objective is a parabola with its minimum where the steps end, so going beyond takes back
    beyond^2 of the decrease.
    """
    p, q, _, old, _ = buffers
    gram, width = equations.gram, equations.width
    terms, kept = 0.0, 1.0 - float(beyond) * float(beyond)
    for pair in range(first, stop, 2):
        count = min(2, stop - pair)  # a single last row is processed with leftover data in slot 1
        for slot in range(count):
            _load(slot, pair + slot, equations, buffers)
        _times_gram(q, gram, p, width)
        for slot in range(count):
            terms += _begin(slot, pair + slot, equations, weights, buffers)
        for _ in range(steps):
            _times_gram(q, gram, p, width)
            for slot in range(count):
                terms -= kept * _step(slot, pair + slot, equations, weights, buffers)
        if beyond > np.float32(0.0):
            for slot in range(count):
                _go_beyond(slot, pair + slot, equations.rows, old, beyond, width)
    return terms


solve_rows = cached_njit(nogil=True, _nrt=False)(uniquely_named(_solve_rows))
