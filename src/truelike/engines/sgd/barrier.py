"""A barrier for compiled threads: each waits until all have arrived.

Python's barrier costs a tenth of a millisecond, as much as a small batch. numba's parallel loops cost tens of
seconds of compilation. This barrier is an atomic counter: a thread that arrives adds one, and waits until the
counter has reached the next multiple of the number of threads. `abort` sets all counters beyond all multiples, so that
no thread waits for one that failed, was interrupted or never started. Threads also look for it between pieces of a
large batch.
"""

from __future__ import annotations

import sys

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from truelike.core.arrays import Counts
from truelike.core.compile_cache import LOOP

_yield_processor = types.ExternalFunction(
    "SwitchToThread" if sys.platform == "win32" else "sched_yield", types.intc()
)
ABORTED = 1 << 62  # a counter that no work reaches
_SPINS = 2_000  # reads of the counter before yielding: longer than threads on free cores wait for each other


@intrinsic
def add_atomically(typing_context, counter, amount):
    """Add to counter[0] (int64) atomically, and return the previous value."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        first = cgutils.get_item_pointer(
            context, builder, signature.args[0], array, [ir.Constant(ir.IntType(64), 0)]
        )
        return builder.atomic_rmw("add", first, arguments[1], "seq_cst")

    return types.int64(counter, types.int64), generate


@numba.njit(**LOOP)
def aborted(counter):
    """Return whether the work was aborted."""
    return add_atomically(counter, 0) >= ABORTED


@numba.njit(**LOOP)
def wait(counter, threads):
    """Wait until all threads have called this function once more; False if the work was aborted meanwhile."""
    if threads == 1:
        return not aborted(counter)
    before = add_atomically(counter, 1)
    if before >= ABORTED:
        return False
    until = (before // threads + 1) * threads
    spins = 0
    now = add_atomically(counter, 0)
    while now < until:
        spins += 1
        if spins > _SPINS:
            _yield_processor()
        now = add_atomically(counter, 0)
    return now < ABORTED


def abort(counters: Counts) -> None:
    """Let all threads that wait or take work, now or later, return at once: one failed, or will never come."""
    counters[:, 0] = ABORTED
