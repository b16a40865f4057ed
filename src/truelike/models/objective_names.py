"""Objectives by name, as parameters, files and the command line give them. Names ignore case."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, cast

import numpy as np

from truelike import objectives
from truelike.errors import ParameterError, TrainingWarning, warn
from truelike.objectives.checker import contradiction

OBJECTIVES: dict[str, Any] = {
    "BPO": objectives.BPO,
    "BPR": objectives.BPR,
    "NBPO": objectives.NBPO,
    "NBPO-s": objectives.NBPOs,
    "NBPO-o": objectives.NBPOo,
    "NBPO-lb": objectives.NBPOlb,
    "softmax": objectives.Softmax,
}
BY_FLIP_RATE: dict[str, Any] = {"ShiftMC": objectives.shift_mc, "NBPR": objectives.noisy_bpr}
KNOWN = (*OBJECTIVES, *BY_FLIP_RATE)
OWN = "own: "  # is saved in place of a class of the user's own


def known_name(value: str) -> str:
    """The name as it is spelled here, if it is known.

    >>> known_name("bpr"), known_name("nbpo-S")
    ('BPR', 'NBPO-s')
    """
    return next((name for name in KNOWN if name.lower() == value.lower()), value)


def is_sampled(value: Any) -> bool:
    """Whether a value is, or names, an objective that can be trained on sampled negatives."""
    return is_objective(value) and not issubclass(kind_of(value), objectives.Listwise)


def is_exact(value: Any) -> bool:
    """Whether a value is, or names, an objective that can be trained on all items."""
    return is_objective(value) and not issubclass(kind_of(value), objectives.Pairwise)


def is_listwise(value: Any) -> bool:
    """Whether a value is, or may name, a listwise objective."""
    own = isinstance(value, str) and value.startswith(OWN)
    return own or (is_objective(value) and issubclass(kind_of(value), objectives.Listwise))


def is_objective(value: Any) -> bool:
    """Whether a value is, or names, an objective of any kind."""
    if isinstance(value, type):
        return issubclass(value, (objectives.Pointwise, objectives.Pairwise, objectives.Listwise))
    return isinstance(value, str) and (known_name(value) in KNOWN or value.startswith(OWN))


def kind_of(value: Any) -> type[objectives.Objective]:
    """The class that a name stands for, as far as the name alone tells."""
    if isinstance(value, type) and issubclass(value, objectives.Objective):
        return value
    name = known_name(str(value))
    kind = BY_FLIP_RATE[name](0.0) if name in BY_FLIP_RATE else OBJECTIVES.get(name, objectives.Objective)
    return cast(type[objectives.Objective], kind)


def objective(value: Any, flip_rate: float) -> type[objectives.Objective]:
    """The class to train by."""
    if isinstance(value, str) and value.startswith(OWN):
        raise ParameterError(
            f"the objective {value.removeprefix(OWN)!r} is a class of your own, which no file holds. To train the "
            "model or to serve new users, load it with tl.load(directory, objective=...)."
        )
    if isinstance(value, type):
        _check_class(value)
    name = known_name(value) if isinstance(value, str) else value
    made: type[objectives.Objective] = BY_FLIP_RATE[name](flip_rate) if name in BY_FLIP_RATE else kind_of(value)
    return made


@lru_cache(maxsize=256)
def _check_class(kind: type[objectives.Objective]) -> None:
    """Check a class, once; warn if its steps contradict its likelihood. Tests check those of the library."""
    _check_functions(kind)
    if kind.__module__.partition(".")[0] == "truelike":
        return
    try:
        problem = contradiction(kind)
    except Exception as error:
        raise ParameterError(f"the likelihood of the objective {kind.__name__} failed: {error}") from error
    if problem:
        warn(
            f"the objective {kind.__name__} trains by its steps, which are not the gradient of its likelihood. "
            f"{problem}. See tl.objectives.check({kind.__name__}). If it is on purpose, say why in the class: "
            "surrogate = '...'",
            TrainingWarning,
        )


def _check_functions(kind: type[objectives.Objective]) -> None:
    """Call the functions of an objective once, so that a mistake in them is found before they are compiled."""
    r = np.array([[0.5, -0.5, 0.1], [-0.3, 0.2, 0.4]], dtype=np.float32)
    observed = np.array([[1, 0, 0], [0, 1, 1]], dtype=np.float32)
    calls: dict[str, Any] = {"steps(r, observed)": (r, observed)} if issubclass(kind, objectives.Listwise) else {}
    if issubclass(kind, objectives.Pairwise):
        calls = {"pair(r_i, r_j)": (r, -r)}
    elif issubclass(kind, objectives.Pointwise):
        calls = {"positive(r, g)": (r, -r), "negative(r, g)": (r, -r)}
    for call, arguments in calls.items():
        function = getattr(kind, call.partition("(")[0])
        if len(inspect.signature(function).parameters) > 2:
            raise ParameterError(
                f"{call} of the objective {kind.__name__} takes {inspect.signature(function)}; an objective gets two "
                "arrays and no propensities. Write a @staticmethod of two arguments; guesses of what was shown are in "
                "tl.ExposureMF."
            )
        try:
            found = function(*arguments)
        except NotImplementedError:
            raise ParameterError(f"the objective {kind.__name__} has no function {call}") from None
        except Exception as error:
            raise ParameterError(f"{call} of the objective {kind.__name__} failed: {error}") from error
        if issubclass(kind, objectives.Listwise):
            fits = getattr(found, "shape", None) == r.shape
        else:
            fits = isinstance(found, tuple) and len(found) == 2
        if not fits:
            expected = "an array like r" if issubclass(kind, objectives.Listwise) else "two steps"
            raise ParameterError(f"{call} of the objective {kind.__name__} must return {expected}, not {found!r}")


def saved_name(value: Any) -> Any:
    """What is written to a file."""
    if not isinstance(value, type):
        return value
    known = {kind: name for name, kind in OBJECTIVES.items()}
    return known.get(value, f"{OWN}{value.__name__}")


SAMPLED = f"one of {', '.join(filter(is_sampled, KNOWN))}, or a Pointwise or Pairwise class"
EXACT = f"one of {', '.join(filter(is_exact, KNOWN))}, or a Pointwise or Listwise class"
ANY = f"one of {', '.join(KNOWN)}, or a Pointwise, Pairwise or Listwise class"
LISTS = f"{' or '.join(filter(is_listwise, KNOWN))}, or a Listwise class"
