"""The search space: the parameters of a model that are searched, each with a range or a list of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from truelike.core import randomness
from truelike.errors import ParameterError
from truelike.models.objective_names import BY_FLIP_RATE
from truelike.selection.references import plain
from truelike.selection.variants import Parameters, Variant, learns_flips

Range = tuple[float, float]
Axis = list[Any] | Range


@dataclass(frozen=True)
class SearchSpace:
    """Parameters with their axes: (low, high) is a range, a list is a choice.

    Examples
    --------
    >>> SearchSpace.given({"neighbors": [np.int64(5), np.int64(20)]}).axes
    {'neighbors': [5, 20]}
    """

    axes: dict[str, Axis]

    def __bool__(self) -> bool:
        return bool(self.axes)

    @classmethod
    def of(cls, model: Variant, fixed: Parameters) -> SearchSpace:
        """The space of a model's class without fixed parameters and those that have no effect.

        >>> from truelike.selection.variants import variant
        >>> SearchSpace.of(variant("ItemKNN"), {}).axes
        {'neighbors': (5, 500)}
        """
        made = model.make(fixed)
        left_out = {*fixed, *model.parameters}
        if not learns_flips(made):
            left_out |= {"flip_factors", "flip_regularization"}
        if str(getattr(made, "objective", None)).lower() not in {name.lower() for name in BY_FLIP_RATE}:
            left_out |= {"flip_rate"}
        return cls({name: axis for name, axis in made.search_space.items() if name not in left_out})

    @classmethod
    def given(cls, space: Mapping[str, Any]) -> SearchSpace:
        """The space that a user gave, after checking each axis."""
        axes: dict[str, Axis] = {}
        for name, axis in space.items():
            if isinstance(axis, list) and axis:
                axes[name] = [plain(value) if isinstance(value, np.generic) else value for value in axis]
                continue
            is_range = isinstance(axis, tuple) and len(axis) == 2
            numbers = is_range and all(isinstance(end, int | float | np.number) for end in axis)
            if not numbers or axis[0] > axis[1]:
                raise ParameterError(
                    f"search_space has {name}={axis!r}; give each parameter (low, high) or a list of values"
                )
            axes[name] = plain(axis[0]), plain(axis[1])
        return cls(axes)

    def defaults(self, model: Variant, fixed: Parameters) -> Parameters:
        """The defaults of the searched parameters; one that follows from the data is left out.

        >>> from truelike.selection.variants import variant
        >>> SearchSpace.of(variant("IALS"), {}).defaults(variant("IALS"), {})
        {'factors': 128}
        """
        usual = model.make(fixed).get_params()
        return {name: usual[name] for name in self.axes if usual[name] is not None}

    def draw(self, seed: int, number: int) -> Parameters:
        """Draw a candidate. A range that spans a power of ten is drawn by its logarithm.

        >>> SearchSpace({"n_negatives": (1, 4), "factors": [8]}).draw(seed=0, number=0)["factors"]
        8
        """
        found: Parameters = {}
        for place, (name, axis) in enumerate(sorted(self.axes.items())):
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

    def suggest(self, study_trial: Any) -> Parameters:
        """Return the candidate that a trial of Optuna suggests."""
        found: Parameters = {}
        for name, axis in sorted(self.axes.items()):
            if isinstance(axis, list):
                # by position: Optuna's categories are plain values, and ours may be classes
                found[name] = axis[study_trial.suggest_categorical(name, list(range(len(axis))))]
            elif _is_integer(axis):
                found[name] = study_trial.suggest_int(name, *axis, log=_is_logarithmic(axis))
            else:
                found[name] = float(f"{study_trial.suggest_float(name, *axis, log=_is_logarithmic(axis)):.4g}")
        return found


def _is_integer(axis: Range) -> bool:
    return isinstance(axis[0], int) and isinstance(axis[1], int)


def _is_logarithmic(axis: Range) -> bool:
    return bool(axis[0] > 0 and axis[1] / axis[0] >= 10)
