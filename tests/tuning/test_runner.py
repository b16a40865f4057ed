from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike.errors import DataError, StorageError, WorkerError
from truelike.tuning import runner as module
from truelike.tuning.runner import Runner
from truelike.tuning.trials import Trial, run

QUICK = {"factors": 4, "epochs": 2, "batch_size": 200, "monitor": "f1@2"}
TRIALS = [Trial("BPR", {**QUICK, "seed": seed}) for seed in range(3)]


def lines(directory: Path) -> list[Any]:
    return [json.loads(line) for line in (directory / "trials.jsonl").read_text().splitlines()]


def without_time(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "seconds"}


def test_processes_give_the_same_records_as_this_process(split: Any, tmp_path: Path) -> None:
    with Runner(tmp_path, split.train, split.validation, n_jobs=2) as runner:
        found = runner.run(TRIALS)
    expected = [run(trial, split)[0] for trial in TRIALS]
    assert [without_time(record) for record in found] == [without_time(record) for record in expected]
    assert sorted(record["key"] for record in lines(tmp_path)) == sorted(trial.key for trial in TRIALS)


def test_finished_trials_are_not_run_again(split: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    with Runner(tmp_path, split.train, split.validation, n_jobs=1, report=ran.append) as runner:
        runner.run([TRIALS[0], TRIALS[0]])
        runner.run(TRIALS[:2])
    assert [record["key"] for record in ran] == [trial.key for trial in TRIALS[:2]]

    def refuse(*_: Any) -> Any:
        raise AssertionError("a process was started")

    monkeypatch.setattr(module, "_Worker", refuse)
    with Runner(tmp_path, split.train, split.validation) as again:
        assert again.run(TRIALS[:2]) == ran


def test_an_incomplete_last_line_is_removed_and_its_trial_run_again(split: Any, tmp_path: Path) -> None:
    with Runner(tmp_path, split.train, split.validation, n_jobs=1) as runner:
        runner.run(TRIALS[:2])
    path = tmp_path / "trials.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with Runner(tmp_path, split.train, split.validation, n_jobs=1) as again:
        assert list(again.records) == [TRIALS[0].key]
        again.run(TRIALS[:2])
    assert [record["key"] for record in lines(tmp_path)] == [trial.key for trial in TRIALS[:2]]


def test_processes_of_a_search_have_no_test_part(split: Any, tmp_path: Path) -> None:
    with Runner(tmp_path, split.train, split.validation, n_jobs=1):
        pass
    assert tl.Split.load(tmp_path / "split").test.n_interactions == 0


def test_trials_do_not_depend_on_the_frame_library_of_the_dataset(split: Any, tmp_path: Path) -> None:
    of_arrow = split.train._with(library="pyarrow")
    with Runner(tmp_path, of_arrow, split.validation, n_jobs=1) as runner:
        [record] = runner.run(TRIALS[:1])
    assert without_time(record) == without_time(run(TRIALS[0], split)[0])


def test_the_test_figures_of_each_user_are_kept(split: Any, tmp_path: Path) -> None:
    trial = Trial("ItemPop", test=True)
    with Runner(tmp_path, split.train, split.validation, split.test, n_jobs=1) as runner:
        [record] = runner.run([trial])
        values = runner.per_user(trial)
    assert values.mean(axis=0) == pytest.approx(list(record["test"].values()), abs=1e-6)


def test_a_directory_with_trials_of_another_split_is_an_error(split: Any, tmp_path: Path) -> None:
    with Runner(tmp_path, split.train, split.validation, n_jobs=1):
        pass
    with pytest.raises(StorageError, match="another dataset or split"):
        Runner(tmp_path, split.train, split.test)


def test_a_process_that_ends_is_an_error_that_says_where_finished_trials_are(split: Any, tmp_path: Path) -> None:
    with Runner(tmp_path, split.train, split.validation, n_jobs=1) as runner:
        runner.run(TRIALS[:1])
        runner._workers[0].process.kill()
        with pytest.raises(WorkerError, match="Finished trials are kept in"):
            runner.run(TRIALS)
    with Runner(tmp_path, split.train, split.validation, n_jobs=1) as again:
        assert len(again.run(TRIALS)) == 3


def test_processes_end_with_the_runner(split: Any, tmp_path: Path) -> None:
    with Runner(tmp_path, split.train, split.validation, n_jobs=1) as runner:
        runner.run(TRIALS[:1])
        [worker] = runner._workers
    assert worker.process.poll() is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, to have a parent that can be killed")
def test_a_process_ends_when_its_parent_is_killed(split: Any, tmp_path: Path) -> None:
    import signal
    import subprocess
    import sys

    with Runner(tmp_path, split.train, split.validation):
        pass
    code = (
        "import time\nfrom pathlib import Path\nfrom truelike.tuning.runner import _Worker\n"
        f"worker = _Worker(Path({str(tmp_path)!r}), 0)\nprint(worker.process.pid, flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(300):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the process is still there 30 s after its parent was killed")


@pytest.mark.parametrize("garbage", ["not json", "[1]", "{}"])
def test_a_line_that_is_not_a_record_is_an_error_with_its_number(garbage: str, split: Any, tmp_path: Path) -> None:
    with Runner(tmp_path, split.train, split.validation, n_jobs=1) as runner:
        runner.run(TRIALS[:1])
    path = tmp_path / "trials.jsonl"
    path.write_text(garbage + "\n" + path.read_text())
    with pytest.raises(StorageError, match="line 1 of"):
        Runner(tmp_path, split.train, split.validation)


@pytest.mark.skipif(os.name != "posix", reason="needs flock")
def test_two_searches_do_not_share_a_directory(split: Any, tmp_path: Path) -> None:
    with Runner(tmp_path, split.train, split.validation), pytest.raises(StorageError, match="another search"):
        Runner(tmp_path, split.train, split.validation)
    Runner(tmp_path, split.train, split.validation).close()


def test_a_file_in_place_of_the_directory_is_an_error(split: Any, tmp_path: Path) -> None:
    (tmp_path / "log.csv").touch()
    with pytest.raises(StorageError, match="is a file"):
        Runner(tmp_path / "log.csv", split.train, split.validation)


def test_a_skipped_trial_has_no_record_and_can_be_run_later(split: Any, tmp_path: Path) -> None:
    with Runner(tmp_path, split.train, split.validation, n_jobs=1) as runner:
        found = runner.run_some(TRIALS, lambda trial: trial.parameters["seed"] == 1)
        assert [record.get("key") for record in found] == [TRIALS[0].key, None, TRIALS[2].key]
        assert all(runner.run(TRIALS))


def test_a_model_that_rejects_the_dataset_is_tried_again_next_time(split: Any, tmp_path: Path) -> None:
    class Demanding(tl.ItemPop):
        def _score_block(self, users: Any) -> Any:
            raise DataError("Demanding needs more items")

    trial = Trial(Demanding)
    for _ in range(2):
        with Runner(tmp_path, split.train, split.validation, n_jobs=1) as runner:
            assert trial.key not in runner.records
            [record] = runner.run([trial])
        assert record["refused"]
        assert record["error"] == "Demanding needs more items"


def test_after_a_process_ended_the_other_trials_go_on(split: Any, tmp_path: Path) -> None:
    with Runner(tmp_path, split.train, split.validation, n_jobs=2) as runner:
        runner.run(TRIALS[:2])
        runner._workers[0].process.kill()
        found = runner.run_some([Trial("ItemPop"), *TRIALS], lambda trial: False)
        assert sum("crashed" in record for record in found) == 1
        assert sum("validation" in record for record in found) == 3
        assert len(runner.run([Trial("ItemKNN")])) == 1
