"""An objective's equations as compiled loops, so that the engine is compiled once for all objectives."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from truelike import objectives
from truelike.training.rows import INLINE, SUMS

STEPS = types.void(types.float32[::1], types.float32[::1], types.uint64, types.uint64)
_ARITHMETIC = {**INLINE, "fastmath": SUMS, "error_model": "numpy"}  # a division that may raise is no vector's


@overload(objectives.sigmoid, jit_options=_ARITHMETIC)
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


def compile_steps(function: Any, *, pairwise: bool = False) -> Any:
    """A function of an objective as a loop over arrays: r and g (or r_j and r_i) become their steps, in place."""
    inlined = register_jitable(**_ARITHMETIC)(function)

    def pointwise_steps(r: Any, g: Any, start: Any, stop: Any) -> None:
        for k in range(start, stop):
            r[k], g[k] = inlined(r[k], g[k])

    def pairwise_steps(r_j: Any, r_i: Any, start: Any, stop: Any) -> None:
        for k in range(start, stop):
            r_i[k], r_j[k] = inlined(r_i[k], r_j[k])

    loop = pairwise_steps if pairwise else pointwise_steps
    code = function.__code__
    equation = (function.__qualname__, code.co_code, code.co_consts, code.co_names)
    bound = [cell.cell_contents for cell in function.__closure__ or ()]
    ours = function.__module__ == objectives.__name__  # what others write may change without a trace
    return numba.njit(STEPS, nogil=True, _nrt=False, cache=ours, fastmath=SUMS, error_model="numpy")(
        named(loop, equation, bound)
    )


def named(function: Any, *what: Any) -> Any:
    """A function by a name that numba's cache on disk cannot take for another's.

    numba finds a compiled function by its name and notices a change of its own file only, not of what is inlined
    from other files; and its own numbering of functions of one name starts anew in each process. So the name
    says all that the function was made of.
    """
    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    mark = hashlib.sha256(b"".join(sources) + repr(what).encode()).hexdigest()[:16]
    function.__name__ = function.__qualname__ = f"{function.__code__.co_name}_{mark}"
    return function
