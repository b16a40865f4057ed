from __future__ import annotations

import math
import tomllib
from typing import Any

import pytest

import truelike as tl
from truelike.cli.inputs import read_config
from truelike.tuning.trials import Trial, run, score, toml

QUICK = {"factors": 4, "epochs": 3, "batch_size": 200, "monitor": "f1@2"}


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.split.by_user(tl.synthetic.World(n_users=80, n_items=50, seed=3).log(), seed=0)


def test_the_same_parameters_have_the_same_key_however_they_are_spelled() -> None:
    spelled = Trial("NBPO", {"recipe": "paper", "factors": 50, "n_jobs": 7})
    assert spelled.key == Trial("NBPO", {"recipe": "paper"}).key
    assert spelled.key != Trial("NBPO", {"recipe": "paper", "factors": 51}).key
    assert spelled.key != Trial("NBPO", {"recipe": "paper"}, test=True).key
    assert spelled.key != Trial("BPO", {"recipe": "paper"}).key
    assert Trial("bpr", {"regularization": 1}).key == Trial("BPR", {"regularization": 1.0}).key


def test_a_trial_that_is_not_asked_for_test_figures_never_looks_at_the_test_part(split: Any) -> None:
    class NoTest:
        train, validation = split.train, split.validation

        @property
        def test(self) -> Any:
            raise AssertionError("the test part was looked at")

    record, judged = run(Trial("BPR", QUICK), NoTest())  # type: ignore[arg-type]
    assert judged is None
    assert "test" not in record


def test_a_record_is_what_fitting_and_evaluating_by_hand_gives(split: Any) -> None:
    record, judged = run(Trial("NBPO", QUICK, test=True), split)
    model = tl.NBPO(**QUICK).fit(split.train, validation=split.validation)
    expected = tl.evaluate(model, split.validation, metrics=["f1", "ndcg"]).means()
    assert record["validation"] == expected
    assert record["peaks"]["f1@2"] == max(model.history_["f1@2"]) == record["validation"]["f1@2"]
    assert record["test"] == tl.evaluate(model, split.test, metrics=["f1", "ndcg"]).means()
    assert judged is not None
    assert record["epochs"] == 3
    assert record["best_epoch"] == model.history_["f1@2"].arg_max() + 1


def test_models_that_do_not_iterate_are_trials_too(split: Any) -> None:
    record, _ = run(Trial("ItemKNN", {"neighbors": 5}, metric="recall@7"), split)
    assert 0 < score(record, "ndcg@20") < 1
    assert 0 < score(record, "recall@7") < 1
    assert record["settings"]["neighbors"] == 5


def test_a_run_that_diverges_is_a_record_below_all_others(split: Any) -> None:
    record, _ = run(Trial("ShiftMC", {**QUICK, "learning_rate": 100.0}), split)
    assert "learning_rate" in record["error"]
    assert score(record, "f1@2") == -math.inf


def test_a_toml_file_says_the_same_to_the_command_line(tmp_path: Any) -> None:
    given = {"factors": 8, "learning_rate": 1e-05, "patience": None, "objective": "NBPO-o", "recipe": "paper"}
    path = tmp_path / "x.toml"
    path.write_text(toml('a "log".csv', "MatrixFactorization", given, ["about"]), encoding="utf-8")
    config = read_config(path)
    assert config["data"] == 'a "log".csv'
    assert config["parameters"] == {**given, "patience": "none"} == tomllib.loads(path.read_text())["parameters"]
