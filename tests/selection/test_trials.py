from __future__ import annotations

import math
import sys
import tomllib
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.cli.inputs import read_config
from truelike.selection import trials
from truelike.selection.trials import Trial, run, score, toml

QUICK = {"factors": 4, "epochs": 3, "batch_size": 200, "metric": "f1@2"}


def test_the_key_does_not_depend_on_how_parameters_are_spelled() -> None:
    spelled = Trial("NBPO", {"recipe": "paper", "factors": 50, "n_jobs": 7})
    assert spelled.key == Trial(tl.NBPO, {"recipe": "paper"}).key
    assert spelled.key != Trial("NBPO", {"recipe": "paper", "factors": 51}).key
    assert spelled.key != Trial("NBPO", {"recipe": "paper"}, test=True).key
    assert spelled.key != Trial("BPO", {"recipe": "paper"}).key
    assert spelled.key == Trial("NBPO", {"recipe": "paper"}, seen="validation").key, (
        "validation is only left out on test"
    )
    of_test, without = (Trial("NBPO", test=True, seen=seen) for seen in ("train", "validation"))
    assert of_test.key == Trial("NBPO", test=True).key != without.key
    assert Trial.from_message(without.message()).key == without.key
    assert Trial("bpr", {"regularization": 1}).key == Trial("BPR:regularization=1.0").key
    assert Trial(tl.BPR(factors=8)).key == Trial("BPR:factors=8").key == Trial("BPR", {"factors": 8}).key


def test_a_trial_without_test_figures_never_uses_the_test_part(split: Any) -> None:
    class NoTest:
        train, validation = split.train, split.validation

        @property
        def test(self) -> Any:
            raise AssertionError("the test part was used")

    record, evaluation = run(Trial("BPR", QUICK), NoTest())  # type: ignore[arg-type]
    assert evaluation is None
    assert "test" not in record


def test_a_record_equals_fitting_and_evaluating_by_hand(split: Any) -> None:
    record, evaluation = run(Trial("NBPO", QUICK, test=True), split)
    model = tl.NBPO(**QUICK).fit(split.train, validation=split.validation)
    expected = tl.evaluate(model, split.validation, metrics=["f1", "ndcg"]).means()
    assert record["validation"] == expected
    assert record["peaks"]["f1@2"] == max(model.history_["f1@2"]) == record["validation"]["f1@2"]
    assert record["test"] == tl.evaluate(model, split.test, metrics=["f1", "ndcg"]).means()
    assert evaluation is not None
    assert record["epochs"] == 3
    assert record["best_epoch"] == model.history_["f1@2"].arg_max() + 1


def test_a_trial_that_diverges_scores_below_all_others(split: Any) -> None:
    record, _ = run(Trial("ShiftMC", {**QUICK, "learning_rate": 100.0}), split)
    assert "learning_rate" in record["error"]
    assert score(record, "f1@2") == -math.inf


def test_the_command_line_reads_the_toml_file_back(tmp_path: Any) -> None:
    given = {"factors": 8, "learning_rate": 1e-05, "patience": None, "objective": "NBPO-o", "recipe": "paper"}
    path = tmp_path / "x.toml"
    path.write_text(toml('a "log".csv', "SampledMF", given, ["about"]), encoding="utf-8")
    config = read_config(path)
    assert config["data"] == 'a "log".csv'
    assert config["parameters"] == {**given, "patience": "none"} == tomllib.loads(path.read_text())["parameters"]


@pytest.mark.parametrize(
    "model", ["AutoRecommender:n_trials=3", "IALS", "SoftmaxMF", "ExactNBPO", "ItemKNN:neighbors=5"]
)
def test_models_with_and_without_epochs_can_be_trials(model: str, split: Any) -> None:
    record, _ = run(Trial(model, {}, test=True, metric="recall@7"), split)
    assert "error" not in record
    assert 0 < score(record, "ndcg@20") <= 1
    assert 0 < score(record, "recall@7") <= 1


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is reset on Linux only")
def test_the_peak_memory_is_measured_since_the_reset() -> None:
    def peak(n_bytes: int) -> float:
        trials._reset_peak_memory()
        np.ones(n_bytes, dtype=np.uint8)
        return trials._peak_memory() or 0.0

    peak(200_000_000)  # freed before the others: not counted
    assert 90 < -peak(1) + peak(100_000_000) < 150


def test_the_kinds_of_a_log_are_a_table_that_toml_reads_back() -> None:
    read = {"kind": "event", "kinds": {"view": 0.2, "buy": 1.0, "seen item": "shown"}, "target": "buy"}
    assert tomllib.loads(toml("log.csv", "ItemKNN", {}, read=read))["read"] == read
