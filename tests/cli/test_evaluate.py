from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl

Run = Callable[..., Any]


def test_a_pipe_gets_a_row_per_measure_with_its_interval(run: Run, model: Path, split: Path) -> None:
    done = run("evaluate", model, split, "--ks", "5,10")
    assert done.code == 0, done.err
    assert done.table.columns == ["model", "metric", "k", "value", "low", "high", "left_out"]
    assert set(done.table["metric"]) >= {"f1", "ndcg", "coverage"}
    assert sorted(set(done.table["k"])) == [5, 10]
    expected = tl.evaluate(tl.load(model), tl.Split.load(split), ks=(5, 10))
    row = done.table.filter(pl.col("metric") == "ndcg", pl.col("k") == 10)
    assert row["value"].item() == expected["ndcg@10"]


def test_a_terminal_gets_a_row_per_metric_and_a_column_per_length(
    run: Run, model: Path, split: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")  # no codes of colours
    monkeypatch.setattr("truelike.cli.evaluate.sys.stdout.isatty", lambda: True, raising=False)
    done = run("evaluate", model, split, "--ks", "5,10", "--metrics", "ndcg,recall")
    lines = [line.split() for line in done.out.replace("\u2502", " ").replace("\u2503", " ").splitlines()]
    assert ["metric", "@5", "@10"] in lines
    assert [words[0] for words in lines if words and words[0] in ("ndcg", "recall")] == ["ndcg", "recall"]


def test_test_rows_in_a_file_give_the_same_as_the_split(run: Run, files: Path) -> None:
    of_split = run("evaluate", files / "model", files / "split")
    of_file = run("evaluate", files / "model", files / "test.csv")
    assert set(of_split.table["left_out"]) == {"train, validation"}
    assert of_file.out == run("evaluate", files / "model", files / "split", "--seen", "train").out != of_split.out
    validation = run("evaluate", files / "model", files / "split", "--part", "validation")
    assert validation.out == run("evaluate", files / "model", files / "validation.csv").out != of_split.out


def test_a_file_of_lists_is_evaluated_beside_a_model(run: Run, files: Path, tmp_path: Path) -> None:
    model, split, lists = files / "model", files / "split", tmp_path / "lists.parquet"
    fitted = tl.load(model)
    fitted.recommend(fitted.train_.users, k=30).drop("rank").write_parquet(lists)
    done = run("evaluate", model, lists, split, "--seen", "train", "--comparison", tmp_path / "compared.csv")
    assert done.code == 0, done.err
    of_model, of_lists = done.table.partition_by("model", maintain_order=True)
    assert of_lists["model"][0] == "lists.parquet"
    assert of_lists.drop("model").equals(of_model.drop("model"))
    assert pl.read_csv(tmp_path / "compared.csv")["difference"].to_list() == [0.0]
    of_log = run("evaluate", lists, files / "test.csv", "--ks", "5")
    assert of_log.code == 0, of_log.err
    assert "coverage" not in of_log.table["metric"]
    assert "left_out" not in of_log.table.columns
    done = run("evaluate", model, lists, split, "--part", "validation")
    of_model, of_lists = done.table.partition_by("model", maintain_order=True)
    assert of_lists.drop("model").equals(of_model.drop("model"))
    refused = run("evaluate", lists, split, "--propensity", "0.5")
    assert refused.code == 2
    assert "file of lists, and --propensity is for models" in " ".join(refused.err.replace("│", " ").split())


def test_several_models_are_told_apart_and_compared_user_by_user(run: Run, files: Path, tmp_path: Path) -> None:
    tl.ItemPop().fit(tl.Split.load(files / "split").train).save(tmp_path / "model")
    models, values, table = (files / "model", tmp_path / "model"), tmp_path / "v.parquet", tmp_path / "c.csv"
    done = run("evaluate", *models, files / "split", "--ks", "3,7", "--per-user", values, "--comparison", table)
    assert done.code == 0
    assert "p_holm" in done.err
    names = {f"ItemKNN ({models[0]})", f"ItemPop ({models[1]})"}
    assert set(done.table["model"]) == set(pl.read_parquet(values)["model"]) == names
    assert pl.read_csv(table)["measure"].to_list() == ["ndcg@7"]


def test_an_output_that_cannot_be_written_is_an_error_before_the_evaluation(
    run: Run, model: Path, split: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for option, name, words in (
        ("--output", "table.xls", "must end in .csv"),
        ("--per-user", "file/values.csv", "is a file"),
        ("--comparison", ".csv/", "must end in .csv"),
    ):
        done = run("evaluate", model, split, option, tmp_path / name)
        assert (done.code, done.out) == (1, "")
        assert words in done.err


def test_propensities_add_weighted_estimates(
    run: Run, model: Path, split: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = tl.Split.load(split).test
    file, out = tmp_path / "propensities.csv", tmp_path / "estimates.jsonl"
    noise = pl.int_range(pl.len()) % 4 + 1
    test.to_frame().select("user_id", "item_id", (noise / 4).alias("propensity")).write_csv(file)
    options = ("--ks", "5", "--metrics", "ndcg,coverage")
    done = run("evaluate", model, split, *options, "--propensity", file, "-o", out)
    assert done.code == 0, done.err
    table = pl.read_ndjson(out)
    with pytest.warns(tl.errors.DataWarning, match="effective sample size"):
        expected = tl.evaluate(tl.load(model), tl.Split.load(split), ks=5, propensity=file).propensity
    row = table.filter(pl.col("metric") == "ndcg").row(0, named=True)
    assert row["weighted"] == expected["ndcg@5"]
    assert (row["weighted_low"], row["weighted_high"]) == expected.interval("ndcg@5")
    assert row["effective_sample_size"] == expected.effective_sample_size
    assert table.filter(pl.col("metric") == "coverage")["weighted"].to_list() == [None]
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("truelike.cli.evaluate.sys.stdout.isatty", lambda: True, raising=False)
    done = run("evaluate", model, split, *options, "--propensity", "popularity^0.5", "--propensity-clip", "0.2")
    assert "assumed: popularity^0.5, effective sample size" in " ".join(done.out.split())
    assert run("evaluate", model, split, "--propensity", "no-such-file.csv").code != 0


def test_held_out_impressions_are_scored_instead_of_lists(run: Run, files: Path, tmp_path: Path) -> None:
    split = tl.Split.load(files / "split")
    tl.ItemPop().fit(split.train).save(tmp_path / "pop")
    users, items = (ids.take(range(len(ids))) for ids in (split.train.users, split.train.items))
    everything = pl.DataFrame({"user_id": users}).join(pl.DataFrame({"item_id": items}), how="cross")
    seen = split.train.to_frame().select("user_id", "item_id")
    everything.join(seen, on=["user_id", "item_id"], how="anti").write_csv(tmp_path / "shown.csv")
    done = run(
        "evaluate", files / "model", tmp_path / "pop", files / "split", "--impressions", tmp_path / "shown.csv"
    )
    assert done.code == 0, done.err
    assert sorted(set(done.table["metric"])) == ["shown_auc", "shown_pooled_auc", "shown_share"]
    assert "shown_auc" in done.err
