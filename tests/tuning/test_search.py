from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.errors import ParameterError
from truelike.training.trainer import DivergedError
from truelike.tuning import search as module
from truelike.tuning.grids import Stage, axis
from truelike.tuning.search import climb, staged_search
from truelike.tuning.spaces import draw
from truelike.tuning.trials import Trial, run, score

QUICK: dict[str, Any] = {"factors": 4, "epochs": 9, "batch_size": 200, "patience": None}


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.split.by_user(tl.synthetic.World(n_users=80, n_items=50, seed=3).log(), seed=0)


class Here:
    """A runner without processes, which counts what it ran."""

    def __init__(self, split: Any) -> None:
        self.split, self.records, self.ran = split, {}, []  # type: ignore[var-annotated]

    def run(self, trials: list[Trial]) -> list[Any]:
        for trial in trials:
            if trial.key not in self.records:
                self.ran.append(trial)
                self.records[trial.key] = run(trial, self.split)[0]
        return [self.records[trial.key] for trial in trials]


def test_each_grid_is_searched_around_the_best_of_those_before(split: Any) -> None:
    runner: Any = Here(split)
    asked: list[Any] = []

    def around(best: dict[str, Any]) -> list[dict[str, Any]]:
        asked.append(best["learning_rate"])
        return [{"regularization": value} for value in (0.1, 10.0)]

    stages = [axis("learning_rate", 0.001, 0.05), Stage("around", around)]
    found = staged_search(runner, "BPR", stages, metric="ndcg@20", fixed=QUICK)
    first = {record["parameters"]["learning_rate"]: score(record, "ndcg@20") for record in found.records[:2]}
    assert asked == [max(first, key=first.__getitem__)]
    assert found.score == max(score(record, "ndcg@20") for record in found.records)
    assert [told["stage"] for told in found.stages] == ["learning_rate", "around"]
    assert found.trials.columns[:2] == ["ndcg@20", "seconds"]
    assert found.trials["ndcg@20"][0] == found.score
    assert found.make().learning_rate == asked[0]


def test_halving_lets_the_best_third_go_on(split: Any) -> None:
    runner: Any = Here(split)
    candidates = [{**QUICK, "epochs": 45, "monitor": "f1@2", "seed": seed} for seed in range(7)]
    found = climb(runner, "BPR", candidates, "f1@2", (1 / 9, 1 / 3, 1.0))
    assert [trial.make().epochs for trial in runner.ran] == [5] * 7 + [15] * 3 + [45]  # type: ignore[attr-defined]
    by_first = sorted(found.records[:7], key=lambda record: -score(record, "f1@2"))[:3]
    assert {r["parameters"]["seed"] for r in by_first} == {r["parameters"]["seed"] for r in found.records[7:10]}
    assert len(found.latest) == 7
    assert len(found.finalists) == 1


@pytest.mark.parametrize("search", ["halving", "optuna"])
def test_a_search_again_gives_the_same_and_runs_nothing(search: Any, split: Any, tmp_path: Path) -> None:
    if search == "optuna":
        pytest.importorskip("optuna", reason="optuna is not installed")
    ran: list[Any] = []
    space = {"learning_rate": (0.001, 0.1), "n_negatives": (1, 4), "factors": [4, 8]}

    def call() -> Any:
        return tl.tune(
            "NBPO", split.train, split.validation, search=search, n_trials=6, space=space, directory=tmp_path,
            jobs=2, report=ran.append, epochs=3, batch_size=200,
        )  # fmt: skip

    first = call()
    count = len(ran)
    again = call()
    assert len(ran) == count > 0
    assert first.parameters == again.parameters
    assert 0.001 <= first.parameters["learning_rate"] <= 0.1
    assert first.score == again.score


def test_the_number_of_processes_makes_no_difference(split: Any) -> None:
    found = [
        tl.tune("BPR", split.train, split.validation, n_trials=4, jobs=jobs, epochs=2, batch_size=200)
        for jobs in (1, 2)
    ]
    assert found[0].parameters == found[1].parameters
    assert found[0].score == found[1].score


def test_the_best_of_a_search_fitted_by_hand_has_the_score_that_it_was_chosen_for(split: Any) -> None:
    found = tl.tune(tl.BPR, split.train, split.validation, n_trials=3, metric="recall@7", epochs=2, batch_size=200)
    model = found.make().fit(split.train, validation=split.validation)
    measured = tl.evaluate(model, split.validation, ks=(7,), metrics=["recall"])["recall@7"]
    assert measured == pytest.approx(found.score, abs=1e-12)


def test_the_paper_s_grids_are_a_search_too(split: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runner: Any = Here(split)
    monkeypatch.setattr(
        module, "paper_stages", lambda **kind: [axis("learning_rate", 0.01), axis("n_negatives", 1)]
    )
    found = module.paper_search(runner, "NBPO", fixed={"epochs": 2})
    made: Any = found.make()
    assert (made.recipe, made.patience, made.monitor, made.init) == ("paper", None, "f1@2", "paper")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"metric": "good"}, "ndcg@20"),
        ({"search": "magic"}, "'halving', 'optuna' or 'paper'"),
        ({"n_trials": 0}, "from 1 up"),
        ({"space": {"factors": (5, 1)}}, r"\(low, high\)"),
        ({"space": {"factor": [1]}}, "factor"),
        ({"fuctors": 5}, "fuctors"),
    ],
)
def test_wrong_words_are_errors_that_say_the_right_ones(wrong: Any, words: str, split: Any) -> None:
    with pytest.raises((ParameterError, TypeError), match=words):
        tl.tune("BPR", split.train, split.validation, **wrong)


def test_a_model_with_nothing_to_search_says_so(split: Any) -> None:
    with pytest.raises(ParameterError, match="nothing to search"):
        tl.tune("ItemPop", split.train, split.validation)
    with pytest.raises(ParameterError, match="ItemKNN has none"):
        tl.tune("ItemKNN", split.train, split.validation, search="paper")


def test_a_search_in_which_all_diverged_says_so(split: Any) -> None:
    with pytest.raises(DivergedError, match="every trial"):
        tl.tune("ShiftMC", split.train, split.validation, n_trials=2, space={"learning_rate": [90.0]}, epochs=2)


def test_draws_stay_in_their_ranges_and_do_not_depend_on_each_other() -> None:
    space = {"a": (0.01, 10.0), "b": (1, 3), "c": ["x", "y"], "d": (0.0, 0.5)}
    drawn = [draw(space, 0, n) for n in range(200)]
    assert all(0.01 <= d["a"] <= 10 and d["b"] in (1, 2, 3) and 0 <= d["d"] <= 0.5 for d in drawn)
    assert {d["b"] for d in drawn} == {1, 2, 3}
    assert {d["c"] for d in drawn} == {"x", "y"}
    assert 0.3 < sum(d["a"] < 0.316 for d in drawn) / 200 < 0.7  # by the logarithm
    assert drawn[7] == draw(space, 0, 7) != draw(space, 1, 7)


def test_tune_has_no_place_for_a_test_part(split: Any) -> None:
    with pytest.raises((ParameterError, TypeError), match="test"):
        tl.tune("BPR", split.train, split.validation, test=split.test)


def test_a_rung_of_a_few_epochs_tells_nothing_and_is_left_out(split: Any) -> None:
    runner: Any = Here(split)
    candidates = [{**QUICK, "epochs": 16, "monitor": "f1@2", "seed": seed} for seed in range(4)]
    climb(runner, "BPR", candidates, "f1@2", (1 / 9, 1 / 3, 1.0))
    assert [trial.make().epochs for trial in runner.ran] == [5] * 4 + [16] * 2


def test_if_the_best_of_a_rung_diverges_later_the_next_one_goes_on(split: Any) -> None:
    class Wild(Here):
        def run(self, trials: list[Trial]) -> list[Any]:
            found = super().run(trials)
            late = [t.make().epochs == 45 and t.parameters["seed"] == self.worst for t in trials]  # type: ignore[attr-defined]
            return [
                {"key": r["key"], "parameters": r["parameters"], "error": "diverged"} if bad else r
                for r, bad in zip(found, late, strict=True)
            ]

    candidates = [{**QUICK, "epochs": 45, "monitor": "f1@2", "seed": seed} for seed in range(3)]
    tame: Any = Here(split)
    first = climb(tame, "BPR", candidates, "f1@2", (1 / 9, 1.0))
    runner: Any = Wild(split)
    runner.worst = first.finalists[0]["parameters"]["seed"]
    [found] = climb(runner, "BPR", candidates, "f1@2", (1 / 9, 1.0)).finalists
    assert found["parameters"]["seed"] != runner.worst
    assert score(found, "f1@2") > 0


def test_a_fixed_parameter_is_not_searched_even_by_a_grid_of_it(split: Any) -> None:
    runner: Any = Here(split)
    found = staged_search(runner, "BPR", [axis("factors", 8, 16)], metric="f1@2", fixed=QUICK)
    assert found.parameters["factors"] == 4
    assert len(runner.ran) == 1


def test_numbers_of_numpy_are_numbers(split: Any) -> None:
    space = {"neighbors": [np.int64(5), np.int64(6)]}
    found = tl.tune("itemknn", split.train, split.validation, n_trials=2, space=space, jobs=1, metric="recall@7")
    assert found.parameters["neighbors"] in (5, 6)
    assert 0 < found.score < 1


@pytest.mark.parametrize("taken", ["monitor", "n_jobs"])
def test_what_tune_decides_itself_cannot_be_fixed(taken: str, split: Any) -> None:
    fixed: Any = {taken: 3}
    with pytest.raises(ParameterError, match=taken):
        tl.tune("BPR", split.train, split.validation, **fixed)
