"""The paper's experiments with a tiny plan, run once for all tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike.paper import experiments, protocol
from truelike.paper.protocol import Plan

TINY = Plan("world", seeds=2, curve_seeds=2, epochs=3, rungs=(1 / 3, 1.0), quick=True)


@pytest.fixture(scope="session")
def split() -> Any:
    return tl.splits.by_user(tl.synthetic.World(n_users=150, n_items=80, seed=5).dataset(), seed=0)


@pytest.fixture(scope="session")
def runs(split: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("paper")
    experiments.run(TINY, split, directory, n_workers=2, say=lambda _: None)
    (directory / "quick").touch()
    return directory


@pytest.fixture(scope="session")
def results(runs: Path) -> experiments.Results:
    return experiments.Results.read(runs, TINY)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Replace the quick plan by the tiny one."""
    monkeypatch.setitem(protocol.QUICK, "world", TINY)
    return TINY
