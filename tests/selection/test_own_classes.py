"""A model, an objective or a network of one's own is tuned like those of the library."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import truelike as tl
from truelike import objectives
from truelike.errors import ParameterError
from truelike.negatives import Hard
from truelike.selection import executor, references
from truelike.selection.trials import Trial
from truelike.selection.variants import variant

pytestmark = pytest.mark.slow


@pytest.fixture
def no_local_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a trial was run in this process")

    monkeypatch.setattr(executor, "run_safely", refuse)


def lines(directory: Path) -> list[Any]:
    return [json.loads(line) for line in (directory / "trials.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("no_local_trials")
def test_a_class_of_a_module_is_tuned_in_worker_processes(own: Any, split: Any, tmp_path: Path) -> None:
    found = tl.tune(own.RandomWalk, split, n_trials=3, directory=tmp_path / "runs", n_workers=2)
    assert type(found.make()) is own.RandomWalk
    assert 0.1 <= found.parameters["restart"] <= 0.9
    records = lines(tmp_path / "runs")
    assert {record["class"] for record in records} == {"own_models_for_tests:RandomWalk"}
    assert len({record["key"] for record in records}) == 3


@pytest.mark.usefixtures("no_local_trials")
def test_an_objective_of_a_module_is_tuned_in_worker_processes(own: Any, split: Any, tmp_path: Path) -> None:
    found = tl.tune(
        tl.SampledMF, split, n_trials=2, directory=tmp_path / "runs", n_workers=1,
        search_space={"regularization": [1.0, 5.0]}, objective=own.Squashed, epochs=2, batch_size=200,
    )  # fmt: skip
    assert found.make().objective is own.Squashed
    assert lines(tmp_path / "runs")[0]["settings"]["objective"] == "own_models_for_tests:Squashed"


@pytest.mark.usefixtures("no_local_trials")
def test_a_class_that_is_trained_in_epochs_is_tuned_and_compared_in_worker_processes(
    own: Any, split: Any, tmp_path: Path
) -> None:
    found = tl.tune(own.Vectors, split, n_trials=2, directory=tmp_path / "runs", n_workers=1, epochs=6)
    assert type(found.make()) is own.Vectors
    assert all(1 <= record["best_epoch"] <= record["epochs"] <= 6 for record in lines(tmp_path / "runs"))
    compared = tl.compare(split, [own.Vectors, "ItemPop"], n_trials=1, n_workers=1, epochs=6, seeds=2)
    assert {"Vectors", "ItemPop"} <= set(compared.table["model"])


@pytest.mark.usefixtures("no_workers")
def test_a_class_of_a_function_that_is_trained_in_epochs_is_run_in_this_process(
    own: Any, split: Any, notes: list[str]
) -> None:
    class Local(own.Vectors):
        pass

    assert isinstance(tl.tune(Local, split, n_trials=2, epochs=3).make(), Local)
    assert tl.compare(split, [Local], n_trials=1, epochs=3).best == "Local"
    assert [note.partition(":")[0] for note in notes if "run in this process" in note] == ["Local", "Local"]


@pytest.mark.usefixtures("no_workers")
def test_a_class_that_workers_cannot_import_is_run_in_this_process(split: Any, notes: list[str]) -> None:
    @dataclass(kw_only=True, eq=False, repr=False)
    class RandomWalk(tl.ItemKNN):
        restart: float = tl.parameters.number(0.5, low=0.0, high=1.0)
        search_space: ClassVar[dict[str, Any]] = {"restart": (0.1, 0.9)}

    class Squashed(objectives.BPO):
        pass

    assert isinstance(tl.tune(RandomWalk, split, n_trials=2).make(), RandomWalk)
    template = tl.SampledMF(objective=Squashed, epochs=2, batch_size=200)
    found = tl.tune(template, split, n_trials=2, search_space={"regularization": [1.0, 5.0]})
    assert found.make().objective is Squashed
    said = [note for note in notes if "run in this process" in note]
    assert [note.partition(":")[0] for note in said] == ["RandomWalk", "SampledMF"]


def test_a_class_that_a_worker_fails_to_import_is_run_in_this_process(
    own: Any, split: Any, tmp_path: Path, notes: list[str]
) -> None:
    (tmp_path / "modules" / "own_models_for_tests.py").unlink()
    found = tl.tune(own.RandomWalk, split, n_trials=2, n_workers=1)
    assert type(found.make()) is own.RandomWalk
    assert sum("No module named 'own_models_for_tests'" in note for note in notes) == 1


def test_classes_of_one_name_do_not_share_trials() -> None:
    def made(factor: float, *, other: bool = False) -> Any:
        class Mine(objectives.BPO):
            @staticmethod
            def positive(r: Any, g: Any) -> Any:
                return factor * r

            if other:
                curvature = 0.5

        return Mine

    def key(objective: Any) -> str:
        return Trial(tl.SampledMF, {"objective": objective}).key

    assert references.reference(made(1)) == references.reference(made(2))
    assert len({key(made(1)), key(made(2)), key(made(1, other=True)), key("BPO")}) == 4
    assert key(made(1)) == key(made(1))


def test_a_changed_base_class_changes_the_key() -> None:
    def made(length: int) -> Any:
        class Base(tl.ItemKNN):
            steps = length

        class RandomWalk(Base):
            def _make_scorer(self) -> Any:
                return super()._make_scorer()

        return RandomWalk

    assert Trial(made(2)).key == Trial(made(2)).key != Trial(made(3)).key


def test_an_unfitted_model_is_a_template_whose_changed_parameters_are_fixed() -> None:
    template = variant(tl.BPR(factors=8, negatives=Hard(5), seed=3, n_jobs=2))
    assert template.name in ("BPR:factors=8:negatives=hard:5", "BPR:negatives=hard:5:factors=8")
    assert template.parameters == {"factors": 8, "negatives": Hard(5)}
    assert Trial(template).message()["own"] == {"factors": 8, "negatives": "hard:5"}


@pytest.mark.parametrize("wrong", [3, int, "Nobody", [tl.BPR]])
def test_what_is_not_a_model_is_an_error_that_says_what_is(wrong: Any, split: Any) -> None:
    with pytest.raises(ParameterError, match=r"is not a model; give a name|there is no model 'Nobody'"):
        tl.tune(wrong, split)


def test_an_unfinished_class_is_an_error_that_names_what_it_lacks(split: Any) -> None:
    class Unfinished(tl.Recommender):
        pass

    with pytest.raises(ParameterError, match=r"Unfinished does not implement .*_make_scorer"):
        tl.tune(Unfinished, split)


def test_the_metric_is_set_for_models_with_epochs_only() -> None:
    @dataclass(kw_only=True, eq=False, repr=False)
    class Near(tl.ItemKNN):
        metric: str = "cosine"

    assert variant(Near).of_training("f1@2", 3) == {}
    assert variant(Near(metric="dot")).parameters == {"metric": "dot"}
    assert variant(tl.BPR).of_training("f1@2", 3) == {"seed": 3, "metric": "f1@2"}
    assert Trial(Near, metric="f1@2").key != Trial(Near, metric="f1@3").key
