"""A small comparison, run once for all tests of its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import truelike as tl

MODELS = ["ItemPop", "ItemKNN", "BPR"]
QUICK: dict[str, Any] = {"epochs": 4, "batch_size": 200, "n_trials": 3, "seeds": 2}


class Ran(NamedTuple):
    directory: Path
    data: Any
    found: tl.Comparison
    records: list[Any]


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    data = tl.synthetic.World(n_users=200, n_items=100, seed=3).dataset()
    directory = tmp_path_factory.mktemp("comparison")
    records: list[Any] = []
    found = tl.compare(data, MODELS, directory=directory, n_jobs=2, report=records.append, **QUICK)
    return Ran(directory, data, found, records)
