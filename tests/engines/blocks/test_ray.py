"""Training on a real Ray cluster on this machine, where only the loopback interface exists."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def _helper() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ray_helper", ROOT / "tests" / "ray_helper.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("ray_helper", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(300)
def test_ray_gives_the_same_bits_and_errors_that_say_what_to_do() -> None:
    passed = _helper().run_isolated([str(HERE / "ray_checks.py")], timeout=280)
    assert passed.split("\n")[:-1] == [
        "same bits IALS",
        "same bits NBPO",
        "same bits with impressions",
        "resumed",
        "too little object store",
        "damaged block",
        "no cluster",
        "a local cluster is started and ended",
        "loopback only",
    ]


@pytest.mark.timeout(300)
def test_killed_workers_and_nodes_change_no_bit() -> None:
    passed = _helper().run_isolated(
        [str(ROOT / "tests" / "hostile" / "cluster_kills.py"), "--kills", "2", "--epochs", "20"], timeout=280
    )
    assert passed.endswith("4 kills, 0 wrong results\n")
