"""Arithmetic on rows of tables, inlined into the compiled loops.

Tables are passed flat, with unsigned places of rows: a slice would count references and a signed index might be
negative, and either would cost more than the arithmetic. Rows are taken four at a time: a user's row is then
loaded once for four dot products, and a gradient is loaded and stored once for four additions.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# Without counting references to the arrays that are given. Not cached by themselves: numba would not notice in one
# file's cache that a function of another file, inlined there, has changed (see `kernels.compile_batches`).
_INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = {"nogil": True, "_nrt": False, **_INNER}
SUMS = {"reassoc", "contract", "nsz"}  # a dot product may be summed in vector lanes; always the same ones
INLINE = {**LOOP, "forceinline": True}
LINE = 16  # float32 numbers in a line of the cache


@numba.njit(**LOOP, fastmath=SUMS)
def dot(a: Any, at_a: Any, b: Any, at_b: Any, n: Any) -> Any:
    """The dot product of a row of a with a row of b."""
    total = np.float32(0.0)
    for k in range(n):
        total += a[at_a + k] * b[at_b + k]
    return total


@numba.njit(**INLINE, fastmath=SUMS)
def dot_four(out: Any, at: Any, row: Any, at_row: Any, table: Any, places: Any, shift: Any, n: Any) -> None:
    """The dot products of one row with four rows of a table."""
    a, b, c, d = (
        places[at] + shift,
        places[at + np.uint64(1)] + shift,
        places[at + np.uint64(2)] + shift,
        places[at + np.uint64(3)] + shift,
    )
    w = x = y = z = np.float32(0.0)
    for k in range(n):
        value = row[at_row + k]
        w += value * table[a + k]
        x += value * table[b + k]
        y += value * table[c + k]
        z += value * table[d + k]
    out[at], out[at + np.uint64(1)], out[at + np.uint64(2)], out[at + np.uint64(3)] = w, x, y, z


@numba.njit(**INLINE, fastmath=SUMS)
def add_four(
    out: Any, at: Any, shrink: Any, scales: Any, first: Any, table: Any, places: Any, shift: Any, n: Any
) -> None:
    """Out = shrink x out + the sum of four rows of a table, each times its scale."""
    second, third, fourth = first + np.uint64(1), first + np.uint64(2), first + np.uint64(3)
    w, x, y, z = scales[first], scales[second], scales[third], scales[fourth]
    a, b, c, d = (
        np.uint64(places[first]) + shift,
        np.uint64(places[second]) + shift,
        np.uint64(places[third]) + shift,
        np.uint64(places[fourth]) + shift,
    )
    for k in range(n):
        out[at + k] = shrink * out[at + k] + (
            (w * table[a + k] + x * table[b + k]) + (y * table[c + k] + z * table[d + k])
        )


@numba.njit(**LOOP, fastmath=SUMS)
def mend(
    out: Any, at: Any, scale: Any, old: Any, at_old: Any, rate: Any, gradient: Any, at_g: Any, n: Any
) -> None:
    """Out = scale x old + rate x gradient."""
    for k in range(n):
        out[at + k] = scale * old[at_old + k] + rate * gradient[at_g + k]


@intrinsic
def prefetch(typing_context: Any, array: Any, place: Any) -> Any:
    """Ask for the line of memory of array[place], without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, number(0), number(3), number(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@numba.njit(**INLINE)
def prefetch_row(table: Any, place: Any, n: Any) -> None:
    """Ask for a row that will be read soon: tables beyond the caches would make each read wait."""
    for k in range(np.uint64(0), n, np.uint64(LINE)):
        prefetch(table, place + k)
