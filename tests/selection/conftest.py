"""A small split, a small comparison that is run once, and models of a module that only this process has on its path."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import truelike as tl
from truelike.core import progress

MODELS = ["ItemPop", "ItemKNN", "BPR"]
QUICK: dict[str, Any] = {"epochs": 4, "batch_size": 200, "n_trials": 3, "seeds": 2}
SOURCE = """
import os
import signal
from dataclasses import dataclass
from typing import ClassVar

import truelike as tl


@dataclass(kw_only=True, eq=False, repr=False)
class RandomWalk(tl.ItemKNN):
    restart: float = tl.parameters.number(0.5, low=0.0, high=1.0)
    search_space: ClassVar = {"restart": (0.1, 0.9)}


@dataclass(kw_only=True, eq=False, repr=False)
class Vectors(tl.EpochRecommender):
    search_space: ClassVar = {"rate": (0.001, 0.1)}
    rate: float = tl.parameters.number(0.01, low=0.0)

    def initial_arrays(self, train, rng):
        shapes = {"user_vectors": (train.n_users, 4), "item_vectors": (train.n_items, 4)}
        return {name: rng.normal(0, 0.1, shape) for name, shape in shapes.items()}

    def run_epoch(self, train, arrays, epoch, rng):
        users, items = arrays.values()
        error = (train.matrix > 0) - users @ items.T
        users += self.rate * error @ items
        items += self.rate * error.T @ users


class Squashed(tl.objectives.BPO):
    pass


class Broken(tl.ItemPop):
    def _make_scorer(self):
        raise ZeroDivisionError("the model is broken")


class Killed(tl.ItemKNN):
    def _fit(self, train, options):
        print("to be killed")
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Ran(NamedTuple):
    directory: Path
    data: Any
    found: tl.Comparison
    records: list[Any]


@pytest.fixture(scope="session")
def split() -> Any:
    return tl.splits.by_user(tl.synthetic.World(n_users=80, n_items=50, seed=3).dataset(), seed=0)


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    data = tl.synthetic.World(n_users=200, n_items=100, seed=3).dataset()
    directory = tmp_path_factory.mktemp("comparison")
    records: list[Any] = []
    found = tl.compare(data, MODELS, directory=directory, n_workers=2, report=records.append, **QUICK)
    return Ran(directory, data, found, records)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    place = tmp_path / "modules"
    place.mkdir()
    (place / "own_models_for_tests.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(place)
    yield importlib.import_module("own_models_for_tests")
    del sys.modules["own_models_for_tests"]


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(progress, "note", said.append)
    return said


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a process was started")

    monkeypatch.setattr("truelike.selection.processes.Processes.submit", refuse)
