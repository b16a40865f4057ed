"""Training on a real Ray cluster on this machine, where only the loopback interface exists."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ray_helper import ROOT, run_isolated


@pytest.mark.timeout(300)
def test_ray_gives_the_same_bits_and_errors_that_say_what_to_do() -> None:
    passed = run_isolated([str(Path(__file__).with_name("ray_checks.py"))], timeout=280)
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
    passed = run_isolated(
        [str(ROOT / "tests" / "hostile" / "cluster_kills.py"), "--kills", "2", "--epochs", "20"], timeout=280
    )
    assert passed.endswith("4 kills, 0 wrong results\n")
