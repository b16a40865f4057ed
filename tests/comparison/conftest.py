"""A small comparison, run once for all tests that look at what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import truelike as tl

MODELS = ["ItemPop", "ItemKNN", "BPR"]
QUICK: dict[str, Any] = {"epochs": 4, "batch_size": 200, "n_trials": 3, "seeds": 2}


class Ran(NamedTuple):
    directory: Path
    log: Any
    found: tl.Comparison
    records: list[Any]


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    log = tl.synthetic.World(n_users=200, n_items=100, seed=3).log()
    directory = tmp_path_factory.mktemp("comparison")
    records: list[Any] = []
    found = tl.compare(log, MODELS, directory=directory, jobs=2, report=records.append, **QUICK)
    return Ran(directory, log, found, records)
