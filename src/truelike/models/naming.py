"""Objectives by their names, as parameters, files and the command line have them."""

from __future__ import annotations

from typing import Any, cast

from truelike import objectives
from truelike.errors import ParameterError

OBJECTIVES: dict[str, Any] = {
    "BPO": objectives.BPO,
    "BPR": objectives.BPR,
    "NBPO": objectives.NBPO,
    "NBPO-s": objectives.NBPOs,
    "NBPO-o": objectives.NBPOo,
    "softmax": objectives.Softmax,
}
BY_FLIP_RATE: dict[str, Any] = {"ShiftMC": objectives.shift_mc, "NBPR": objectives.noisy_bpr}
KNOWN = (*OBJECTIVES, *BY_FLIP_RATE)
EXPECTED = f"one of {', '.join(KNOWN)}, or a Pointwise, Pairwise or Listwise class"
OWN = "own: "  # what is saved in place of a class of the user's own


def is_objective(value: Any) -> bool:
    """Whether a value names an objective, or is one."""
    if isinstance(value, type):
        return issubclass(value, (objectives.Pointwise, objectives.Pairwise, objectives.Listwise))
    return value is None or value in KNOWN or str(value).startswith(OWN)


def kind_of(value: Any) -> type[objectives.Objective]:
    """The class that a name stands for, as far as the name alone tells."""
    if isinstance(value, type) and issubclass(value, objectives.Objective):
        return value
    kind = BY_FLIP_RATE[value](0.0) if value in BY_FLIP_RATE else OBJECTIVES.get(value, objectives.Objective)
    return cast(type[objectives.Objective], kind)


def objective(value: Any, flip_rate: float) -> type[objectives.Objective]:
    """The class to train by."""
    if str(value).startswith(OWN):
        raise ParameterError(
            f"the objective {value.removeprefix(OWN)!r} is a class of your own: no file carries it. "
            "The model can recommend as it is; to go on training, set model.objective to the class."
        )
    made: type[objectives.Objective] = BY_FLIP_RATE[value](flip_rate) if value in BY_FLIP_RATE else kind_of(value)
    return made


def saved_name(value: Any) -> Any:
    """What stands in a file."""
    if not isinstance(value, type):
        return value
    known = {kind: name for name, kind in OBJECTIVES.items()}
    return known.get(value, f"{OWN}{value.__name__}")
