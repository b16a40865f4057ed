"""Search spaces: the parameters of a model that are searched, each with a range or a list of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from truelike import randomness
from truelike.errors import ParameterError
from truelike.models.objective_names import BY_FLIP_RATE
from truelike.tuning.grids import Parameters
from truelike.tuning.references import plain
from truelike.tuning.variants import Model, learns_flips, variant


def default_space(model: Model, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the search space of a model's class without fixed parameters and those that have no effect.

    >>> default_space("ItemKNN", {})
    {'neighbors': (5, 500)}
    >>> default_space("ItemPop", {})
    {}
    """
    chosen = variant(model)
    made: Any = chosen.make(fixed)
    left_out = {*fixed, *chosen.parameters}
    if not learns_flips(made):
        left_out |= {"flip_factors", "flip_regularization"}
    if not has_flip_rate(made):
        left_out |= {"flip_rate"}
    return {name: axis for name, axis in made.search_space.items() if name not in left_out}


def usual_values(model: Model, space: Mapping[str, Any], fixed: Mapping[str, Any]) -> Parameters:
    """Return the defaults of the parameters of a search space; one that follows from the data is left out.

    >>> usual_values("IALS", default_space("IALS", {}), {})
    {'factors': 128}
    """
    usual: Any = variant(model).make(fixed).get_params()
    return {name: usual[name] for name in space if usual[name] is not None}


def has_flip_rate(model: Any) -> bool:
    """Whether the objective of a model has one flip rate for all items: ShiftMC and NBPR."""
    return str(getattr(model, "objective", None)).lower() in {name.lower() for name in BY_FLIP_RATE}


def checked_space(space: Mapping[str, Any]) -> dict[str, Any]:
    """Check each axis, and convert NumPy's numbers to Python's.

    >>> checked_space({"neighbors": [np.int64(5), np.int64(20)]})
    {'neighbors': [5, 20]}
    """
    found: dict[str, Any] = {}
    for name, axis in space.items():
        if isinstance(axis, list) and axis:
            found[name] = [plain(value) if isinstance(value, np.generic) else value for value in axis]
            continue
        is_range = isinstance(axis, tuple) and len(axis) == 2
        if not is_range or not all(isinstance(end, int | float | np.number) for end in axis) or axis[0] > axis[1]:
            raise ParameterError(
                f"search_space has {name}={axis!r}; give each parameter (low, high) or a list of values"
            )
        found[name] = tuple(plain(end) for end in axis)
    return found


def draw(space: Mapping[str, Any], seed: int, number: int) -> Parameters:
    """Draw a candidate. A range that spans a power of ten is drawn by its logarithm.

    >>> draw({"n_negatives": (1, 4), "factors": [8]}, seed=0, number=0)["factors"]
    8
    """
    found: Parameters = {}
    for place, (name, axis) in enumerate(sorted(space.items())):
        share = float(randomness.uniform(randomness.key(seed, "search", number), np.array([place]))[0])
        if isinstance(axis, list):
            found[name] = axis[int(share * len(axis))]
            continue
        low, high = axis
        if _is_integer(axis):
            linear = low + share * (high - low + 1)
            found[name] = int(low * ((high + 1) / low) ** share if _is_logarithmic(axis) else linear)
        elif _is_logarithmic(axis):
            found[name] = float(f"{low * (high / low) ** share:.4g}")
        else:
            found[name] = float(f"{low + share * (high - low):.4g}")
    return found


def suggest(trial: Any, space: Mapping[str, Any]) -> Parameters:
    """Return the candidate that an Optuna trial suggests."""
    found: Parameters = {}
    for name, axis in sorted(space.items()):
        if isinstance(axis, list):
            # by position: Optuna's categories are plain values, and ours may be classes
            found[name] = axis[trial.suggest_categorical(name, list(range(len(axis))))]
        elif _is_integer(axis):
            found[name] = trial.suggest_int(name, *axis, log=_is_logarithmic(axis))
        else:
            found[name] = float(f"{trial.suggest_float(name, *axis, log=_is_logarithmic(axis)):.4g}")
    return found


def _is_integer(axis: Any) -> bool:
    return isinstance(axis[0], int) and isinstance(axis[1], int)


def _is_logarithmic(axis: Any) -> bool:
    return bool(axis[0] > 0 and axis[1] / axis[0] >= 10)
