from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike.errors import DataError, DivergedError, ParameterError
from truelike.selection import tune as module
from truelike.selection.grids import Stage, axis
from truelike.selection.progress import TrialLog
from truelike.selection.search import halving, run_search, staged
from truelike.selection.space import SearchSpace
from truelike.selection.trials import Trial, run, score
from truelike.selection.variants import Model, variant

QUICK: dict[str, Any] = {"factors": 4, "epochs": 9, "batch_size": 200, "patience": None}
BPR = variant("BPR")
LOG = TrialLog("", 1, quiet=True)


def default_space(model: Model, fixed: dict[str, Any]) -> dict[str, Any]:
    return SearchSpace.of(variant(model), fixed).axes


class Here:
    """An executor without processes that keeps the trials that it ran."""

    def __init__(self, split: Any) -> None:
        self.split, self.ran = split, list[Trial]()

    def run(self, trials: list[Trial]) -> None:
        for trial in trials:
            known = [each.record for each in self.ran if each.key == trial.key]
            trial.record = known[0] if known else run(trial, self.split)[0]
            self.ran += [] if known else [trial]

    def halve(self, candidates: list[Any], rungs: tuple[float, ...]) -> Any:
        """The result of successive halving."""
        steps = halving(BPR, candidates, "f1@2", rungs)
        while True:
            try:
                self.run(next(steps))
            except StopIteration as end:
                return end.value

    def search(self, stages: list[Stage], metric: str) -> Any:
        """The result of a search by stages."""
        return run_search(staged(BPR, stages, metric=metric, fixed=QUICK, log=LOG), self.run)


def test_each_grid_is_searched_around_the_best_setting_so_far(split: Any) -> None:
    runner: Any = Here(split)
    asked: list[Any] = []

    def around(best: dict[str, Any]) -> list[dict[str, Any]]:
        asked.append(best["learning_rate"])
        return [{"regularization": value} for value in (0.1, 10.0)]

    stages = [axis("learning_rate", 0.001, 0.05), Stage("around", around)]
    found = runner.search(stages, "ndcg@20")
    first = {record["parameters"]["learning_rate"]: score(record, "ndcg@20") for record in found.records[:2]}
    assert asked[-1] == max(first, key=first.__getitem__)  # asked before for the number of its candidates
    assert found.score == max(score(record, "ndcg@20") for record in found.records)
    assert [told["stage"] for told in found.stages] == ["learning_rate", "around"]
    assert found.trials.columns[:2] == ["ndcg@20", "seconds"]
    assert found.trials["ndcg@20"][0] == found.score
    assert found.make().learning_rate == asked[-1]


def test_the_best_third_of_a_rung_goes_on(split: Any) -> None:
    runner: Any = Here(split)
    few = [{**QUICK, "epochs": 16, "metric": "f1@2", "seed": seed} for seed in range(4)]
    runner.halve(few, (1 / 9, 1 / 3, 1.0))  # a rung of fewer than five epochs is left out
    assert [trial.make().epochs for trial in runner.ran] == [5] * 4 + [16] * 2
    runner: Any = Here(split)
    candidates = [{**QUICK, "epochs": 45, "metric": "f1@2", "seed": seed} for seed in range(7)]
    found = runner.halve(candidates, (1 / 9, 1 / 3, 1.0))
    assert [trial.make().epochs for trial in runner.ran] == [5] * 7 + [15] * 3 + [45]  # type: ignore[attr-defined]
    by_first = sorted(found.trials[:7], key=lambda trial: -trial.score("f1@2"))[:3]
    assert {t.parameters["seed"] for t in by_first} == {t.parameters["seed"] for t in found.trials[7:10]}
    assert len(found.latest) == 7
    assert len(found.finalists) == 1


@pytest.mark.parametrize("search", ["halving", "optuna"])
def test_the_defaults_are_the_first_candidate(search: Any, split: Any) -> None:
    if search == "optuna":
        pytest.importorskip("optuna", reason="optuna is not installed")
    found = tl.tune("IALS", split, search=search, n_trials=1, n_workers=1)
    assert tl.IALS().get_params() == {**found.make().get_params(), "metric": "ndcg@20", "n_jobs": -1}


@pytest.mark.parametrize("search", ["halving", "optuna"])
def test_a_repeated_search_gives_the_same_result_and_runs_nothing(search: Any, split: Any, tmp_path: Path) -> None:
    if search == "optuna":
        pytest.importorskip("optuna", reason="optuna is not installed")
    ran: list[Any] = []
    space = {"learning_rate": (0.001, 0.1), "n_negatives": (1, 4), "factors": [4, 8]}

    def call() -> Any:
        return tl.tune(
            "NBPO", split, search=search, n_trials=6, search_space=space, directory=tmp_path,
            n_workers=2, report=ran.append, epochs=3, batch_size=200,
        )  # fmt: skip

    first = call()
    count = len(ran)
    again = call()
    assert len(ran) == count > 0
    assert first.parameters == again.parameters
    assert 0.001 <= first.parameters["learning_rate"] <= 0.1
    assert first.score == again.score


def test_the_number_of_processes_does_not_change_the_result(split: Any) -> None:
    found = [
        tl.tune("BPR", split, n_trials=4, n_workers=n_workers, epochs=2, batch_size=200) for n_workers in (None, 2)
    ]
    assert found[0].parameters == found[1].parameters
    assert found[0].score == found[1].score


def test_the_paper_s_grids_use_the_paper_s_recipe(split: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runner: Any = Here(split)
    monkeypatch.setattr(
        module, "paper_stages", lambda **kind: [axis("learning_rate", 0.01), axis("n_negatives", 1)]
    )
    found = run_search(module.paper_search(variant("NBPO"), fixed={"epochs": 2}, log=LOG), runner.run)
    made: Any = found.make()
    assert (made.recipe, made.patience, made.metric, made.init) == ("paper", None, "f1@2", "paper")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"metric": "good"}, "ndcg@20"),
        ({"search": "magic"}, "'halving', 'optuna' or 'paper'"),
        ({"n_trials": 0}, "n_trials is 0"),
        ({"search_space": {"factors": (5, 1)}}, r"\(low, high\)"),
        ({"search_space": {"factors": []}}, r"\(low, high\)"),
        ({"search_space": {"factor": [1]}}, "did you mean 'factors'"),
        ({"n_workers": 0}, "n_workers is 0"),
        ({"n_workers": 1.5}, "n_workers is 1.5"),
        ({"seed": -1}, "seed is -1"),
        ({"factors": -3}, "factors is -3"),
        ({"fuctors": 5}, "did you mean 'factors'"),
    ],
)
def test_wrong_arguments_are_errors_that_name_them(wrong: Any, words: str, split: Any) -> None:
    with pytest.raises(ParameterError, match=words):
        tl.tune("BPR", split, **wrong)


def test_a_model_with_nothing_to_search_is_an_error(split: Any) -> None:
    with pytest.raises(ParameterError, match="nothing to search"):
        tl.tune("ItemPop", split)
    with pytest.raises(ParameterError, match="ItemKNN does not have them"):
        tl.tune("ItemKNN", split, search="paper")


def test_a_search_whose_trials_all_diverge_is_an_error(split: Any) -> None:
    with pytest.raises(DivergedError, match="every trial"):
        tl.tune("ShiftMC", split, n_trials=2, search_space={"learning_rate": [90.0]}, epochs=2)


def test_draws_are_within_their_ranges_and_independent() -> None:
    space = SearchSpace({"a": (0.01, 10.0), "b": (1, 3), "c": ["x", "y"], "d": (0.0, 0.5)})
    drawn = [space.draw(0, n) for n in range(200)]
    assert all(0.01 <= d["a"] <= 10 and d["b"] in (1, 2, 3) and 0 <= d["d"] <= 0.5 for d in drawn)
    assert {d["b"] for d in drawn} == {1, 2, 3}
    assert {d["c"] for d in drawn} == {"x", "y"}
    assert 0.3 < sum(d["a"] < 0.316 for d in drawn) / 200 < 0.7  # by the logarithm
    assert drawn[7] == space.draw(0, 7) != space.draw(1, 7)


def test_tune_takes_a_split_and_says_how_to_make_one(split: Any) -> None:
    with pytest.raises(DataError, match=r"tune takes a Split, not Dataset: tl.splits.by_user\(data\)"):
        tl.tune("BPR", split.train)
    with pytest.raises(DataError, match=r"not list: tl.Split\(tl.read\(train\), tl.read\(validation\)"):
        tl.tune("BPR", [("ann", "tea")])  # type: ignore[arg-type]


def test_flip_parameters_are_searched_only_where_they_have_an_effect() -> None:
    flips = {"flip_factors", "flip_regularization"}
    assert flips <= set(default_space("NBPO", {}))
    assert not flips & set(default_space("BPR", {}))
    assert not flips & set(default_space("NBPO", {"flip_factors": 0}))
    assert "flip_rate" in default_space("ShiftMC", {})
    assert "flip_rate" not in default_space("NBPO", {})
    assert "factors" not in default_space(tl.BPR(factors=8), {})


def test_if_the_best_of_a_rung_diverges_later_the_next_one_is_tried(split: Any) -> None:
    class Wild(Here):
        worst = -1

        def run(self, trials: list[Trial]) -> None:
            super().run(trials)
            for trial in trials:
                if trial.parameters["epochs"] == 45 and trial.parameters["seed"] == self.worst:
                    trial.record = {"key": trial.key, "error": "diverged"}

    candidates = [{**QUICK, "epochs": 45, "metric": "f1@2", "seed": seed} for seed in range(3)]
    runner = Wild(split)
    Wild.worst = runner.halve(candidates, (1 / 9, 1.0)).finalists[0].parameters["seed"]
    [found] = runner.halve(candidates, (1 / 9, 1.0)).finalists
    assert found.parameters["seed"] != Wild.worst
    assert found.score("f1@2") > 0


def test_a_fixed_parameter_is_not_searched(split: Any) -> None:
    runner: Any = Here(split)
    found = runner.search([axis("factors", 8, 16)], "f1@2")
    assert found.parameters["factors"] == 4
    assert len(runner.ran) == 1


def test_a_class_with_a_required_parameter_is_tuned_from_its_defaults(split: Any) -> None:
    @dataclass(kw_only=True, eq=False, repr=False)
    class Needy(tl.ItemKNN):
        strength: float

    found = tl.tune(Needy, split, n_trials=2, n_workers=1, strength=1.0)
    assert found.parameters["strength"] == 1.0
