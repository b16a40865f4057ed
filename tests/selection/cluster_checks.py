"""Tuning and comparing on a cluster: run by `test_on_cluster.py` where only the loopback interface exists."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import truelike as tl
from truelike.core import progress
from truelike.selection import ray_workers
from truelike.selection.executor import Executor
from truelike.selection.trials import Trial, run

CLUSTER = tl.Cluster("local", workers=2, threads=1)
QUICK: dict[str, Any] = {"epochs": 9, "batch_size": 200}
SPLIT = tl.splits.by_user(tl.synthetic.World(n_users=80, n_items=50, seed=3).dataset(), seed=0)


def plain(record: dict[str, Any]) -> dict[str, Any]:
    """A record without times and memory."""
    found = {name: value for name, value in record.items() if name not in ("seconds", "fit", "curve")}
    return found | ({"curve": record["curve"]["values"]} if "curve" in record else {})


def check_tune(place: Path) -> None:
    """A search on the cluster has the same trials as one in processes, and continues where it was stopped."""
    own = tl.tune("BPR", SPLIT, n_trials=4, n_workers=2, **QUICK)
    records: list[Any] = []

    def stop(record: Any) -> None:
        records.append(record)
        if len(records) == 4:
            raise KeyboardInterrupt

    try:
        tl.tune("BPR", SPLIT, n_trials=4, cluster=CLUSTER, directory=place, report=stop, **QUICK)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("the search was not stopped")
    ran: list[Any] = []
    found = tl.tune("BPR", SPLIT, n_trials=4, cluster=CLUSTER, directory=place, report=ran.append, **QUICK)
    assert found.parameters == own.parameters
    assert [plain(each) for each in found.records] == [plain(each) for each in own.records]
    assert len(ran) == len(own.records) - 4, len(ran)


def check_compare() -> None:
    """A comparison on the cluster has the same table as one in processes."""
    data = tl.synthetic.World(n_users=100, n_items=60, seed=3).dataset()
    models, options = ["ItemPop", "EASE", "BPR"], {"n_trials": 2, "seeds": 1, **QUICK}
    own = tl.compare(data, models, n_workers=2, **options)
    found = tl.compare(data, models, cluster=CLUSTER, **options)
    measured = [name for name in own.table.columns if "@" in name]
    assert found.best == own.best
    assert found.table.select("model", *measured).equals(own.table.select("model", *measured))


def check_lost_and_failed(place: Path) -> None:
    """A lost trial is run again, and one that fails is recorded as ever."""
    import cluster_models

    notes: list[str] = []
    progress.note = notes.append
    ray_workers.TASK_TRIES = 1
    trials = [
        Trial(cluster_models.Unlucky),
        Trial(cluster_models.Broken),
        Trial(cluster_models.Fatal),
        Trial("EASE"),
    ]
    with Executor(place, SPLIT.train, SPLIT.validation, n_workers=1, cluster=CLUSTER) as executor:
        assert executor.log.n_workers == 2
        unlucky, broken, fatal, ease = executor.run_some(trials)
    assert (Path(os.environ["TRUELIKE_TEST_PLACE"]) / "was-killed").exists()
    assert plain(unlucky) == plain(run(trials[0], SPLIT)[0])
    assert broken["error"] == "ZeroDivisionError: the model is broken", broken
    assert "lost 2 times" in fatal["error"], fatal
    assert broken["crashed"]
    assert fatal["crashed"]
    assert plain(ease) == plain(run(trials[3], SPLIT)[0])
    assert any("cluster_models.py" in note for note in notes), notes


def main() -> None:
    place = Path(sys.argv[1])
    os.environ["TRUELIKE_TEST_PLACE"] = str(place)
    with CLUSTER.connected():
        check_tune(place / "tune")
        check_compare()
        check_lost_and_failed(place / "lost")
    print("all checks passed")  # noqa: T201


if __name__ == "__main__":
    main()
