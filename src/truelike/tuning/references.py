"""Classes and functions by reference: how they reach worker processes and how the journal names them.

A worker gets an object of the user's own as "module:qualname" and imports it. No code is written to disk. An
object that a worker cannot import, such as a class of a notebook or of a function body, has no such reference.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from truelike.negatives import Negatives
from truelike.tuning.digests import digest, is_own

MARK = "$reference"  # the key of a message that stands for a class or a function


class NotImportableError(Exception):
    """A value that a worker process cannot get by reference."""


def reference(value: Any) -> str:
    """Name a class or a function as "module:qualname".

    >>> reference(Negatives)
    'truelike.negatives:Negatives'
    """
    return f"{value.__module__}:{value.__qualname__}"


def load(name: str) -> Any:
    """Import the object that a reference names.

    >>> load("truelike.negatives:Negatives") is Negatives
    True
    """
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # the import runs code of the user, which may raise anything
        raise NotImportableError(f"{name} cannot be imported: {error}") from error
    return found


def plain(value: Any) -> Any:
    """Convert a parameter's value to what JSON can hold: a class or a function becomes its reference.

    >>> plain(np.float64(0.5)), plain(Negatives), plain(Negatives(candidates=5))
    (0.5, 'truelike.negatives:Negatives', 'hard:5')
    """
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is Negatives:
        return value.name
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if _has_reference(value):
        return reference(value)
    return value if _is_json(value) else f"an object of {reference(type(value))}"


def encode(value: Any) -> Any:
    """Convert a parameter's value to a message that `decode` turns back; raise NotImportableError where none is.

    >>> decode(encode([1, Negatives]))[1] is Negatives
    True
    """
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    if _has_reference(value):
        name = reference(value)
        if value.__module__ == "__main__" or "<" in value.__qualname__:  # <locals>, <lambda>
            raise NotImportableError(f"{value.__qualname__} is defined in {_place(value)}")
        return {MARK: name}
    if not is_plain(value):
        raise NotImportableError(f"{type(value).__name__} objects cannot be sent to another process")
    return plain(value)


def decode(message: Any) -> Any:
    """Recreate a value from the message of `encode`."""
    if isinstance(message, list):
        return [decode(each) for each in message]
    return load(message[MARK]) if isinstance(message, dict) and MARK in message else message


def identity(value: Any) -> Any:
    """Return what tells a value from others in the key of a trial.

    For a class or a function of the user's own that is its reference and a digest of its definition, so that
    trials of different classes with one name, or of a class that was changed, are kept apart.
    """
    if isinstance(value, list | tuple):
        return [identity(each) for each in value]
    if _has_reference(value):
        return f"{reference(value)}#{digest(value)}" if is_own(value) else reference(value)
    return plain(value)


def _has_reference(value: Any) -> bool:
    return isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__"))


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def is_plain(value: Any) -> bool:
    """Whether a value can be written to a file, so that it means the same when it is read."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return _is_json(value) or isinstance(value, np.generic) or type(value) is Negatives


def _place(value: Any) -> str:
    return "a notebook or a script (__main__)" if value.__module__ == "__main__" else "a function"
