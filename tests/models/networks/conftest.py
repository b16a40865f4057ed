"""Small networks, each fitted once for all tests that do not change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import truelike as tl

QUICK: dict[str, Any] = {
    "factors": 6, "flip_factors": 3, "epochs": 25, "batch_size": 150, "learning_rate": 0.08, "regularization": 1.0,
    "flip_regularization": 1.0,
}  # fmt: skip


@pytest.fixture(scope="session")
def quick() -> Callable[..., dict[str, Any]]:
    """Returns parameters that make a network quick on small data, with some of them replaced."""
    return lambda **changed: {**QUICK, **changed}


@pytest.fixture(scope="session")
def trained(world: Any) -> Callable[..., Any]:
    """Returns a quick model, by its name and parameters, that was fitted to `world`. Do not change it."""
    known: dict[Any, Any] = {}

    def get(name: str, **changed: Any) -> Any:
        key = (name, *sorted(changed.items()))
        if key not in known:
            known[key] = getattr(tl, name)(**{**QUICK, **changed}).fit(world)
        return known[key]

    return get
