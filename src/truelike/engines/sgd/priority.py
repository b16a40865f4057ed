"""Compile the priority of a sampler, which chooses the negative among the candidates.

As an objective, it reaches the training loops as a pointer, so they are compiled once for all samplers.
"""

from __future__ import annotations

import numbers
from collections import namedtuple
from functools import lru_cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import register_jitable

from truelike.errors import ParameterError
from truelike.negatives import CHOICE_RULES, Negatives, check_choice
from truelike.objectives.compiler import ARITHMETIC, compile_around, reason

PRIORITY_SIGNATURE = types.float32(types.float32, types.float32, types.float32)


def compiled_priority(negatives: Negatives) -> Any:
    """Return the compiled priority of a sampler. An error says why it cannot choose.

    Where there is one candidate, nothing is chosen, and it is that of the base class.
    """
    check_choice(negatives, np.asarray)
    priority = negatives.priority if negatives.draws > 1 else Negatives().priority
    sampler, function = getattr(priority, "__self__", negatives), getattr(priority, "__func__", priority)
    found = {name: getattr(sampler, name, None) for name in function.__code__.co_names if name[0] != "_"}
    fields = tuple((name, value) for name, value in found.items() if isinstance(value, numbers.Real))
    try:
        return _compiled(function, fields)
    except Exception as error:
        raise ParameterError(
            f"priority(r_i, r_j, u) of {sampler!r} cannot be compiled: {reason(error)}. {CHOICE_RULES}"
        ) from error


@lru_cache(maxsize=64)
def _compiled(function: Any, fields: tuple[tuple[str, Any], ...]) -> Any:
    """Compile a function of a sampler and three numbers, with the fields of the sampler as constants."""
    inlined = register_jitable(**ARITHMETIC)(function)
    constants = namedtuple("Sampler", [name for name, _ in fields])(*(value for _, value in fields))

    def priority(r_i, r_j, u):  # type: ignore[no-untyped-def]
        return inlined(constants, r_i, r_j, u)

    return compile_around(function, priority, PRIORITY_SIGNATURE, fields)
