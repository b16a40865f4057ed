"""Compile the functions of an objective to loops over arrays.

An engine gets a pointer to such a loop. So the engine is compiled once for all objectives, and a new objective
costs only the compilation of a short loop.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from truelike import objectives
from truelike.core.compile_cache import FAST_SUMS, INLINE, cached_njit, uniquely_named
from truelike.errors import ParameterError
from truelike.objectives import Objective, Pairwise, Pointwise

# of arrays r and g, or r_j and r_i, and of the first and the last element
STEPS_SIGNATURE = types.void(*[types.float32[::1]] * 2, types.uint64, types.uint64)
BUILT_IN = (objectives.__name__, "truelike.negatives")  # modules of functions that are compiled
# error_model "numpy": a division that may raise an exception cannot be vectorised
ARITHMETIC = {**INLINE, "fastmath": FAST_SUMS, "error_model": "numpy"}


@overload(objectives.sigmoid, jit_options=ARITHMETIC)
def _sigmoid(x):
    """Compute 1/2 + 1/2 tanh(x/2), tanh(h) being h times a ratio of polynomials in h^2. The error is below 2e-7.

    exp would take three times as long. The compiler also sees that sigmoid(x) and sigmoid(-x) share the ratio.
    """

    def rational(x):
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


@overload(objectives.log, jit_options=ARITHMETIC)
def _log(x):
    """Compute the logarithm of a number, or of the smallest positive one where it is 0."""
    tiny = np.finfo(np.float32).tiny
    return lambda x: np.log(max(x, tiny))


@lru_cache(maxsize=64)
def compiled_steps(objective: type[Objective]) -> tuple[Any, Any]:
    """Return the compiled steps of an objective, for positives and for negatives.

    For a pairwise objective both are the steps of pairs.
    """
    if issubclass(objective, Pairwise):
        pairs = compile_steps(objective.pair, pairwise=True)
        return pairs, pairs
    if not issubclass(objective, Pointwise):
        raise ParameterError(f"the objective {objective.__name__} is neither pointwise nor pairwise")
    return compile_steps(objective.positive), compile_steps(objective.negative)


def compile_steps(function: Any, *, pairwise: bool = False) -> Any:
    """Compile a function of an objective to a loop that replaces r and g (or r_j and r_i) by their steps."""
    inlined = register_jitable(**ARITHMETIC)(function)

    def pointwise_steps(r, g, start, stop):
        for k in range(start, stop):
            r[k], g[k] = inlined(r[k], g[k])

    def pairwise_steps(r_j, r_i, start, stop):
        for k in range(start, stop):
            r_i[k], r_j[k] = inlined(r_i[k], r_j[k])

    return compile_around(function, pairwise_steps if pairwise else pointwise_steps, STEPS_SIGNATURE)


def compile_around(function: Any, wrapper: Any, signature: Any, *constants: Any) -> Any:
    """Compile what inlines a function, and constants. It is kept on disk if the function is of this library."""
    code = function.__code__
    equation = (function.__qualname__, code.co_code, code.co_consts, code.co_names)
    bound = [cell.cell_contents for cell in function.__closure__ or ()]
    builtin = function.__module__ in BUILT_IN  # a user's own function may call others that change
    options = {"nogil": True, "_nrt": False, "fastmath": FAST_SUMS, "error_model": "numpy"}
    njit = cached_njit if builtin else numba.njit
    return njit(signature, **options)(uniquely_named(wrapper, equation, bound, *constants))


def reason(error: Exception) -> str:
    """The line of numba's error that says why a function cannot be compiled: that of the innermost function."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [after for line, after in pairwise(lines) if "Failed in nopython mode" in line]
    return named[-1] if named else lines[0]
