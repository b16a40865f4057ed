"""Addresses and layouts of clusters, and what is computed on one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.ray_helper import run_isolated

import truelike as tl
from truelike.cluster import Cluster, _check_answers, as_cluster, writable
from truelike.errors import ClusterError, ParameterError

NOWHERE = "127.0.0.1:1"  # no test here may start Ray outside a network namespace


def nodes(*cpus: int, dead: int = 0) -> Any:
    """What a cluster with these nodes says of itself."""
    living = [{"Alive": True, "Resources": {"CPU": float(n)} if n else {}} for n in cpus]
    return SimpleNamespace(nodes=lambda: [*living, *([{"Alive": False, "Resources": {"CPU": 64.0}}] * dead)])


@pytest.mark.parametrize("address", ["local", "auto", "10.0.0.7:6379", "head.example:1", "[::1]:6379"])
def test_addresses(address: str) -> None:
    assert as_cluster(address) == Cluster(address)


@pytest.mark.parametrize(
    "address", ["", "10.0.0.7", "ray://head:10001", "head:0", "head:65536", "head:port", ":6379", None, 7]
)
def test_what_is_no_address_is_an_error(address: Any) -> None:
    with pytest.raises(ParameterError, match='expected "local", "auto" or HOST:PORT'):
        Cluster(address)


def test_a_cluster_is_a_text_a_cluster_or_nothing() -> None:
    own = tl.Cluster("auto", workers=3)
    assert (as_cluster(own), as_cluster(None)) == (own, None)
    with pytest.raises(ParameterError, match="cluster is 7"):
        as_cluster(7)


@pytest.mark.parametrize("name", ["workers", "threads"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2", 10_001])
def test_workers_and_threads_are_whole_numbers(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"{name} is .*; expected a whole number"):
        Cluster("local", **{name: value})


@pytest.mark.parametrize(
    ("cpus", "workers", "threads", "expected"),
    [
        ((8,), None, None, (1, 8)),
        ((8, 8), None, None, (2, 8)),
        ((8, 8), 4, None, (4, 4)),
        ((8, 4), 3, None, (3, 2)),
        ((8, 0), None, None, (1, 8)),
        ((8, 8), 100, 1, (16, 1)),
        ((8, 8), None, 3, (2, 3)),
        ((2,), 5, None, (2, 1)),
    ],
)
def test_the_layout_follows_the_nodes_that_live(
    cpus: tuple[int, ...], workers: int | None, threads: int | None, expected: tuple[int, int]
) -> None:
    assert Cluster("auto", workers, threads).layout(nodes(*cpus, dead=1)) == expected


def test_a_cluster_without_room_is_an_error() -> None:
    with pytest.raises(ClusterError, match="no node with a CPU"):
        Cluster("auto").layout(nodes(0, dead=2))
    with pytest.raises(ClusterError, match="no node of the cluster has 9 CPUs"):
        Cluster("auto", threads=9).layout(nodes(8, 8))


def test_a_writable_view_shares_its_memory_and_keeps_it() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    array.flags.writeable = False
    view = writable(array)
    assert view.flags.writeable
    assert np.shares_memory(view, array)
    del array
    assert view.tolist() == np.arange(12).reshape(3, 4).tolist()


def test_models_without_vectors_are_not_for_a_cluster(tmp_path: Path) -> None:
    split = tl.splits.by_user(tl.synthetic.World(n_users=60, n_items=40).dataset(), seed=0)
    model = tl.ItemKNN().fit(split.train)
    for call in (
        lambda: tl.evaluate(model, split.test, cluster=NOWHERE),
        lambda: model.recommend_to(tmp_path / "lists.csv", cluster=NOWHERE),
    ):
        with pytest.raises(ParameterError, match="the score of ItemKNN is no dot product"):
            call()
    assert not list(tmp_path.iterdir())
    with pytest.raises(ParameterError, match="test is None: leave cluster out"):
        tl.evaluate(model, truth=split.test, cluster=NOWHERE)


def test_on_a_cluster(tmp_path: Path) -> None:
    script = Path(__file__).with_name("cluster_checks.py")
    assert run_isolated([str(script), str(tmp_path)], timeout=180) == "all checks passed\n"


BESIDE = """
import sys
import truelike as tl

data = tl.synthetic.World(n_users=60, n_items=40).dataset()
blocks = tl.blocks.build(data, sys.argv[1], blocks=2, progress=False)
tl.IALS(factors=4, epochs=1).fit(blocks, cluster=tl.Cluster("local", 1, 1), progress=False)
print("trained")
"""


@pytest.mark.slow
def test_workers_import_nothing_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    for name in ("polars", "numpy", "ray"):
        (tmp_path / "log" / f"{name}.py").write_text(
            f"open({str(tmp_path / 'imported')!r}, 'w')\nraise SystemExit\n"
        )
    (tmp_path / "beside.py").write_text(BESIDE)
    monkeypatch.chdir(tmp_path / "log")
    monkeypatch.setattr("truelike.cluster.ANSWER_SECONDS", 3.0)
    with pytest.raises(ClusterError):
        _check_answers(NOWHERE)
    assert not (tmp_path / "imported").exists()
    assert run_isolated([str(tmp_path / "beside.py"), str(tmp_path / "blocks")]) == "trained\n"
    assert not (tmp_path / "imported").exists()
