"""Methods that exist only where they mean something, so that `hasattr` tells the truth (as in scikit-learn)."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def available_if(condition: Callable[[Any], bool]) -> Callable[[F], F]:
    """A method that only those instances have for which the condition holds."""

    def decorate(method: F) -> F:
        return _AvailableIf(method, condition)  # type: ignore[return-value]

    return decorate


class _AvailableIf:
    """A descriptor that raises AttributeError where the condition does not hold."""

    def __init__(self, method: Callable[..., Any], condition: Callable[[Any], bool]) -> None:
        self.method, self.condition = method, condition
        update_wrapper(self, method)  # type: ignore[arg-type]

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self.method
        if not self.condition(instance):
            raise AttributeError(f"{type(instance).__name__!r} has no attribute {self.attribute!r}")
        return MethodType(self.method, instance)
