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


@dataclass(frozen=True)
class Rule:
    """What a parameter may be, in words and as a function, and how its text is read.

    Text that cannot be read stays text: the check names it and says what is allowed.
    """

    accepts: Callable[[Any], bool]
    expected: str
    read: Callable[[str], Any] = str

    def field(self, default: Any, **facts: Any) -> Any:
        """The field of a parameter. The facts are for those who list parameters."""
        return field(default=default, metadata={"rule": self, **facts})

    @classmethod
    def numeric(cls, kind: type[int | float], low: float | None, high: float | None, optional: bool) -> Rule:
        """The rule of a number or a whole number within bounds (inclusive)."""
        bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
        word = "a whole number" if kind is int else "a number"
        expected = (
            f"{', '.join([word, ' and '.join(bounds)] if bounds else [word])}{', or None' if optional else ''}"
        )

        def accepts(value: Any) -> bool:
            if value is None or not _is_number(value, whole=kind is int):
                return value is None and optional
            return (low is None or value >= low) and (high is None or value <= high)

        def read(text: str) -> Any:
            try:
                return None if optional and text.lower() == "none" else kind(text)
            except ValueError:
                return text

        return cls(accepts, expected, read)


def number(default: float | None, *, low: float | None = None, high: float | None = None) -> Any:
    """A number within bounds.

    Parameters
    ----------
    default
        The default; if it is None, None is allowed.
    low, high
        The least and the greatest value that is allowed; None: no bound.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import truelike as tl
    >>> @dataclass(kw_only=True, eq=False, repr=False)
    ... class Own(tl.ItemPop):
    ...     damping: float = tl.parameters.number(0.5, low=0.0)
    >>> Own(damping=-1)
    Traceback (most recent call last):
    ...
    truelike.errors.ParameterError: Own: damping is -1; it must be a number, at least 0.0
    """
    optional = default is None
    return Rule.numeric(float, low, high, optional).field(
        default, whole=False, optional=optional, low=low, high=high
    )


def whole_number(
    default: int | None, *, low: int | None = None, high: int | None = None, optional: bool = False
) -> Any:
    """A whole number within bounds.

    Parameters
    ----------
    default
        The default; if it is None, None is allowed.
    low, high
        The least and the greatest value that is allowed; None: no bound.
    optional
        Whether None is allowed.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import truelike as tl
    >>> @dataclass(kw_only=True, eq=False, repr=False)
    ... class Own(tl.ItemPop):
    ...     factors: int = tl.parameters.whole_number(64, low=1)
    >>> Own(factors=0.5)
    Traceback (most recent call last):
    ...
    truelike.errors.ParameterError: Own: factors is 0.5; it must be a whole number, at least 1
    """
    optional = optional or default is None
    return Rule.numeric(int, low, high, optional).field(default, whole=True, optional=optional, low=low, high=high)


def jobs() -> Any:
    """The parameter `n_jobs`: a number of threads; -1, the default, is all cores, None is 1.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import truelike as tl
    >>> @dataclass(kw_only=True, eq=False, repr=False)
    ... class Own(tl.ItemPop):
    ...     n_jobs: int | None = tl.parameters.jobs()
    >>> Own(n_jobs=0)
    Traceback (most recent call last):
    ...
    truelike.errors.ParameterError: Own: n_jobs is 0; it must be a number of threads, -1 for all cores, or None for 1
    """

    def accepts(value: Any) -> bool:
        return value is None or (_is_number(value, whole=True) and value != 0)

    expected = "a number of threads, -1 for all cores, or None for 1"
    read = Rule.numeric(int, None, None, optional=True).read
    return Rule(accepts, expected, read).field(-1, accepts=accepts, expected=expected)


def choice(default: str | None, *others: str) -> Any:
    """One of a few words.

    Parameters
    ----------
    default, *others
        The words. The first is the default; it may be None.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import truelike as tl
    >>> @dataclass(kw_only=True, eq=False, repr=False)
    ... class Own(tl.ItemPop):
    ...     kind: str = tl.parameters.choice("sum", "mean")
    >>> Own(kind="max")
    Traceback (most recent call last):
    ...
    truelike.errors.ParameterError: Own: kind is 'max'; it must be 'sum' or 'mean'
    """
    words = (default, *others)
    expected = " or ".join(repr(word) for word in words if word is not None)
    return Rule(words.__contains__, expected).field(default, choices=words)


def special(default: Any, expected: str, accepts: Callable[[Any], bool]) -> Any:
    """Any value that a function accepts; `expected` describes it."""

    def read(text: str) -> Any:
        """A number, where a parameter takes numbers but not this text."""
        try:
            value = float(text)
        except ValueError:
            return text
        return value if accepts(value) and not accepts(text) else text

    return Rule(accepts, expected, read).field(default, accepts=accepts, expected=expected)


def flag(default: bool | None) -> Any:
    """True or False.

    Parameters
    ----------
    default
        The default; if it is None, None is allowed.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import truelike as tl
    >>> @dataclass(kw_only=True, eq=False, repr=False)
    ... class Own(tl.ItemPop):
    ...     quick: bool = tl.parameters.flag(False)
    >>> Own(quick=1)
    Traceback (most recent call last):
    ...
    truelike.errors.ParameterError: Own: quick is 1; it must be True or False
    """
    optional = default is None
    words = {"true": True, "false": False, **({"none": None} if optional else {})}

    def accepts(value: Any) -> bool:
        return isinstance(value, bool) or (value is None and optional)

    return Rule(accepts, "True or False", lambda text: words.get(text.lower(), text)).field(default, flag=True)


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
    for each in cls.__mro__:
        for name, value in vars(each).items():
            if isinstance(value, Field) and name not in getattr(cls, "__dataclass_fields__", {}):
                raise unknown_parameter(cls, name)
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
    for each in cls.__mro__:
        if forgotten(each, name):
            return ParameterError(
                f"{cls.__name__} has no parameter {name!r}, as {each.__name__} is not a dataclass: write "
                f"@dataclass(kw_only=True, eq=False, repr=False) above `class {each.__name__}`"
            )
    known = [f.name for f in parameter_fields(cls)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ParameterError(f"{cls.__name__} has no parameter {name!r}{hint} It has {', '.join(known) or 'none'}.")


def forgotten(cls: type, name: str) -> bool:
    """Return whether a class annotates a name, and is no dataclass that would make a field of it."""
    return "__dataclass_fields__" not in vars(cls) and name in inspect.get_annotations(cls)


def check(model: Any) -> None:
    """Raise an error that names the parameter, its value and what is allowed. NumPy numbers become Python numbers.

    A small NumPy number overflows where a Python number does not, e.g. -np.uint8(3).
    """
    for parameter in parameter_fields(model):
        value, rule = getattr(model, parameter.name), parameter.metadata.get("rule")
        if rule is not None and not rule.accepts(value):
            name = type(model).__name__
            raise ParameterError(f"{name}: {parameter.name} is {value!r}; it must be {rule.expected}")
        if (plain := _plain(value)) is not value:
            object.__setattr__(model, parameter.name, plain)  # some classes are frozen


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
        rule = known[name].metadata.get("rule")
        parsed[name] = rule.read(value) if rule is not None and isinstance(value, str) else value
    return parsed
