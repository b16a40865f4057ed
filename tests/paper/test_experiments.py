from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.paper import experiments
from truelike.paper.experiments import VALUES, Results
from truelike.paper.protocol import BY_NAME, CONTENDERS, FULL, METRIC, Plan
from truelike.paper.report import what_was_cut
from truelike.tuning.grids import SLOWER, Stage, axis
from truelike.tuning.trials import Trial, run, score


def keys(runs: Path, kind: str) -> list[str]:
    text = (runs / "world" / kind / "trials.jsonl").read_text()
    return [json.loads(line)["key"] for line in text.splitlines()]


def test_every_part_of_the_plan_is_there(results: Results) -> None:
    assert results.missing() == []
    assert set(results.tuned) == {contender.name for contender in CONTENDERS}
    for contender in CONTENDERS:
        expected = 2 if contender.learns else 1
        assert len(list(results.finals("tuned", contender.name))) == expected
    assert len(list(results.curve("flip_factors", 0))) == 3


def test_no_run_is_done_twice_and_a_second_call_does_none(runs: Path, split: Any) -> None:
    before = {kind: keys(runs, kind) for kind in ("tuning", "final")}
    assert all(len(found) == len(set(found)) for found in before.values())
    plan = Plan("world", seeds=2, curve_seeds=2, epochs=3, rungs=(1 / 3, 1.0), quick=True)
    experiments.run(plan, split, runs, jobs=1, nice=0, say=lambda _: None)
    assert {kind: keys(runs, kind) for kind in ("tuning", "final")} == before


def test_the_search_never_had_the_test_part(runs: Path) -> None:
    assert tl.Split.load(runs / "world" / "tuning" / "split").test.n_interactions == 0
    text = (runs / "world" / "tuning" / "trials.jsonl").read_text()
    assert '"test"' not in text


def test_a_tuned_setting_run_again_gives_the_recorded_figures_bit_for_bit(results: Results, split: Any) -> None:
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
            for told in stages
            for key in told["candidates"]
            if (record := results.records[key])["parameters"]["epochs"] == 3
        ]
        assert results.tuned[name][METRIC] == max(score(record, METRIC) for record in full)


def test_nbpo_without_flips_is_nbpo_s_setting_with_l_0(results: Results) -> None:
    with_flips, without = (results.parameters("tuned", name) for name in ("NBPO", "NBPO, L = 0"))
    assert with_flips is not None
    assert without == {**with_flips, "flip_factors": 0}


def test_each_user_s_figures_average_to_the_recorded_ones(results: Results) -> None:
    users = results.per_user("tuned", "NBPO")
    assert users is not None
    assert users[:, 0].mean() == pytest.approx(results.mean("tuned", "NBPO", "f1@2"), abs=1e-7)
    assert users[:, 7].mean() == pytest.approx(results.mean("tuned", "NBPO", "ndcg@20"), abs=1e-7)
    assert np.isfinite(users).all()


def test_the_authors_settings_are_those_of_the_release() -> None:
    results = Results(FULL["amazon"], {}, {})
    made: Any = next(results.finals("authors", "NBPO")).make()
    assert (made.learning_rate, made.regularization, made.flip_regularization) == (0.05, 1.0, 5.0)
    assert (made.factors, made.flip_factors, made.batch_size, made.epochs) == (50, 50, 5_000, 200)
    assert (made.decay, made.order, made.positives, made.init) == (0.99, "file", "each", "paper")
    films: Any = next(Results(FULL["movielens"], {}, {}).finals("authors", "NBPO-o")).make()
    assert (films.learning_rate, films.regularization, films.flip_regularization) == (0.001, 1.0, 5.0)


def test_the_full_plan_is_the_paper_s(results: Results) -> None:
    assert FULL["amazon"].seeds == FULL["movielens"].seeds == 10
    assert FULL["amazon"].rungs == (1.0,)
    assert FULL["amazon"].patience is None
    assert VALUES["flip_factors"] == (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)
    assert {"ItemPop", "ItemKNN", "BPR", "WBPR", "ShiftMC", "NBPO"} <= set(BY_NAME)


def test_a_contender_that_diverges_everywhere_is_told_and_left_out(
    split: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    wild = tuple(c for c in CONTENDERS if c.name in ("ItemPop", "ShiftMC"))
    monkeypatch.setattr(experiments, "CONTENDERS", wild)
    monkeypatch.setattr(experiments, "paper_stages", lambda **_: [experiments.axis("learning_rate", 1e4)])
    experiments.run(
        Plan("world", seeds=1, curve_seeds=1, epochs=2), split, tmp_path, jobs=1, nice=0, say=said.append
    )
    assert any("every trial of ShiftMC diverged" in line for line in said)
    assert "ShiftMC" not in json.loads((tmp_path / "world" / "tuned.json").read_text())


def test_a_contender_that_diverges_at_every_rate_of_the_paper_is_searched_at_slower_ones(
    split: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stages(slower: float, **_: Any) -> list[Stage]:
        wild = axis("learning_rate", 1e4) if slower == 1 else axis("learning_rate", 1e-4)
        return [Stage("coarse" if slower == 1 else SLOWER, wild.candidates)]

    monkeypatch.setattr(experiments, "CONTENDERS", tuple(c for c in CONTENDERS if c.name == "ShiftMC"))
    monkeypatch.setattr(experiments, "paper_stages", stages)
    plan = Plan("world", seeds=1, curve_seeds=1, epochs=2)
    experiments.run(plan, split, tmp_path, jobs=1, nice=0, say=lambda _: None)
    results = Results.read(tmp_path, plan)
    assert results.tuned["ShiftMC"]["parameters"]["learning_rate"] == 1e-4
    assert "every learning rate of the paper's grid diverged for ShiftMC" in what_was_cut(results)


def test_curves_vary_one_parameter_only(results: Results) -> None:
    base = results.parameters("tuned", "BPR")
    assert base is not None
    for name, value, trial in results.curve("factors", 1):
        if name == "BPR":
            assert trial == Trial("BPR", {**base, "factors": value, "seed": 1})


def test_p_values_outlive_the_users_figures(results: Results, runs: Path, tmp_path: Path) -> None:
    import shutil

    found = results.p_value("tuned", "NBPO", "ItemPop", "f1@5")
    assert 0 <= found <= 1
    copy = tmp_path / "copy"
    shutil.copytree(runs, copy, ignore=shutil.ignore_patterns("users", "split"))
    kept = Results.read(copy, results.plan)
    assert kept.per_user("tuned", "NBPO") is None
    assert kept.p_value("tuned", "NBPO", "ItemPop", "f1@5") == found
    kept.tests.clear()
    assert np.isnan(kept.p_value("tuned", "NBPO", "ItemPop", "f1@5"))


def test_a_copy_without_the_data_goes_on(runs: Path, split: Any, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(runs, copy, ignore=shutil.ignore_patterns("users", "split"))
    before = keys(copy, "tuning")
    plan = Plan("world", seeds=3, curve_seeds=2, epochs=3, rungs=(1 / 3, 1.0), quick=True)
    experiments.run(plan, split, copy, jobs=2, nice=0, say=lambda _: None)
    assert keys(copy, "tuning") == before
    assert len(keys(copy, "final")) > len(keys(runs, "final"))
