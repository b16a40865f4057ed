"""Parameters of a model, declared once: default, allowed range, and the check that follows from them.

A model is a dataclass whose fields are its parameters:

    @dataclass(kw_only=True, eq=False)
    class ItemKNN(Recommender):
        neighbors: int = number(100, low=1)

The constructor assigns and checks; `get_params`, `repr`, the saved file and the command line read the
same fields.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Callable
from dataclasses import MISSING, Field, field, fields
from typing import Any

from truelike.errors import ParameterError


def number(default: float | None, *, low: float | None = None, high: float | None = None) -> Any:
    """A number within bounds, which are allowed themselves; None too where it is the default."""
    return field(default=default, metadata={"low": low, "high": high, "whole": False, "optional": default is None})


def whole_number(
    default: int | None, *, low: int | None = None, high: int | None = None, optional: bool = False
) -> Any:
    """A whole number within bounds; None too where it is the default or `optional` says so."""
    rule = {"low": low, "high": high, "whole": True, "optional": optional or default is None}
    return field(default=default, metadata=rule)


def choice(default: str | None, *others: str) -> Any:
    """One of a few words, the first being the default; None, where it is, is allowed but not offered."""
    return field(default=default, metadata={"choices": (default, *others)})


def special(default: Any, expected: str, accepts: Callable[[Any], bool]) -> Any:
    """Anything that a function accepts; `expected` says in words what that is."""
    return field(default=default, metadata={"accepts": accepts, "expected": expected})


def flag(default: bool | None) -> Any:
    """True or False; None too where it is the default."""
    return field(default=default, metadata={"flag": True, "optional": default is None})


def check(model: Any) -> None:
    """Raise an error that names the parameter, its value and what is allowed."""
    for parameter in fields(model):
        value = getattr(model, parameter.name)
        wrong = _wrong(parameter, value)
        if wrong:
            raise ParameterError(f"{type(model).__name__}: {parameter.name} is {value!r}; it must be {wrong}")


def _wrong(parameter: Field[Any], value: Any) -> str | None:
    """What the value must be, if it is not that."""
    rule = parameter.metadata
    if "choices" in rule:
        allowed = " or ".join(repr(word) for word in rule["choices"] if word is not None)
        return None if value in rule["choices"] else allowed
    if "accepts" in rule:
        return None if rule["accepts"](value) else str(rule["expected"])
    if "flag" in rule:
        return None if isinstance(value, bool) or (value is None and rule["optional"]) else "True or False"
    if "whole" not in rule or (value is None and rule["optional"]):
        return None
    kind = "a whole number" if rule["whole"] else "a number"
    low, high = rule["low"], rule["high"]
    bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
    expected = ", ".join([kind, " and ".join(bounds)] if bounds else [kind])
    if rule["optional"]:
        expected += ", or None"
    if not _is_number(value, whole=rule["whole"]):
        return expected
    return expected if (low is not None and value < low) or (high is not None and value > high) else None


def _is_number(value: Any, *, whole: bool) -> bool:
    if isinstance(value, bool):
        return False
    if whole:
        return isinstance(value, numbers.Integral)
    return isinstance(value, numbers.Real) and math.isfinite(float(value))


def parameters_of(model: Any) -> dict[str, Any]:
    """The parameters of a model, as plain values."""
    return {f.name: _plain(getattr(model, f.name)) for f in fields(model)}


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's own, which a file can hold."""
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, int, float)):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return value


def changed(model: Any) -> dict[str, Any]:
    """Only the parameters that differ from their defaults."""
    return {
        f.name: value
        for f in fields(model)
        if (value := _plain(getattr(model, f.name))) != f.default or f.default is MISSING
    }


def parse(model_class: type, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings from a command line or a TOML file, as the model's own types; a wrong name is an error."""
    known = {f.name: f for f in fields(model_class)}
    parsed = {}
    for name, value in settings.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise ParameterError(
                f"{model_class.__name__} has no parameter {name!r}{hint} It has {', '.join(known) or 'none'}."
            )
        parsed[name] = _from_text(known[name], value) if isinstance(value, str) else value
    return parsed


def _from_text(parameter: Field[Any], text: str) -> Any:
    rule = parameter.metadata
    if "flag" in rule:
        words = {"true": True, "false": False, **({"none": None} if rule["optional"] else {})}
        return words.get(text.lower(), text)
    if "whole" not in rule:
        return text
    if rule["optional"] and text.lower() == "none":
        return None
    try:
        return int(text) if rule["whole"] else float(text)
    except ValueError:
        return text  # the check names it and says what is allowed
