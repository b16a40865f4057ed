"""Parameters of a model, declared once: default, allowed range and check.

A model is a dataclass whose fields are its parameters:

    @dataclass(kw_only=True, eq=False)
    class ItemKNN(Recommender):
        neighbors: int = number(100, low=1)

The constructor assigns and checks; `get_params`, `repr`, the saved file and the command line read the
same fields.
"""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import lru_cache
from typing import Any, TypeVar

from truelike.errors import ParameterError

C = TypeVar("C")


def number(default: float | None, *, low: float | None = None, high: float | None = None) -> Any:
    """A number within bounds (inclusive); None is allowed if it is the default."""
    return field(default=default, metadata={"low": low, "high": high, "whole": False, "optional": default is None})


def whole_number(
    default: int | None, *, low: int | None = None, high: int | None = None, optional: bool = False
) -> Any:
    """A whole number within bounds; None is allowed if it is the default, or with `optional`."""
    rule = {"low": low, "high": high, "whole": True, "optional": optional or default is None}
    return field(default=default, metadata=rule)


def jobs() -> Any:
    """The parameter `n_jobs`: a number of threads; -1 is all cores, None is 1."""
    rule = {"accepts": _is_jobs, "expected": "a number of threads, -1 for all cores, or None for 1", "jobs": True}
    return field(default=-1, metadata=rule)


def _is_jobs(value: Any) -> bool:
    return value is None or (_is_number(value, whole=True) and value != 0)


def choice(default: str | None, *others: str) -> Any:
    """One of a few words; the first is the default."""
    return field(default=default, metadata={"choices": (default, *others)})


def special(default: Any, expected: str, accepts: Callable[[Any], bool]) -> Any:
    """Any value that a function accepts; `expected` describes it."""
    return field(default=default, metadata={"accepts": accepts, "expected": expected})


def flag(default: bool | None) -> Any:
    """True or False; None is allowed if it is the default."""
    return field(default=default, metadata={"flag": True, "optional": default is None})


def parameter_fields(model: Any) -> list[Field[Any]]:
    """The fields of a model or its class that are parameters."""
    return [f for f in fields(model) if f.init]


def preset(*, without: Collection[str] = (), **defaults: Any) -> Callable[[type[C]], type[C]]:
    """A class decorator: the parameters of the parent class with other defaults, `without` those that have no effect.

    The docstring gets the parent's description of the parameters, with the defaults of the preset.
    """

    def decorate(cls: type[C]) -> type[C]:
        inherited = cls.__dataclass_fields__  # type: ignore[attr-defined]
        for name, default in defaults.items():
            own: Any = field(default=default, metadata=dict(inherited[name].metadata))
            setattr(cls, name, own)
            cls.__annotations__[name] = inherited[name].type
        for name in without:
            default = defaults.get(name, inherited[name].default)
            setattr(cls, name, field(default=default, init=False, repr=False))
            cls.__annotations__[name] = inherited[name].type
        if "objective" in defaults:
            cls._only_objective = defaults["objective"]  # type: ignore[attr-defined]
        return with_inherited_parameters(dataclass(kw_only=True, eq=False, repr=False)(cls))

    return decorate


def with_inherited_parameters(cls: type[C]) -> type[C]:
    """A class decorator: add the parameters of base classes to the section "Parameters" of a dataclass's docstring.

    The parameters that the docstring describes itself come first. The others follow, as the nearest base class
    describes them, with the defaults of the class.
    """
    if cls.__doc__ is None:  # python -OO
        return cls
    own, inherited = inspect.cleandoc(cls.__doc__), {}
    for base in reversed(cls.__mro__[1:]):
        inherited.update(_described(inspect.cleandoc(base.__doc__ or "")))
    described = _described(own)
    for parameter in parameter_fields(cls):
        if parameter.name in inherited and parameter.name not in described:
            described[parameter.name] = _with_default(inherited[parameter.name], parameter.default)
    section = "\n".join(["Parameters", "----------", *described.values()])
    place = _SECTION.search(own) or _FIRST_SECTION.search(own)
    assert place is not None
    parts = (own[: place.start()].strip(), section, own[place.end() :].strip())
    cls.__doc__ = "\n\n".join(part for part in parts if part) + "\n"
    return cls


# in docstrings without indentation: a section is a title, a line of dashes, and all up to the next title
_SECTION = re.compile(r"^Parameters\n-+\n.*?(?=^\w[^\n]*\n---|\Z)", re.DOTALL | re.MULTILINE)
_FIRST_SECTION = re.compile(r"^(?=\w[^\n]*\n---)|\Z", re.MULTILINE)  # where the first section begins


def _described(docstring: str) -> dict[str, str]:
    """The entry of each parameter in the section "Parameters" of a docstring."""
    section = _SECTION.search(docstring)
    entries = re.split(r"\n(?=\w)", section[0].strip())[1:] if section else []
    return {entry.partition(" : ")[0]: entry.rstrip() for entry in entries}


def _with_default(entry: str, default: Any) -> str:
    """The entry of a parameter with another default: "name : type, default value" is its first line."""
    first, newline, text = entry.partition("\n")
    return f"{first.rpartition(', default ')[0]}, default {default!r}{newline}{text}"


def check_names(cls: type, given: Collection[str]) -> None:
    """Raise an error that names a parameter which the class does not have, and the nearest one that it has."""
    known = _arguments(cls)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for name in given:
        if name not in known:
            raise unknown_parameter(cls, name)


@lru_cache(maxsize=256)
def _arguments(cls: type) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(cls.__init__).parameters  # type: ignore[misc]


def unknown_parameter(cls: type, name: str) -> ParameterError:
    """The error for a parameter that a class does not have."""
    known = [f.name for f in parameter_fields(cls)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ParameterError(f"{cls.__name__} has no parameter {name!r}{hint} It has {', '.join(known) or 'none'}.")


def check(model: Any) -> None:
    """Raise an error that names the parameter, its value and what is allowed."""
    for parameter in parameter_fields(model):
        value = getattr(model, parameter.name)
        wrong = _wrong(parameter, value)
        if wrong:
            raise ParameterError(f"{type(model).__name__}: {parameter.name} is {value!r}; it must be {wrong}")


def _wrong(parameter: Field[Any], value: Any) -> str | None:
    """What the value must be if it is wrong, otherwise None."""
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
    return {f.name: _plain(getattr(model, f.name)) for f in parameter_fields(model)}


def _plain(value: Any) -> Any:
    """NumPy numbers as Python numbers, which JSON can hold."""
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, int, float)):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return value


def changed(model: Any) -> dict[str, Any]:
    """The parameters that differ from their defaults."""
    return {
        f.name: value
        for f in parameter_fields(model)
        if (value := _plain(getattr(model, f.name))) != f.default or f.default is MISSING
    }


def parse(model_class: type, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings from the command line or a TOML file, in the types of the parameters; an unknown name is an error."""
    known = {f.name: f for f in parameter_fields(model_class)}
    parsed = {}
    for name, value in settings.items():
        if name not in known:
            raise unknown_parameter(model_class, name)
        parsed[name] = _from_text(known[name], value) if isinstance(value, str) else value
    return parsed


def _number_or_text(accepts: Callable[[Any], bool], text: str) -> Any:
    """A number, where a parameter takes numbers but not this text."""
    try:
        value = float(text)
    except ValueError:
        return text
    return value if accepts(value) and not accepts(text) else text


def _from_text(parameter: Field[Any], text: str) -> Any:
    rule = parameter.metadata
    if "flag" in rule:
        words = {"true": True, "false": False, **({"none": None} if rule["optional"] else {})}
        return words.get(text.lower(), text)
    if "jobs" in rule:
        return int(text) if re.fullmatch(r"-?\d+", text) else None if text.lower() == "none" else text
    if "accepts" in rule:
        return _number_or_text(rule["accepts"], text)
    if "whole" not in rule:
        return text
    if rule["optional"] and text.lower() == "none":
        return None
    try:
        return int(text) if rule["whole"] else float(text)
    except ValueError:
        return text  # the check names it and says what is allowed
