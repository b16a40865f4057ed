"""`tl.tune` and `tl.compare` on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.ray_helper import run_isolated

import truelike as tl
from truelike.errors import ParameterError

pytestmark = pytest.mark.slow


def test_trials_on_a_cluster_are_those_of_processes(tmp_path: Path) -> None:
    script = Path(__file__).with_name("cluster_checks.py")
    assert run_isolated([str(script), str(tmp_path)], timeout=240) == "all checks passed\n"


def test_a_wrong_cluster_is_an_error_before_any_work(split: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match='cluster is 7; expected "local", "auto"'):
        tl.tune("ItemKNN", split, directory=tmp_path / "new", cluster=7)
    with pytest.raises(ParameterError, match=r"expected .* or HOST:PORT"):
        tl.compare(split, ["ItemPop"], directory=tmp_path / "new", cluster="ray://head:10001")
    assert not (tmp_path / "new").exists()
