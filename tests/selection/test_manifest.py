"""The manifest of a comparison: what it has, what it refuses, and that the same plan comes out of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl
from truelike.errors import DataError, ParameterError, ParameterWarning, StorageError
from truelike.negatives import Hard
from truelike.selection.manifest import Manifest, digests
from truelike.selection.plan import Plan, chosen_models
from truelike.selection.trials import Trial

MODELS = {"BPR, 5": tl.BPR(n_negatives=5), "hard": tl.BPR(negatives=Hard(5)), "pop": "ItemPop"}


class Mine(tl.ItemKNN):
    pass


class Other(tl.objectives.BPO):
    pass


@pytest.fixture
def plan() -> Plan:
    return Plan(chosen_models(MODELS), "recall@7", "random", "train", 5, 4, 3, {"epochs": 2})


def written(plan: Plan, split: Any, place: Path, **changed: Any) -> Manifest:
    """The manifest after it was written and read, with some of its content changed."""
    path = Manifest.of(plan, {"ml": split}).write(place / "manifest.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    return Manifest.read(path)


def test_the_same_plan_comes_out_of_it(plan: Plan, split: Any, tmp_path: Path) -> None:
    again = written(plan, split, tmp_path).plan()
    assert [each.name for each in again.models] == list(MODELS)
    assert [Trial(each).key for each in again.models] == [Trial(each).key for each in plan.models]
    settings = ("metric", "by", "seen", "n_trials", "seeds", "seed", "fixed")
    assert [getattr(again, name) for name in settings] == [getattr(plan, name) for name in settings]


def test_it_has_versions_and_hashes_that_do_not_depend_on_files(plan: Plan, split: Any, tmp_path: Path) -> None:
    content = written(plan, split, tmp_path).content
    assert {"system", "python", "truelike", "numpy", "numba", "polars"} <= set(content["versions"])
    assert "torch" not in content["versions"]
    split.save(tmp_path / "split")
    assert content["datasets"] == {"ml": {**digests(tl.Split.load(tmp_path / "split")), "by": "random"}}
    assert len(set(digests(split).values())) == 3


def test_it_has_how_a_dataset_was_split_where_by_is_none(tmp_path: Path) -> None:
    plan = Plan(chosen_models("ItemPop"))
    rows = [(user, (user + time) % 20, time) for user in range(20) for time in range(10)]
    timed = tl.read(pl.DataFrame(rows, schema=["user", "item", "time"], orient="row"))
    untimed = tl.read([row[:2] for row in rows])
    splits = {"timed": plan.split(timed), "untimed": plan.split(untimed)}
    splits["own"] = tl.Split(splits["timed"].train, splits["timed"].validation, splits["timed"].test)
    content = written(plan, splits["timed"], tmp_path).content
    assert (content["by"], content["datasets"]["ml"]["by"]) == (None, "time")
    found = Manifest.of(plan, splits).content["datasets"]
    assert [each.get("by") for each in found.values()] == ["time", "random", None]
    Manifest.of(plan, splits).check(plan, splits)


def test_a_hash_covers_ids_weights_times_and_features() -> None:
    rows = [("ann", "tea", 1), ("ann", "rum", 1), ("bob", "tea", 1), ("bob", "gin", 1)]
    kinds = [pl.DataFrame({"item": ["gin", "rum", "tea"], "kind": list(each)}) for each in ("aab", "aba")]
    columns = ["user", "item", "weight"]
    tables = [
        pl.DataFrame(rows, schema=columns, orient="row"),
        pl.DataFrame([(user.upper(), *rest) for user, *rest in rows], schema=columns, orient="row"),
        pl.DataFrame([*rows[:3], ("bob", "gin", 2)], schema=columns, orient="row"),
        pl.DataFrame(rows, schema=["user", "item", "time"], orient="row"),
    ]
    weights: list[Any] = [{"weight": "weight"}] * 3 + [{}]
    found = [digests(tl.Split(tl.read(a, **more)))["train"] for a, more in zip(tables, weights, strict=True)]
    found += [digests(tl.Split(tl.read(tables[0], items=each)))["train"] for each in kinds]
    assert len(set(found)) == 6
    assert digests(tl.Split(tl.read(tables[0], items=kinds[0])))["train"] == found[4]


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_other_data_is_refused_by_the_name_of_its_part(part: str, plan: Plan, split: Any, tmp_path: Path) -> None:
    manifest = written(plan, split, tmp_path)
    hashes = {**manifest.content["datasets"]["ml"], part: "0" * 64}
    other = written(plan, split, tmp_path, datasets={"ml": hashes})
    manifest.check(plan, {"": split})
    with pytest.raises(
        DataError, match=f"the {part} part of ml is not that of the manifest.*expected 000000000000"
    ):
        other.check(plan, {"ml": split})
    with pytest.raises(DataError, match="the manifest is of the datasets ml; a, b given"):
        manifest.check(plan, {"a": split, "b": split})
    with pytest.raises(DataError, match=r"of the datasets a, b; one without a name given\. Give"):
        Manifest.of(plan, {"a": split, "b": split}).check(plan, {"": split})


def test_versions_that_differ_are_said(plan: Plan, split: Any, tmp_path: Path, notes: list[str]) -> None:
    manifest = written(plan, split, tmp_path)
    manifest.check(plan, {"ml": split})
    assert notes == []
    then = {**manifest.content["versions"], "numpy": "1.0", "torch": "9.9"}
    written(plan, split, tmp_path, versions=then).check(plan, {"ml": split})
    [note] = notes
    assert "numpy 2" in note
    assert "then 1.0; torch absent, then 9.9. Figures may differ" in note


def test_code_of_one_s_own_is_named_and_passed_again(split: Any, tmp_path: Path) -> None:
    models = {"mine": Mine(neighbors=7), "objective": tl.SampledMF(objective=Other), "pop": "ItemPop"}
    manifest = written(Plan(chosen_models(models)), split, tmp_path)
    assert "test_manifest:Mine#" in manifest.content["models"]["mine"]["class"]["own"]
    for given, words in (
        (None, "mine of the manifest has code of your own, .*Mine.*Pass it again: models={'mine': ...}"),
        ({"mine": models["mine"]}, "objective of the manifest has code of your own"),
        ({**models, "mine": Mine(neighbors=8)}, "mine is .*8.* and .*7.* in the manifest"),
        ({**models, "new": "BPR"}, "new is not in the manifest, which has the models mine, objective, pop"),
    ):
        with pytest.raises(ParameterError, match=words):
            manifest.plan(given)
    own = {name: models[name] for name in ("mine", "objective")}
    assert [each.model_class for each in manifest.plan(own).models] == [Mine, tl.SampledMF, tl.ItemPop]
    changed = json.loads(re.sub(r"Mine#\w{12}", "Mine#" + "0" * 12, manifest.text))
    with pytest.warns(ParameterWarning, match="mine has code of your own that is defined otherwise"):
        Manifest(changed).plan(own)


def test_fixed_code_is_passed_again(split: Any, tmp_path: Path) -> None:
    plan = Plan(chosen_models("SampledMF"), fixed={"objective": Other, "epochs": 2})
    manifest = written(plan, split, tmp_path)
    with pytest.raises(ParameterError, match=r"the parameter objective of the manifest is .*Other.*Pass it again"):
        manifest.plan()
    assert manifest.plan(fixed={"objective": Other}).fixed == plan.fixed
    with pytest.raises(ParameterError, match="factors is not in the manifest"):
        manifest.plan(fixed={"objective": Other, "factors": 3})


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "is not a manifest"), ("[]", "format 1"), ('{"format": 2}', "format 1"), ('{"format": 1}', "versions")],
)
def test_what_is_no_manifest_is_an_error(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(StorageError, match=words):
        Manifest.read(tmp_path / "m.json")
    with pytest.raises(StorageError, match="cannot read the manifest"):
        Manifest.read(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("models", {}),
        ("models", {"a": 3}),
        ("models", {"a": {"class": "BPR"}}),
        ("datasets", {"a": 1}),
        ("fixed", 1),
    ],
)
def test_content_of_another_kind_is_an_error(
    name: str, value: Any, plan: Plan, split: Any, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match=f"^{name} of the manifest .* cannot be used"):
        written(plan, split, tmp_path, **{name: value})


def test_a_manifest_is_taken_as_a_file_or_as_it_is(plan: Plan, split: Any, tmp_path: Path) -> None:
    manifest = Manifest.of(replace(plan, by=None), {"ml": split})
    path = manifest.write(tmp_path / "manifest.json")
    for given in (manifest, path, str(path)):
        with pytest.raises(DataError, match="the manifest is of the datasets ml; a, b given"):
            tl.compare({"a": split, "b": split}, manifest=given)
    nothing: Any = {"format": 1}
    with pytest.raises(ParameterError, match="manifest is a dict; expected manifest"):
        tl.compare(split, manifest=nothing)
    assert manifest.plan().fixed == Manifest.read(path).plan().fixed


def test_settings_beside_a_manifest_are_an_error(plan: Plan, split: Any, tmp_path: Path) -> None:
    path = Manifest.of(replace(plan, by=None), {"ml": split}).write(tmp_path / "manifest.json")
    for setting, value in (("seeds", 9), ("metric", "ndcg@5"), ("seed", 1)):
        with pytest.raises(
            ParameterError, match=f"{setting} is .*, and the manifest has all settings: leave {setting}"
        ):
            tl.compare(split, manifest=path, **{setting: value})
    other = tl.splits.by_user(tl.synthetic.World(n_users=80, n_items=50, seed=4).dataset(), seed=0)
    with pytest.raises(DataError, match="the train part of the dataset is not that of the manifest"):
        tl.compare(other, manifest=path)
