"""A barrier for compiled threads: all wait until all have come.

Python's own barrier costs a tenth of a millisecond, as much as a small batch; numba's parallel loops cost
tens of seconds of compilation. This one is an atomic counter: whoever comes adds one, and waits until the
counter has passed the next multiple of the number of threads, giving way to others meanwhile.
"""

from __future__ import annotations

import sys
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from truelike.training.rows import LOOP

_give_way = types.ExternalFunction("SwitchToThread" if sys.platform == "win32" else "sched_yield", types.intc())
_SPINS = 2_000  # looks at the counter before giving way: longer than a batch's imbalance on free cores


@intrinsic
def add_atomically(typing_context: Any, counter: Any, amount: Any) -> Any:
    """Add to counter[0], an int64, as one indivisible step; give what was there before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        first = cgutils.get_item_pointer(
            context, builder, signature.args[0], array, [ir.Constant(ir.IntType(64), 0)]
        )
        return builder.atomic_rmw("add", first, arguments[1], "seq_cst")

    return types.int64(counter, types.int64), generate


@numba.njit(**LOOP)
def meet(counter: Any, threads: Any) -> None:
    """Wait until all threads have come here once more."""
    if threads == 1:
        return
    before = add_atomically(counter, 1)
    until = (before // threads + 1) * threads
    spins = 0
    while add_atomically(counter, 0) < until:
        spins += 1
        if spins > _SPINS:
            _give_way()
