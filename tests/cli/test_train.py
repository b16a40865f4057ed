from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl
from truelike.serving.events import Event, EventStore

Run = Callable[..., Any]


def metrics_of(model: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((model / "model.json").read_text())["metrics"]
    return found


def test_without_a_model_the_choice_is_printed_once_with_its_reason_and_kept(
    run: Run, split: Path, tmp_path: Path
) -> None:
    done = run("train", split, "-o", tmp_path / "m", "--set", "seed=3", "--set", "n_trials=3")
    assert done.code == 0, done.err
    choice = tl.load(tmp_path / "m").choice_
    assert len(choice.trials) == 3
    assert all(model in done.err for model, *_ in choice.trials)
    assert done.err.count(choice.reason) == 1
    assert "chosen by AutoRecommender" in done.err
    evaluated = run("evaluate", tmp_path / "m", split)
    assert choice.reason in evaluated.err


def test_a_budget_is_a_word_or_a_number_of_seconds(run: Run, log: Path, tmp_path: Path) -> None:
    for option in (("--budget", "1.5"), ("--set", "budget=1.5")):
        done = run("train", log, "-o", tmp_path / "m", *option, "--set", "n_trials=2")
        assert done.code == 0, done.err
        assert "AutoRecommender(budget=1.5, n_trials=2)" in done.err
    done = run("train", log, "-o", tmp_path / "m", "--budget", "soon")
    assert done.code == 1
    assert "'thorough' or a positive number of seconds" in done.err
    config = tmp_path / "train.toml"
    config.write_text('model = "EASE"\n')
    for model in (("--model", "EASE"), ("--config", config)):
        done = run("train", log, *model, "--budget", "quick")
        assert done.code == 2
        assert "--budget is for the choice of a model" in done.err


@pytest.mark.parametrize("source", ["option", "config"])
def test_a_parameter_without_a_model_is_an_error(run: Run, log: Path, tmp_path: Path, source: str) -> None:
    config = tmp_path / "train.toml"
    config.write_text("[parameters]\nfactors = 64\n")
    more = ("--set", "factors=64") if source == "option" else ("--config", config)
    done = run("train", log, *more)
    assert done.code == 1
    assert "name a model with --model, e.g. --model NBPO --set factors=64" in done.err


def test_a_config_file_trains_and_options_override_it(run: Run, log: Path, tmp_path: Path) -> None:
    config = tmp_path / "train.toml"
    config.write_text(
        f'data = "{log}"\nmodel = "ItemKNN"\n[parameters]\nneighbors = 7\nshrinkage = 2.5\n'
        '[read]\nuser = "user_id"\nk_core = 2\n'
    )
    assert run("train", "--config", config, "-o", tmp_path / "m", "--set", "neighbors=9").code == 0
    model = tl.load(tmp_path / "m")
    assert (model.neighbors, model.shrinkage) == (9, 2.5)
    assert model.train_.popularity().min() >= 2


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (b"data = 5", "data in .* is 5; expected text"),
        (b"parameters = 3", "parameters in .* is 3; expected a table"),
        (b"[read]\nuzer = 'a'", "unknown keys: uzer"),
        (b"[read]\nheader = 'no'", "header in .* expected true or false"),
        (b"data = '\xff'", "is not utf-8"),
        (b"data = ", "is not TOML"),
    ],
)
def test_a_wrong_config_is_an_error(run: Run, tmp_path: Path, config: bytes, words: str) -> None:
    path = tmp_path / "train.toml"
    path.write_bytes(config)
    done = run("train", "--config", path, "-o", tmp_path / "m")
    assert done.code == 1
    assert re.search(words, done.err)


def test_the_output_is_checked_before_training(run: Run, log: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, words in ((tmp_path / "file", "is a file"), (tmp_path, "other files"), ("file/m", "is a file")):
        done = run("train", log, "-o", tmp_path / place)
        assert done.code == 1
        assert words in done.err
        assert "training" not in done.err


# --- validation -----------------------------------------------------------------------------------


def test_a_split_and_its_parts_as_files_train_the_same_model(run: Run, files: Path, tmp_path: Path) -> None:
    model = ("--model", "BPR", "--set", "factors=4", "--set", "epochs=5")
    done = run("train", files / "split", *model, "-o", tmp_path / "a")
    assert re.search(r"validation: ndcg@20 0\.\d+, f1@2 0\.\d+", done.err)
    own = run("train", files / "train.csv", "--validation", files / "validation.csv", *model, "-o", tmp_path / "b")
    assert own.code == 0, own.err
    a, b = tl.load(tmp_path / "a"), tl.load(tmp_path / "b")
    assert a.item_factors_.tobytes() == b.item_factors_.tobytes()
    assert metrics_of(tmp_path / "a") == metrics_of(tmp_path / "b")
    assert 0 < metrics_of(tmp_path / "a")["validation ndcg@20"] < 1


def test_for_a_log_the_number_of_epochs_is_searched_unless_it_is_given(
    run: Run, log: Path, tmp_path: Path
) -> None:
    def trained(*more: str) -> Any:
        call = ("train", log, "-o", tmp_path / "m", "--model", "SoftmaxMF", "-s", "factors=4", *more)
        assert run(*call).code == 0
        return tl.load(tmp_path / "m").recommend("u1")["score"].to_list()

    def fitted(epochs: int = 20, **options: Any) -> Any:
        model = tl.SoftmaxMF(factors=4, epochs=epochs).fit(tl.read(log), **options)
        return model.recommend("u1")["score"].to_list()

    assert trained() == fitted()  # too few interactions to hold any out
    assert trained("--validation", "0.3") == fitted(validation=0.3)
    assert metrics_of(tmp_path / "m").keys() == {"epochs", "held-out ndcg@20"}
    assert trained("--validation", "0") == fitted()
    assert trained("--set", "epochs=5") == fitted(epochs=5)
    assert trained("--model", "SoftmaxMF:epochs=5") == fitted(epochs=5)


def test_validation_that_cannot_be_used_is_explained(run: Run, files: Path, tmp_path: Path) -> None:
    log, to = files / "log.csv", ("-o", tmp_path / "m")
    wrong = run("train", log, *to, "--validation", "2")
    assert (wrong.code, "a share is at least 0 and below 1" in wrong.err) == (1, True)
    missing = run("train", log, *to, "--validation", "nowhere.csv")
    assert (missing.code, "'nowhere.csv'" in missing.err) == (1, True)
    for more in ("0.1", files / "validation.csv"):
        wrong = run("train", files / "split", *to, "--validation", more)
        assert (wrong.code, "has a validation part" in wrong.usage_error) == (2, True)
    ignored = run("train", log, *to, "--model", "EASE", "--validation", "0.1")
    assert (ignored.code, "EASE is not trained in epochs" in ignored.err) == (0, True)


def test_a_model_is_saved_although_validation_gives_no_metrics(run: Run, files: Path, tmp_path: Path) -> None:
    done = run(
        "train", files / "log.csv", "--validation", files / "validation.csv", "-m", "ItemPop", "-o", tmp_path / "m"
    )
    assert done.code == 0
    assert "warning: no metrics on the validation part" in done.err
    assert metrics_of(tmp_path / "m") == {}


# --- impressions and features ---------------------------------------------------------------------

IMPRESSION_MF = ("--model", "impression-mf", "-s", "factors=4", "-s", "steps=30")


def test_impressions_set_the_flip_probabilities(run: Run, files: Path, tmp_path: Path) -> None:
    log, shown = files / "log.csv", files / "shown.csv"
    to = (*IMPRESSION_MF, "-o", tmp_path / "model")
    assert run("train", log, "--impressions", shown, *to).code == 0
    model = tl.load(tmp_path / "model")
    known = {"user_id": model.train_.users, "item_id": model.train_.items}
    seen = pl.read_csv(shown).filter(pl.col(name).is_in(ids.values.to_list()) for name, ids in known.items())
    assert model.flip_probability(seen["user_id"][:9], seen["item_id"][:9]).max() < 1e-6

    likely = seen.unique(maintain_order=True).with_columns(pl.lit(0.25).alias("propensity"))
    likely.write_csv(tmp_path / "likely.csv")
    assert run("train", log, "--impressions", tmp_path / "likely.csv", *to).code == 0
    flips = tl.load(tmp_path / "model").flip_probability(likely["user_id"][:9], likely["item_id"][:9])
    assert flips == pytest.approx(0.75, rel=1e-3)


def test_a_held_out_interaction_is_not_taken_for_a_dislike(run: Run, files: Path, tmp_path: Path) -> None:
    to = (*IMPRESSION_MF, "-o", tmp_path / "model")
    assert run("train", files / "split", "--impressions", files / "shown.csv", *to).code == 0
    split, model = tl.Split.load(files / "split"), tl.load(tmp_path / "model")
    held_out = split.test.to_frame()
    assert (model.flip_probability(held_out["user_id"], held_out["item_id"]) == 1).all(), "as if it was not shown"


def test_impressions_are_a_file_with_any_columns_or_a_block_directory(
    run: Run, files: Path, tmp_path: Path
) -> None:
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'truelike[big]'")
    shown = files / "shown.csv"
    renamed = pl.read_csv(shown).select(pl.col("item_id").alias("what"), pl.col("user_id").alias("who"))
    renamed.write_csv(tmp_path / "renamed.csv")
    pl.read_csv(files / "log.csv").rename({"user_id": "who", "item_id": "what"}).write_csv(tmp_path / "log.csv")
    tl.blocks.build(str(shown), tmp_path / "blocks")
    to = (*IMPRESSION_MF, "-o", tmp_path / "model")
    of_file = ("--user", "who", "--item", "what")
    found = []
    for call in (
        (files / "log.csv", "--impressions", shown),
        (files / "log.csv", "--impressions", tmp_path / "blocks"),
        (tmp_path / "log.csv", "--impressions", tmp_path / "renamed.csv", *of_file),
    ):
        done = run("train", *call, *to)
        assert done.code == 0, done.err
        found.append(tl.load(tmp_path / "model").recommend("u1", k=5)["item_id"].to_list())
    assert found[0] == found[1] == found[2]


def test_impressions_that_cannot_be_used_are_explained(run: Run, files: Path, tmp_path: Path) -> None:
    log, shown, to = files / "log.csv", files / "shown.csv", ("-o", tmp_path / "model")
    done = run("train", log, "--impressions", shown, "--model", "item-knn", "-o", tmp_path / "other")
    assert (done.code, "ItemKNN does not use what the dataset has as shown" in done.err) == (0, True)
    done = run("train", log, "--impressions", files / "split", *to)
    assert (done.code, "is a directory" in done.err) == (1, True)
    done = run("train", log, "--impressions", shown, "--validation", "0.1", *to)
    assert (done.code, "would count as a dislike" in done.usage_error) == (2, True)
    assert not (tmp_path / "model").exists()


def test_items_that_have_only_features_are_recommended(run: Run, log: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")
    table = tl.synthetic.World(n_users=120, n_items=60, seed=1).item_features().drop("moods")
    new = table[:1].with_columns(item_id=pl.lit(999, dtype=pl.Int32))
    pl.concat([table, new]).write_csv(tmp_path / "items.csv")
    features = ("--items", tmp_path / "items.csv")
    trained = run("train", log, *features, "-o", tmp_path / "model", "-m", "FM", "-s", "epochs=2")
    assert trained.code == 0, trained.err
    assert 999 in tl.load(tmp_path / "model").recommend("u1", k=100)["item_id"].to_list()
    other = run("train", log, "--model", "NBPO", "-s", "epochs=1", *features, "-o", tmp_path / "other")
    assert (other.code, "NBPO does not use what the dataset has as item_features" in other.err) == (0, True)


def test_kinds_of_events_are_read(run: Run, log: Path, tmp_path: Path) -> None:
    rows = pl.read_csv(log)
    rows = pl.concat([rows.with_columns(event=pl.lit(name)) for name in ("buy", "seen")])
    rows.write_csv(tmp_path / "events.csv")
    call = ("train", tmp_path / "events.csv", "-m", "ItemPop", "--kind", "event", "-o", tmp_path / "model")
    done = run(*call, "--kinds", "buy=1,seen=shown", "--target", "buy")
    assert done.code == 0, done.err
    assert tl.load(tmp_path / "model").train_.n_interactions == tl.read(log).n_interactions
    assert "'seen' (" in run(*call, "--kinds", "buy=1").err
    assert "expected what each kind means" in run(*call, "--kinds", "buy").usage_error


def test_events_of_the_service_are_added(run: Run, log: Path, split: Path, tmp_path: Path) -> None:
    events = EventStore(tmp_path / "events")
    events.append([Event("newcomer", "59", "click", 10**15), Event("newcomer", "new item", "like", 10**15)])
    result = run("train", log, "--model", "ItemPop", "--events", tmp_path / "events", "-o", tmp_path / "model")
    assert result.code == 0, result.err
    assert "1 of 2 events are skipped" in result.err
    n = tl.read(log).n_interactions
    assert f"2 events of {tmp_path / 'events'} were read: {n:,} interactions became {n + 1:,}" in result.err
    assert tl.load(tmp_path / "model").train_.seen("newcomer").to_list() == [59]
    result = run("train", split, "--model", "ItemPop", "--events", tmp_path / "events", "-o", tmp_path / "other")
    assert result.code == 0, result.err
    assert "newcomer" in tl.load(tmp_path / "other").train_.users
    assert (
        "there are no events in" in run("train", log, "--events", tmp_path / "nothing", "-o", tmp_path / "m").err
    )


def test_events_are_exported(run: Run, tmp_path: Path) -> None:
    EventStore(tmp_path / "events").append([Event("ann", "tea", "click", 10**15), Event("ann", "tea", "remove")])
    done = run("events", "export", tmp_path / "events", "-o", tmp_path / "out.parquet")
    assert (done.code, "wrote 2 events" in done.err) == (0, True), done.err
    assert pl.read_parquet(tmp_path / "out.parquet")["type"].to_list() == ["click", "remove"]
    assert "deleted 0 events" in run("events", "delete", tmp_path / "events", "--user", "bob").err
    assert run("events", "delete", tmp_path / "events").code == 2
    assert "deleted 1 events" in run("events", "prune", tmp_path / "events", "--days", 0).err
    assert "must end in .parquet" in run("events", "export", tmp_path / "events", "-o", tmp_path / "x.csv").err
