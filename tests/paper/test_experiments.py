from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.paper import experiments
from truelike.paper.experiments import Results
from truelike.paper.protocol import CONTENDERS, FULL, METRIC, Plan
from truelike.paper.report import describe_plan
from truelike.selection.grids import SLOWER, Stage, axis
from truelike.selection.trials import run, score, settings


def keys(runs: Path, kind: str) -> list[str]:
    text = (runs / "world" / kind / "trials.jsonl").read_text()
    return [json.loads(line)["key"] for line in text.splitlines()]


def test_a_run_finishes_every_part_of_its_plan(results: Results) -> None:
    assert results.missing() == []
    assert set(results.tuned) == {contender.name for contender in CONTENDERS}
    assert set(results.searched["tuned at 20"]) == {"BPR", "BPO", "NBPO"}
    for contender in CONTENDERS:
        expected = 2 if contender.learns else 1
        assert len(list(results.finals("tuned", contender.name))) == expected
    assert len(list(results.curve("flip_factors", 0))) == 3


def test_no_trial_is_run_twice_and_a_second_call_runs_none(runs: Path, split: Any) -> None:
    before = {kind: keys(runs, kind) for kind in ("tuning", "final")}
    assert all(len(found) == len(set(found)) for found in before.values())
    plan = Plan("world", seeds=2, curve_seeds=2, epochs=3, rungs=(1 / 3, 1.0), quick=True)
    experiments.run(plan, split, runs, n_workers=1, say=lambda _: None)
    assert {kind: keys(runs, kind) for kind in ("tuning", "final")} == before


def test_the_search_has_no_test_part(runs: Path) -> None:
    assert tl.Split.load(runs / "world" / "tuning" / "split").test.n_interactions == 0
    text = (runs / "world" / "tuning" / "trials.jsonl").read_text()
    assert '"test"' not in text


def test_running_a_tuned_setting_again_gives_the_recorded_metrics_bit_for_bit(
    results: Results, split: Any
) -> None:
    for name in ("BPR", "NBPO", "NBPO-o"):
        for trial in results.finals("tuned", name):
            again, _ = run(trial, split, n_jobs=2)
            recorded = results.records[trial.key]
            assert again["validation"] == recorded["validation"]
            assert again["test"] == recorded["test"]


def test_the_tuned_setting_is_the_best_of_its_trials(results: Results) -> None:
    for name in ("BPR", "NBPO"):
        stages = results.tuned[name]["stages"]
        full = [
            record
            for stage in stages
            for key in stage["candidates"]
            if (record := results.records[key])["parameters"]["epochs"] == 3
        ]
        assert results.tuned[name][METRIC] == max(score(record, METRIC) for record in full)


def test_the_means_over_users_are_the_recorded_metrics(results: Results) -> None:
    users = results.per_user("tuned", "NBPO")
    assert users is not None
    assert users[:, 0].mean() == pytest.approx(results.mean("tuned", "NBPO", "f1@2"), abs=1e-7)
    assert users[:, 7].mean() == pytest.approx(results.mean("tuned", "NBPO", "ndcg@20"), abs=1e-7)
    assert np.isfinite(users).all()


def test_the_settings_of_the_release_are_its_own() -> None:
    results = Results(FULL["amazon"], {}, {})
    amazon = settings(next(results.finals("release", "NBPO")).make())
    assert amazon == settings(tl.NBPO(recipe="paper", metric=METRIC, patience=None))
    movielens = settings(next(Results(FULL["movielens"], {}, {}).finals("release", "NBPO-o")).make())
    expected = {"objective": "NBPO-o", "learning_rate": 0.001, "regularization": 1.0, "flip_regularization": 5.0}
    assert {name: movielens[name] for name in expected} == expected
    assert list(results.finals("release", "WBPR")) == []


def test_the_settings_of_the_text_are_its_own() -> None:
    results = Results(FULL["movielens"], {}, {})
    found = settings(next(results.finals("text", "NBPO")).make())
    expected = {
        "learning_rate": 0.005, "regularization": 0.5, "flip_regularization": 0.1, "n_negatives": 3, "factors": 200,
        "flip_factors": 500,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert next(results.finals("text", "NBPO, L = 0")).make().get_params()["flip_factors"] == 0
    assert list(results.finals("text", "NBPO-o")) == []


def test_a_scaled_setting_keeps_the_balance_of_gradient_and_regularization(results: Results) -> None:
    tuned = {"learning_rate": 0.01, "regularization": 0.1, "flip_regularization": 0.3, "n_negatives": 6}
    assert experiments.scaled(tuned, 6) == pytest.approx(tuned)
    found = experiments.scaled(tuned, 3)
    expected = {"learning_rate": 0.02, "regularization": 0.05, "flip_regularization": 0.15, "n_negatives": 3}
    assert found == pytest.approx(expected)
    for name, value, trial in results.curve(experiments.SCALED, 0):
        base = results.parameters("tuned", name)
        assert base is not None
        ratio = trial.parameters["regularization"] / base["regularization"]
        assert ratio == pytest.approx(value / base.get("n_negatives", 4))


@pytest.mark.parametrize("slow", [1e4, 1e-4], ids=["everywhere", "at the learning rates of the paper"])
def test_a_contender_that_diverges_is_searched_at_lower_rates_or_reported_and_left_out(
    split: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: float
) -> None:
    def stages(slower: float, **_: Any) -> list[Stage]:
        wild = axis("learning_rate", 1e4 if slower == 1 else slow)
        return [Stage("coarse" if slower == 1 else SLOWER, wild.candidates)]

    lines: list[str] = []
    monkeypatch.setattr(experiments, "CONTENDERS", tuple(c for c in CONTENDERS if c.name == "ShiftMC"))
    monkeypatch.setattr(experiments, "paper_stages", stages)
    plan = Plan("world", seeds=1, curve_seeds=1, epochs=2)
    experiments.run(plan, split, tmp_path, n_workers=1, say=lines.append)
    results = Results.read(tmp_path, plan)
    if slow > 1:
        assert any("ShiftMC" in line and "diverged" in line for line in lines)
        assert results.tuned == {}
    else:
        assert results.tuned["ShiftMC"]["parameters"]["learning_rate"] == 1e-4
        assert "every learning rate of the paper's grid diverged for ShiftMC" in describe_plan(results)


def test_a_copy_without_the_values_of_users_has_no_p_values(results: Results, runs: Path, tmp_path: Path) -> None:
    assert 0 <= results.p_value(("tuned", "NBPO"), ("tuned", "ItemPop"), "f1@5") <= 1
    copy = tmp_path / "copy"
    shutil.copytree(runs, copy, ignore=shutil.ignore_patterns("users", "split"))
    copied = Results.read(copy, results.plan)
    assert np.isnan(copied.p_value(("tuned", "NBPO"), ("tuned", "ItemPop"), "f1@5"))


def test_a_copy_without_the_data_can_be_continued(runs: Path, split: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(runs, copy, ignore=shutil.ignore_patterns("users", "split"))
    before = keys(copy, "tuning")
    plan = Plan("world", seeds=3, curve_seeds=2, epochs=3, rungs=(1 / 3, 1.0), quick=True)
    experiments.run(plan, split, copy, n_workers=2, say=lambda _: None)
    assert keys(copy, "tuning") == before
    assert len(keys(copy, "final")) > len(keys(runs, "final"))
