from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike import objectives
from truelike.errors import DataError, ParameterError, StorageError
from truelike.evaluation.significance import holm, paired_t
from truelike.models.registry import REGISTRY
from truelike.selection.comparison_page import protocol, split_used
from truelike.selection.plan import chosen_models
from truelike.selection.trials import score

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {"epochs": 4, "batch_size": 200, "n_trials": 3, "seeds": 2}


def lines(directory: Path, kind: str) -> list[Any]:
    return [json.loads(line) for line in (directory / kind / "trials.jsonl").read_text().splitlines()]


def of(records: list[Any], model: str) -> list[Any]:
    return [record for record in records if record["model"] == model]


def test_every_model_has_the_same_number_of_candidates_and_one_with_a_seed_several_final_runs(ran: Any) -> None:
    assert {each.model: each.candidates for each in ran.found.results} == {"ItemPop": 1, "ItemKNN": 3, "BPR": 3}
    tried = of(lines(ran.directory, "tuning"), "BPR")
    assert len({record["settings"]["learning_rate"] for record in tried}) == 3
    assert any(record["settings"]["learning_rate"] == tl.BPR().learning_rate for record in tried)  # as it is
    assert tl.Split.load(ran.directory / "tuning" / "split").test.n_interactions == 0
    assert not any("test" in record for record in lines(ran.directory, "tuning"))
    final = lines(ran.directory, "final")
    assert sorted(record["settings"]["seed"] for record in of(final, "BPR")) == [0, 1]
    assert len(of(final, "ItemKNN")) == len(of(final, "ItemPop")) == 1


def test_the_table_equals_fitting_and_evaluating_by_hand(ran: Any) -> None:
    split = tl.splits.by_user(ran.data, validation=0.1, test=0.1, rounding="random", seed=0)
    rows = {row["model"]: row for row in ran.found.table.to_dicts()}
    bpr = next(each for each in ran.found.results if each.model == "BPR")
    by_seed = []
    for seed in (0, 1):
        model = tl.BPR(**{**bpr.parameters, "seed": seed}).fit(split.train, validation=split.validation)
        by_seed.append(tl.evaluate(model, split, metrics=["ndcg", "coverage"]))
    each_user = np.mean([result.values["ndcg@20"] for result in by_seed], axis=0)
    assert rows["BPR"]["ndcg@20"] == pytest.approx(each_user.mean(), abs=1e-6)
    assert rows["BPR"]["coverage@20"] == pytest.approx(np.mean([r["coverage@20"] for r in by_seed]))
    assert rows["BPR"]["ndcg@20 low"] < rows["BPR"]["ndcg@20"] < rows["BPR"]["ndcg@20 high"]
    values = [row["ndcg@20"] for row in ran.found.table.to_dicts()]
    assert values == sorted(values, reverse=True)
    assert all(row["seconds"] >= 0 and (row["mb"] is None or row["mb"] > 10) for row in rows.values())


def test_trials_with_and_without_validation_items_are_kept_apart(tmp_path: Path) -> None:
    data = tl.synthetic.World(n_users=100, n_items=50).dataset()
    split = tl.splits.by_user(data, seed=0)
    model = tl.ItemPop().fit(split.train)
    found = {}
    for seen in ("train", "validation", "train"):
        found[seen] = tl.compare(split, "ItemPop", seen=seen, n_trials=1, n_workers=1, directory=tmp_path)
        expected = tl.evaluate(model, split, seen=seen)["ndcg@20"]
        assert found[seen].table["ndcg@20"][0] == pytest.approx(expected, abs=1e-6)
        assert [record["left_out"] for record in found[seen].results[0].records] == [
            ["train"] if seen == "train" else ["train", "validation"]
        ]
    assert len(lines(tmp_path, "final")) == 2, "the third comparison found its trial"
    assert "without the train items" in split_used(found["train"])
    assert "without the train and validation items" in split_used(found["validation"])
    wrong: Any = "test"
    with pytest.raises(ParameterError, match="seen is 'test'"):
        tl.compare(split, "ItemPop", seen=wrong)


def test_p_values_are_paired_over_users_and_corrected(ran: Any) -> None:
    best = ran.found.chosen
    others = [each for each in ran.found.ranked if each is not best]
    p = holm([paired_t(best.of("ndcg@20"), other.of("ndcg@20")) for other in others])
    expected = {best.model: None, **{other.model: value for other, value in zip(others, p, strict=True)}}
    table = ran.found.table
    assert dict(zip(table["model"], table["p_holm"], strict=True)) == expected


def test_the_best_model_is_that_of_validation_by_the_mean_of_its_final_runs(ran: Any) -> None:
    final = lines(ran.directory, "final")
    means = {
        model: np.mean([score(record, "ndcg@20") for record in of(final, model)])
        for model in ("ItemPop", "ItemKNN", "BPR")
    }
    assert ran.found.best == max(means, key=means.__getitem__)
    table = ran.found.table
    assert dict(zip(table["model"], table["ndcg@20 validation"], strict=True)) == pytest.approx(means)


def test_the_sentence_names_the_best_model_and_a_command_whose_file_exists(ran: Any) -> None:
    found = ran.found
    assert found.sentence.startswith(f"Use {found.best} on this dataset")
    config = ran.directory / "best.toml"
    assert found.sentence.endswith(f"truelike train LOG --config {config} -o model/")
    assert tomllib.loads(config.read_text())["model"] == found.best
    assert "\n" not in found.sentence


def test_the_settings_of_a_whole_dataset_have_the_best_epoch(ran: Any) -> None:
    config = tomllib.loads(ran.found.config("BPR"))
    bpr = next(each for each in ran.found.results if each.model == "BPR")
    assert config["parameters"]["epochs"] == bpr.epochs <= 4
    assert config["parameters"]["learning_rate"] == bpr.parameters.get("learning_rate", tl.BPR().learning_rate)
    of_split = replace(ran.found, from_dataset=False).config("BPR")
    assert tomllib.loads(of_split)["parameters"]["epochs"] == 4
    with pytest.raises(ParameterError, match="there are results of"):
        ran.found.config("NBPO")


def test_a_final_run_records_its_learning_curve_and_its_recall_by_popularity(ran: Any) -> None:
    [record, _] = of(lines(ran.directory, "final"), "BPR")
    assert len(record["curve"]["values"]) == len(record["curve"]["seconds"]) == record["epochs"]
    assert max(record["curve"]["values"]) == pytest.approx(record["peaks"]["ndcg@20"], abs=1e-6)
    split = tl.splits.by_user(ran.data, validation=0.1, test=0.1, rounding="random", seed=0)
    assert sum(record["popularity"]["interactions"]) == split.test.n_interactions
    assert sum(record["popularity"]["items"]) == split.train.n_items
    assert not any("curve" in each for each in lines(ran.directory, "tuning"))


@pytest.mark.usefixtures("no_workers")
def test_a_repeated_comparison_runs_nothing_and_gives_the_same_result(ran: Any) -> None:
    again = tl.compare(ran.data, ["ItemPop", "item-knn", tl.BPR], directory=ran.directory, **QUICK)
    assert again.table.equals(ran.found.table)
    assert again.sentence == ran.found.sentence


def test_a_stopped_comparison_continues_and_repeats_nothing(ran: Any, tmp_path: Path) -> None:
    first: list[Any] = []

    def stop(record: Any) -> None:
        first.append(record["key"])
        if len(first) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tl.compare(ran.data, ["ItemPop", "ItemKNN", "BPR"], directory=tmp_path, n_workers=1, report=stop, **QUICK)
    second: list[Any] = []
    found = tl.compare(
        ran.data, ["ItemPop", "ItemKNN", "BPR"], directory=tmp_path, n_workers=1,
        report=lambda record: second.append(record["key"]), **QUICK,
    )  # fmt: skip
    assert not set(first) & set(second)
    assert len(first) + len(second) == len(ran.records)
    quality = ["model", "ndcg@20", "ndcg@20 low", "p_holm"]  # times differ
    assert found.table.select(quality).equals(ran.found.table.select(quality))


def test_a_model_that_rejects_the_dataset_is_reported_and_the_others_go_on(ran: Any, tmp_path: Path) -> None:
    class Demanding(tl.ItemPop):
        def _make_scorer(self) -> Any:
            raise DataError("Demanding needs more items")

    found = tl.compare(ran.data, [Demanding, "ItemPop"], n_trials=2, directory=tmp_path, n_workers=1)
    assert found.table["model"].to_list() == ["ItemPop", "Demanding"]
    assert "Demanding needs more items" in found.table["not_run"][1]
    assert found.table["against_best"].to_list() == ["best", None]
    assert "the only model" in found.sentence
    assert [record["model"] for record in lines(tmp_path, "tuning")] == ["ItemPop"]  # tried again another time
    html = found.page().html()
    assert "Models that could not be trained" in html
    assert "Demanding needs more items" in html


def test_a_model_whose_process_ends_is_reported_and_the_others_go_on(ran: Any, own: Any, tmp_path: Path) -> None:
    reported: list[Any] = []
    directory = tmp_path / "runs"
    found = tl.compare(
        ran.data, [own.Killed, "ItemPop"], directory=directory, n_workers=1, report=reported.append, n_trials=3
    )
    assert found.best == "ItemPop"
    assert "its process ended" in found.table["not_run"][1]
    assert len(of(reported, "Killed")) == 1  # not once for each candidate


def test_a_split_is_used_as_it_is(ran: Any) -> None:
    split = tl.splits.leave_one_out(ran.data, by="random", seed=4)
    found = tl.compare(split, ["ItemPop"], metric="recall@7", n_workers=1)
    expected = tl.evaluate(tl.ItemPop().fit(split.train), split, ks=(7,), metrics=["recall"])["recall@7"]
    assert found.table["recall@7"][0] == pytest.approx(expected, abs=1e-6)
    assert not found.from_dataset


def test_a_dataset_with_times_is_split_by_time_unless_asked_otherwise() -> None:
    world = tl.synthetic.World(n_users=60, n_items=40, seed=3).dataset()
    rows = [(user, item, 1, n * 7919 % 1000) for n, (user, item, *_) in enumerate(world.to_frame().rows())]
    rows.append((0, "never seen before", 1, 2000))
    data = tl.read([(str(user), str(item), *rest) for user, item, *rest in rows])
    for by, expected, words in (
        (None, "time", "The last tenth of each user's interactions is the test part"),
        ("random", "random", "drawn at random, is the test part"),
    ):
        found = tl.compare(data, ["ItemPop"], by=by, n_workers=1)  # type: ignore[arg-type]
        same = tl.splits.by_user(data, by=expected, rounding="random", seed=0)  # type: ignore[arg-type]
        assert found.split.info == same.info
        assert found.split.test.to_frame().equals(same.test.to_frame())
        assert words in split_used(found)
        if by is None:
            dropped = found.split.info["dropped"]
            assert dropped["items"] > 0
            words = (
                f"{dropped['users']} users and {dropped['items']} items have no interaction in the training part"
            )
            assert words in split_used(found)
        assert split_used(found) in protocol(found)
    with pytest.raises(ParameterError, match="by is 'time', and the data is a split already"):
        tl.compare(same, ["ItemPop"], by="time")


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_the_table_is_a_frame_of_the_dataset_s_library(library: str, ran: Any) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    train = ran.found.split.train.with_parts(library=library)
    found = replace(ran.found, split=replace(ran.found.split, train=train))
    assert type(found.table).__module__.split(".")[0] == library
    assert found.frame["model"][0] == found.ranked[0].model


def test_without_names_all_models_are_run_except_networks_and_the_classes_of_presets() -> None:
    networks = {"FM", "NeuMF", "ACF", "LightGCN", "DeepRecommender"}
    # ImpressionMF is for impressions, ExposureMF for research, and Trending needs times
    left_out = {
        "SampledMF",
        "ExactMF",
        "SampledListMF",
        "AutoRecommender",
        "Blend",
        "WeightedKinds",
        "ImpressionMF",
        "ExposureMF",
        "Trending",
    } | networks
    assert [model.name for model in chosen_models(None)] == [name for name in REGISTRY if name not in left_out]


def test_a_model_is_named_by_a_string_a_class_or_an_unfitted_model() -> None:
    chosen = chosen_models(["bpr:factors=8", tl.BPR, tl.BPR(factors=8), "BPR", tl.BPR(factors=9)])
    assert [model.name for model in chosen] == ["BPR:factors=8", "BPR", "BPR:factors=9"]


def test_names_are_those_that_were_given(ran: Any, tmp_path: Path) -> None:
    typed = chosen_models(["bpr:learning_rate=1e-2", "BPR:negatives=hard:10", "BPR:learning_rate=0.01"])
    assert [model.name for model in typed] == ["BPR:learning_rate=1e-2", "BPR:negatives=hard:10"]
    names = {"BPR, 1 negative": tl.BPR(n_negatives=1), "best/so far": tl.BPR, "same": "BPR"}
    found = tl.compare(ran.data, names, directory=tmp_path, n_workers=1, **{**QUICK, "n_trials": 1, "seeds": 1})
    assert set(found.table["model"]) == set(names)
    assert {*found.p_values, found.best} == set(names)
    assert {record["settings"]["n_negatives"] for record in of(lines(tmp_path, "final"), "BPR, 1 negative")} == {1}
    values = {each.model: each.of("ndcg@20").mean() for each in found.ranked}
    assert values["same"] == values["best/so far"], "one model under two names"
    assert tomllib.loads(found.config("best/so far"))["model"] == "BPR"
    page = found.page().html()
    assert all(name in page for name in names)


@pytest.mark.parametrize("name", ["", 3])
def test_a_name_that_is_none_is_an_error(name: Any) -> None:
    with pytest.raises(ParameterError, match=r"the name of a model is .*; expected a text"):
        chosen_models({name: "BPR"})


def test_classes_of_one_name_get_different_names() -> None:
    def made(length: int) -> Any:
        class BPR(tl.BPR):
            steps = length

        return BPR

    names = [model.name for model in chosen_models(["BPR", made(1), made(2), made(1)])]
    qualified = f"{__name__}.test_classes_of_one_name_get_different_names.<locals>.made.<locals>.BPR"
    assert names == ["BPR", qualified, f"{qualified} (2)"]


def test_a_model_of_one_s_own_is_compared_and_trained_in_python(ran: Any, tmp_path: Path) -> None:
    class Mine(objectives.BPO):
        pass

    template = tl.SampledMF(objective=Mine, epochs=2, batch_size=200)
    found = tl.compare(ran.data, [template, tl.ItemPop], n_trials=2, seeds=1, directory=tmp_path, n_workers=1)
    name = "SampledMF:objective=Mine"
    mine = next(each for each in found.results if each.model.startswith(name))
    assert mine.megabytes is None  # it was run in this process
    only = replace(found, results=[mine])
    assert only.command.startswith("SampledMF(objective=Mine, ")
    assert only.command.endswith(").fit(data)")
    assert only.make().objective is Mine
    assert only.write_config() is None
    with pytest.raises(ParameterError, match=r"Train it in Python: SampledMF\(objective=Mine"):
        only.config()
    assert only.write(tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"models": ["Nobody"]}, r"no model 'Nobody'; there are .*ItemPop"),
        ({"models": []}, "one or more of"),
        ({"models": [3]}, "3 is not a model; give a name"),
        ({"metric": "good"}, "ndcg@20"),
        ({"n_trials": 0}, "n_trials is 0"),
        ({"seeds": 0}, "seeds is 0"),
        ({"n_workers": 0}, "n_workers is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"by": "age"}, "by is 'age'"),
        ({"fuctors": 5}, "has a parameter 'fuctors'"),
        ({"factors": -3}, "factors is -3"),
    ],
)
def test_wrong_arguments_are_errors_before_any_work(wrong: Any, words: str, ran: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=words):
        tl.compare(ran.data, **{"directory": tmp_path / "new", **wrong})
    assert not (tmp_path / "new").exists()


def test_data_that_cannot_be_compared_on_is_an_error(ran: Any) -> None:
    with pytest.raises(
        DataError, match=r"compare takes a Dataset or a Split, not list: use tl.read\(rows\), or tl.Split"
    ):
        tl.compare([("ann", "tea")])  # type: ignore[arg-type]
    split = tl.splits.by_user(ran.data, seed=0)
    nothing = split.test.select(np.zeros(split.test.n_interactions, dtype=bool))
    with pytest.raises(DataError, match="the test part has interactions of 0 users"):
        tl.compare(replace(split, test=nothing))
    with pytest.raises(StorageError, match="another dataset or split"):
        tl.compare(ran.data, ["ItemPop"], directory=ran.directory, seed=9)
