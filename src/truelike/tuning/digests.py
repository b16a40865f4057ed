"""Digests of classes and functions, by which the trials of different versions of one are told apart.

A digest covers the byte code of a function with its defaults and the values that it closes over, and all
attributes of a class, also those that it inherits from other classes of the user. Files and line numbers do not
matter. Objects that a class refers to by a global name are not covered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property, lru_cache, partial
from types import CodeType, FunctionType
from typing import Any

import numpy as np

IGNORED = {
    "__abstractmethods__", "__annotations__", "__dataclass_fields__", "__dataclass_params__", "__dict__",
    "__doc__", "__firstlineno__", "__module__", "__static_attributes__", "__weakref__", "_abc_impl",
}  # fmt: skip


@lru_cache(maxsize=256)
def digest(value: Any) -> str:
    """Digest a class or a function. Of those of truelike only the name counts.

    >>> digest(dict) == digest(dict) != digest(list)
    True
    """
    text = "\n".join(_describe(value, set()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def is_own(value: Any) -> bool:
    """Whether a class or a function is defined outside truelike.

    >>> is_own(digest), is_own(dict)
    (False, True)
    """
    return str(getattr(value, "__module__", "")).partition(".")[0] != "truelike"


def _describe(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield lines that are the same for the same definition, in any process."""
    value = _unwrapped(value)
    if isinstance(value, list | tuple):
        for each in value:
            yield from _describe(each, seen)
    elif isinstance(value, dict):
        yield from _describe(sorted(value.items(), key=lambda item: str(item[0])), seen)
    elif isinstance(value, set | frozenset):
        yield from sorted(map(repr, value))
    elif isinstance(value, bool | int | float | complex | str | bytes | np.generic | type(None) | type(...)):
        yield repr(value)
    elif isinstance(value, CodeType):
        yield from (value.co_code.hex(), *value.co_names)
        yield from _describe(value.co_consts, seen)
    elif isinstance(value, type | FunctionType):
        yield from _describe_definition(value, seen)
    else:
        yield _name(type(value))


def _unwrapped(value: Any) -> Any:
    """The functions inside a method, a property or a partial function; other values as they are."""
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    if isinstance(value, property):
        return (value.fget, value.fset)
    if isinstance(value, cached_property):
        return value.func
    return (value.func, value.args, value.keywords) if isinstance(value, partial) else value


def _describe_definition(value: Any, seen: set[int]) -> Iterator[str]:
    yield _name(value)
    if id(value) in seen or not is_own(value):  # a method that uses super() closes over its own class
        return
    seen.add(id(value))
    if isinstance(value, FunctionType):
        yield from _describe(value.__code__, seen)
        yield from _describe((value.__defaults__, value.__kwdefaults__), seen)
        yield from _describe([_content(cell) for cell in value.__closure__ or ()], seen)
        return
    for name, attribute in sorted(vars(value).items()):
        if name not in IGNORED:
            yield name
            yield from _describe(attribute, seen)
    yield from _describe(value.__bases__, seen)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None


def _name(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"
