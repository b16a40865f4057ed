"""Arithmetic on rows of tables, inlined into the compiled loops.

A table is passed as a flat array with unsigned offsets of its rows. A slice would count references, and a signed
index could be negative; either check costs more than the arithmetic. Rows are processed four at a time: a user's
row is loaded once for four dot products, and a gradient is loaded and stored once for four additions.
"""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from truelike.core.compile_cache import FAST_SUMS, INLINE, LOOP

CACHE_LINE = 16  # float32 numbers in a cache line


@numba.njit(**LOOP, fastmath=FAST_SUMS)
def dot(a, at_a, b, at_b, n):
    """Return the dot product of a row of `a` and a row of `b`."""
    total = np.float32(0.0)
    for k in range(n):
        total += a[at_a + k] * b[at_b + k]
    return total


@numba.njit(**INLINE, fastmath=FAST_SUMS)
def dot_four(out, at, row, at_row, table, offsets, shift, n):
    """Write the dot products of one row and four rows of a table to out[at:at + 4]."""
    a, b, c, d = (
        offsets[at] + shift,
        offsets[at + np.uint64(1)] + shift,
        offsets[at + np.uint64(2)] + shift,
        offsets[at + np.uint64(3)] + shift,
    )
    w = x = y = z = np.float32(0.0)
    for k in range(n):
        value = row[at_row + k]
        w += value * table[a + k]
        x += value * table[b + k]
        y += value * table[c + k]
        z += value * table[d + k]
    out[at], out[at + np.uint64(1)], out[at + np.uint64(2)], out[at + np.uint64(3)] = w, x, y, z


@numba.njit(**INLINE, fastmath=FAST_SUMS)
def add_four(out, at, shrink, scales, first, table, offsets, shift, n):
    """Set out = shrink x out + the sum of four rows of a table, each times its scale."""
    second, third, fourth = first + np.uint64(1), first + np.uint64(2), first + np.uint64(3)
    w, x, y, z = scales[first], scales[second], scales[third], scales[fourth]
    a, b, c, d = (
        np.uint64(offsets[first]) + shift,
        np.uint64(offsets[second]) + shift,
        np.uint64(offsets[third]) + shift,
        np.uint64(offsets[fourth]) + shift,
    )
    for k in range(n):
        out[at + k] = shrink * out[at + k] + (
            (w * table[a + k] + x * table[b + k]) + (y * table[c + k] + z * table[d + k])
        )


@numba.njit(**LOOP, fastmath=FAST_SUMS)
def scaled_add(out, at, scale, row, at_row, rate, gradient, at_gradient, n):
    """Set out = scale x row + rate x gradient."""
    for k in range(n):
        out[at + k] = scale * row[at_row + k] + rate * gradient[at_gradient + k]


@intrinsic
def prefetch(typing_context, array, index):
    """Prefetch the cache line of array[index]."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, number(0), number(3), number(1)])  # read, high locality, data cache
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@numba.njit(**INLINE)
def prefetch_row(table, offset, n):
    """Prefetch a row that is read soon. With tables larger than the caches each read would wait for memory."""
    for k in range(np.uint64(0), n, np.uint64(CACHE_LINE)):
        prefetch(table, offset + k)
