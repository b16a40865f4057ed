"""Modules beside the tests are loaded by path: tests are no package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

# scripts that import each other, and packages that tests may lack
collect_ignore = ["http_cases.py", "serve_kills.py", "serve_reloads.py", "servers.py"]


@pytest.fixture(scope="session")
def beside() -> Callable[[str], ModuleType]:
    """Return a function that loads a module of this folder."""

    def load(name: str) -> ModuleType:
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
            assert spec is not None
            assert spec.loader is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        return sys.modules[name]

    return load
