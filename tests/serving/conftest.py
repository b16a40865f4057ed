"""Small models, and real servers that run as processes of their own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HOSTILE = Path(__file__).parents[1] / "hostile"


def load(name: str) -> ModuleType:
    """A module of tests/hostile, by path: tests are no package."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HOSTILE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


servers = load("servers")  # the scripts import it, too


@pytest.fixture(scope="session")
def hostile() -> Callable[[str], ModuleType]:
    """Return a function that loads a script of tests/hostile."""
    return load


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories of small models, by name; and `items`, a table of their items."""
    place = tmp_path_factory.mktemp("models")
    return {**servers.make_models(place), "items": place / "items.csv"}


@pytest.fixture(scope="session")
def server(saved: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with two models, two workers, events, attributes and tight limits. Tests share it."""
    place = tmp_path_factory.mktemp("server")
    options = ("--workers", "2", "--events", place / "events", "--items", saved["items"], "--timeout", "2")
    with servers.Server(place, saved["first"], saved["second"], *options, "--shares", "75,25") as running:
        yield running
