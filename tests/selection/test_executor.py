"""Trials in processes: the same records as in this process, none run twice, and a crash is one trial's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike.errors import StorageError, WorkerError
from truelike.selection.executor import Executor
from truelike.selection.trials import Trial, run

pytestmark = pytest.mark.slow

QUICK = {"factors": 4, "epochs": 2, "batch_size": 200, "metric": "f1@2"}


def trials() -> list[Trial]:
    return [Trial("BPR", {**QUICK, "seed": seed}) for seed in range(3)]


def keys(found: list[Trial]) -> list[str]:
    return [trial.key for trial in found]


def lines(directory: Path) -> list[Any]:
    return [json.loads(line) for line in (directory / "trials.jsonl").read_text().splitlines()]


def without_time(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "seconds"}


def executor(place: Path, split: Any, n_workers: int = 1, **options: Any) -> Executor:
    return Executor(place, split.train, split.validation, n_workers=n_workers, **options)


def test_processes_give_the_same_records_as_this_process(split: Any, tmp_path: Path) -> None:
    of_arrow = tl.Split(
        split.train.with_parts(library="pyarrow"), split.validation
    )  # the frame library does not matter
    with executor(tmp_path, of_arrow, 2) as workers:
        asked = trials()
        found = workers.run(asked)
        assert [trial.record for trial in asked] == found
    expected = [run(trial, split)[0] for trial in trials()]
    assert [without_time(record) for record in found] == [without_time(record) for record in expected]
    assert sorted(record["key"] for record in lines(tmp_path)) == sorted(keys(trials()))
    assert tl.Split.load(tmp_path / "split").test.n_interactions == 0  # a search has no test part


def test_finished_trials_are_not_run_again(split: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    ran: list[Any] = []
    with executor(tmp_path, split, report=ran.append) as workers:
        workers.run([trials()[0], trials()[0]])
        workers.run(trials()[:2])
    assert [record["key"] for record in ran] == keys(trials()[:2])
    path = tmp_path / "trials.jsonl"
    path.write_bytes(
        path.read_bytes()[:-20]
    )  # the last line is incomplete: it is removed, and its trial run again
    with executor(tmp_path, split) as workers:
        assert list(workers.records) == keys(trials()[:1])
        again = workers.run(trials()[:2])
    assert [record["key"] for record in lines(tmp_path)] == keys(trials()[:2])
    request.getfixturevalue("no_workers")
    with executor(tmp_path, split) as workers:
        assert workers.run(trials()[:2]) == again


def test_the_test_figures_of_each_user_are_kept(split: Any, tmp_path: Path) -> None:
    trial = Trial("ItemPop", test=True)
    with Executor(tmp_path, *split.parts, n_workers=1) as workers:
        [record] = workers.run([trial])
        values = workers.per_user(trial)
    assert values.mean(axis=0) == pytest.approx(list(record["test"].values()), abs=1e-6)


@pytest.mark.parametrize("garbage", ["not json", "[1]", "{}"])
def test_a_directory_that_cannot_be_used_is_an_error(garbage: str, split: Any, tmp_path: Path) -> None:
    place = tmp_path / "runs"
    with executor(place, split):
        if os.name == "posix":
            with pytest.raises(StorageError, match="another search"):
                executor(place, split)
    with pytest.raises(StorageError, match="another dataset or split"):
        Executor(place, split.train, split.test, n_workers=1)
    (place / "trials.jsonl").write_text(garbage + "\n")
    with pytest.raises(StorageError, match="line 1 of"):
        executor(place, split)
    (tmp_path / "log.csv").touch()
    with pytest.raises(StorageError, match="is a file"):
        executor(tmp_path / "log.csv", split)


def test_a_killed_process_fails_its_own_trial_only(
    own: Any, split: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with executor(tmp_path / "runs", split, 2) as workers:
        asked = [Trial(own.Killed), *trials()]
        found = workers.run_some(asked)
        assert found[0]["crashed"]
        assert found[0]["error"] == "its process ended with exit code -9; it may have run out of memory"
        assert all("validation" in record for record in found[1:])
        workers.records.pop(asked[0].key)
        with pytest.raises(WorkerError, match=r"Killed failed: its process ended .* Finished trials are kept in"):
            workers.run(asked)
        assert len(workers.run([Trial("ItemPop"), Trial("ItemKNN")])) == 2
    assert keys(asked)[0] not in {record["key"] for record in lines(tmp_path / "runs")}  # it may work another time
    printed = capfd.readouterr()
    assert (printed.out, "to be killed" in printed.err) == ("", True)  # stdout is the caller's


def test_a_process_that_is_killed_between_trials_is_replaced(split: Any, tmp_path: Path) -> None:
    with executor(tmp_path, split) as workers:
        workers.run(trials()[:1])
        [worker] = workers._workers._free  # type: ignore[union-attr]
        [process] = worker._processes.values()
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        while not worker._flags.broken:
            time.sleep(0.01)
        assert len(workers.run(trials())) == 3


CHILD = """
import sys, time
from pathlib import Path
sys.path.remove("")  # as in the process of the command line
import truelike as tl
from truelike.selection.executor import Executor
from truelike.selection.trials import Trial

split = tl.Split.load("split")
with Executor("runs", split.train, split.validation, n_workers=1) as executor:
    executor.run([Trial("ItemPop")])
    [worker] = executor._workers._free
    print(*worker._processes, flush=True)
    {then}
"""


def child(split: Any, place: Path, then: str) -> Any:
    """A process in a directory whose files have the names of modules."""
    split.save(place / "split")
    for name in ("polars", "numpy", "joblib", "signal", "truelike"):
        (place / f"{name}.py").write_text(
            f"open('{name}-was-run', 'w')\nraise ImportError('{name} of the directory')"
        )
    code = CHILD.format(then=then)
    environment = {**os.environ, "PYTHONPATH": str(Path(tl.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=place, env=environment, stdout=subprocess.PIPE, text=True
    )


def test_processes_import_nothing_from_the_current_directory(split: Any, tmp_path: Path) -> None:
    out, _ = child(split, tmp_path, "pass").communicate()
    assert out.strip().isdigit()
    assert list(tmp_path.glob("*-was-run")) == []


@pytest.mark.skipif(os.name != "posix", reason="needs a parent that can be killed")
def test_a_process_ends_when_its_parent_is_killed(split: Any, tmp_path: Path) -> None:
    parent = child(split, tmp_path, "time.sleep(60)")
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    for _ in range(300):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the process is still there 30 s after its parent was killed")


def test_an_exception_of_a_model_names_the_model_and_the_exception(own: Any, split: Any, tmp_path: Path) -> None:
    with executor(tmp_path / "runs", split) as workers:
        for _ in range(2):
            words = r"(?s)trial of Broken failed: ZeroDivisionError: the model is broken.*own_models_for_tests.py"
            with pytest.raises(WorkerError, match=words):
                workers.run([Trial(own.Broken)])
            workers.log.local_models.add("Broken")  # the second time in this process
        record, left_out = workers.run_some([Trial(own.Broken), Trial(own.Broken, metric="f1@3")])
        assert record["error"] == "ZeroDivisionError: the model is broken"
        assert left_out == {}
