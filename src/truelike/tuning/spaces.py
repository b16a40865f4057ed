"""What a search looks through: the parameters of a model, each with a range or a list of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from truelike import randomness
from truelike.errors import ParameterError
from truelike.models.naming import BY_FLIP_RATE
from truelike.tuning.grids import Parameters
from truelike.tuning.trials import Trial


def default_space(model: str, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """What the model's class says is worth a search, but what is fixed and what makes no difference to it.

    >>> default_space("ItemKNN", {})
    {'neighbors': (5, 500)}
    >>> default_space("ItemPop", {})
    {}
    """
    made: Any = Trial(model, dict(fixed)).make()
    left_out = set(fixed) | (set(made.space) - set(made.deciding_params()))
    if not getattr(made, "has_flips", False):
        left_out |= {"flip_factors", "flip_regularization"}
    if getattr(made, "objective", None) not in BY_FLIP_RATE:
        left_out |= {"flip_rate"}
    return {name: axis for name, axis in made.space.items() if name not in left_out}


def draw(space: Mapping[str, Any], seed: int, number: int) -> Parameters:
    """A candidate: each parameter drawn from its range, by logarithm where it spans a power of ten.

    >>> draw({"n_negatives": (1, 4), "factors": [8]}, seed=0, number=0)["factors"]
    8
    """
    found: Parameters = {}
    for place, (name, axis) in enumerate(sorted(space.items())):
        share = float(randomness.uniform(randomness.key(seed, "search", number), np.array([place]))[0])
        if isinstance(axis, list):
            found[name] = axis[int(share * len(axis))]
            continue
        low, high = _range(name, axis)
        if _whole(axis):
            even = low + share * (high - low + 1)
            found[name] = int(low * ((high + 1) / low) ** share if _by_logarithm(axis) else even)
        elif _by_logarithm(axis):
            found[name] = float(f"{low * (high / low) ** share:.4g}")
        else:
            found[name] = float(f"{low + share * (high - low):.4g}")
    return found


def plain(space: Mapping[str, Any]) -> dict[str, Any]:
    """With Python's own numbers, whatever they were given as: they are written as JSON."""

    def number(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else value

    return {
        name: type(axis)(number(value) for value in axis) if isinstance(axis, list | tuple) else axis
        for name, axis in space.items()
    }


def _range(name: str, axis: Any) -> tuple[Any, Any]:
    if not isinstance(axis, tuple) or len(axis) != 2 or not axis[0] <= axis[1]:
        raise ParameterError(f"the space of {name} is {axis!r}; it is (low, high), or a list of values")
    return axis


def _whole(axis: Any) -> bool:
    return isinstance(axis[0], int) and isinstance(axis[1], int)


def _by_logarithm(axis: Any) -> bool:
    return bool(axis[0] > 0 and axis[1] / axis[0] >= 10)


def suggest(trial: Any, space: Mapping[str, Any]) -> Parameters:
    """A candidate as an Optuna trial proposes it."""
    found: Parameters = {}
    for name, axis in sorted(space.items()):
        if isinstance(axis, list):
            found[name] = trial.suggest_categorical(name, axis)
        elif _whole(_range(name, axis)):
            found[name] = trial.suggest_int(name, *axis, log=_by_logarithm(axis))
        else:
            found[name] = float(f"{trial.suggest_float(name, *axis, log=_by_logarithm(axis)):.4g}")
    return found
