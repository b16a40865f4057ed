"""The parameters of a model of your own: one line gives the default, the range, the error message and the command line.

>>> from dataclasses import dataclass
>>> import truelike as tl
>>> @dataclass(kw_only=True, eq=False, repr=False)
... class Damped(tl.ItemPop):
...     damping: float = tl.parameters.number(0.5, low=0.0)
>>> Damped(damping=-1)
Traceback (most recent call last):
...
truelike.errors.ParameterError: Damped: damping is -1; it must be a number, at least 0.0
"""

from __future__ import annotations

from truelike.core.parameters import choice, flag, jobs, number, whole_number

__all__ = ["choice", "flag", "jobs", "number", "whole_number"]


def __dir__() -> list[str]:
    return sorted(__all__)
