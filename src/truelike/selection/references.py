"""Classes and functions by reference: how they reach worker processes, and how the records of trials name them.

A worker gets an object of the user's own as "module:qualname" and imports it. No code is written to disk. An object
that a worker cannot import, such as a class of a notebook or of a function body, has no such reference.

In the key of a trial, a class or a function of the user's own also has a digest of its definition: of the byte code of
functions with their defaults and closures, and of all attributes of a class and of its bases. So trials of different
versions of a class are kept apart. Objects that a class refers to by a global name are not covered.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator
from functools import cached_property, lru_cache, partial
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from truelike.negatives import OWN, Negatives

MARK = "$reference"  # the key of a message that stands for a class or a function
NOT_DEFINING = {
    "__abstractmethods__", "__annotations__", "__dataclass_fields__", "__dataclass_params__", "__dict__",
    "__doc__", "__firstlineno__", "__module__", "__static_attributes__", "__weakref__", "_abc_impl",
}  # fmt: skip


class NotImportableError(Exception):
    """A value that a worker process cannot get by reference."""


def reference(value: Any) -> str:
    """Name a class or a function as "module:qualname".

    >>> reference(Negatives)
    'truelike.negatives:Negatives'
    """
    return f"{value.__module__}:{value.__qualname__}"


def is_own(value: object) -> bool:
    """Whether a class or a function is defined outside truelike.

    >>> is_own(reference), is_own(dict)
    (False, True)
    """
    return str(getattr(value, "__module__", "")).partition(".")[0] != "truelike"


def plain(value: Any) -> Any:
    """Convert a parameter's value to what JSON can hold: a class or a function becomes its reference.

    >>> from truelike.negatives import Hard
    >>> plain(np.float64(0.5)), plain(Negatives), plain(Hard(5))
    (0.5, 'truelike.negatives:Negatives', 'hard:5')
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Negatives):
        return value.name.removeprefix(OWN)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if _has_reference(value):
        return reference(value)
    return value if _is_json(value) else f"an object of {reference(type(value))}"


def is_plain(value: object) -> bool:
    """Whether a value can be written to a file, so that it means the same when it is read."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return (
        _is_json(value)
        or isinstance(value, np.generic)
        or (isinstance(value, Negatives) and not _is_own_sampler(value))
    )


def encode(value: Any) -> Any:
    """Convert a parameter's value to a message that `decode` turns back; raise NotImportableError where none is.

    >>> decode(encode([1, Negatives]))[1] is Negatives
    True
    """
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    if _is_own_sampler(value):
        return {**encode(type(value)), "parameters": {name: encode(each) for name, each in vars(value).items()}}
    if _has_reference(value):
        if value.__module__ == "__main__":
            raise NotImportableError(f"{value.__qualname__} is defined in a notebook or a script (__main__)")
        if "<" in value.__qualname__:  # <locals>, <lambda>
            raise NotImportableError(f"{value.__qualname__} is defined in a function")
        return {MARK: reference(value)}
    if not is_plain(value):
        raise NotImportableError(f"{type(value).__name__} objects cannot be sent to another process")
    return plain(value)


def decode(message: Any) -> Any:
    """Recreate a value from the message of `encode`."""
    if isinstance(message, list):
        return [decode(each) for each in message]
    if not (isinstance(message, dict) and MARK in message):
        return message
    module, _, path = message[MARK].partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # the import runs code of the user, which may raise anything
        raise NotImportableError(f"{message[MARK]} cannot be imported: {error}") from error
    if "parameters" in message:  # of an object of the class
        return found(**{name: decode(each) for name, each in message["parameters"].items()})
    return found


def identity(value: Any) -> Any:
    """Return what tells a value from others in the key of a trial: for an object of the user's own with its digest."""
    if isinstance(value, list | tuple):
        return [identity(each) for each in value]
    if _is_own_sampler(value):
        return [identity(type(value)), {name: identity(each) for name, each in vars(value).items()}]
    if _has_reference(value) and is_own(value):
        return f"{reference(value)}#{_digest(value)}"
    return plain(value)


def _is_own_sampler(value: object) -> bool:
    return isinstance(value, Negatives) and is_own(type(value))


def _has_reference(value: object) -> bool:
    return isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__"))


def _is_json(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


@lru_cache(maxsize=256)
def _digest(value: Any) -> str:
    text = "\n".join(_describe(value, set()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _describe(value: object, seen: set[int]) -> Iterator[str]:
    """Yield lines that are the same for the same definition, in any process."""
    value = _unwrapped(value)
    if isinstance(value, list | tuple):
        for each in value:
            yield from _describe(each, seen)
    elif isinstance(value, dict):
        yield from _describe(sorted(value.items(), key=lambda item: str(item[0])), seen)
    elif isinstance(value, set | frozenset):
        yield from sorted(map(repr, value))
    elif isinstance(value, complex | bytes | np.generic | type(...)) or _is_json(value):
        yield repr(value)
    elif isinstance(value, CodeType):
        yield from (value.co_code.hex(), *value.co_names)
        yield from _describe(value.co_consts, seen)
    elif isinstance(value, type | FunctionType):
        yield reference(value)
        if id(value) not in seen and is_own(value):  # a method that uses super() closes over its own class
            seen.add(id(value))
            yield from _describe(_definition(value), seen)
    else:
        yield reference(type(value))


def _unwrapped(value: object) -> object:
    """The functions inside a method, a property or a partial function; other values as they are."""
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    if isinstance(value, property):
        return (value.fget, value.fset)
    if isinstance(value, cached_property):
        return value.func
    return (value.func, value.args, value.keywords) if isinstance(value, partial) else value


def _definition(value: Any) -> Any:
    """The parts of a function or of a class that decide what it does."""
    if isinstance(value, FunctionType):
        cells = [
            cell.cell_contents for cell in value.__closure__ or () if cell != CellType()
        ]  # without empty ones
        return value.__code__, value.__defaults__, value.__kwdefaults__, cells
    return {name: each for name, each in vars(value).items() if name not in NOT_DEFINING}, value.__bases__
