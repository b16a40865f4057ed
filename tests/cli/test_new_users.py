"""`truelike data split --by new-users`, and what commands do with such a directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl

Run = Callable[..., Any]


@pytest.fixture
def new(run: Run, log: Path, tmp_path: Path) -> Path:
    place = tmp_path / "new"
    done = run("data", "split", log, "-o", place, "--by", "new-users", "--test", 20, "--validation", 0.1)
    assert done.code == 0, done.err
    return place


def test_users_are_held_out_and_evaluated_from_their_histories(run: Run, new: Path, tmp_path: Path) -> None:
    split = tl.NewUserSplit.load(new)
    assert (split.test.history.n_users, split.info["by"], split.info["test"]) == (20, "random", 20)
    trained = run("train", new, "--model", "EASE", "-o", tmp_path / "model")
    assert trained.code == 0, trained.err
    assert "what follows is of the training part" in trained.err
    model = tl.load(tmp_path / "model")
    assert list(model.train_.users) == list(split.train.users)
    for options, part in (((), split.test), (("--part", "validation"), split.validation)):
        done = run("evaluate", tmp_path / "model", new, "--ks", "20", "--metrics", "capped_recall,ndcg", *options)
        assert done.code == 0, done.err
        expected = tl.evaluate_new_users(model, part, ks=20, metrics=["capped_recall", "ndcg"])
        assert done.table.equals(pl.read_csv(expected.intervals().write_csv().encode()))
        assert set(done.table["left_out"]) == {"history"}
    tl.ItemPop().fit(split.train).save(tmp_path / "other")
    both = run("evaluate", tmp_path / "model", tmp_path / "other", new, "--comparison", tmp_path / "compared.csv")
    assert both.code == 0, both.err
    assert pl.read_csv(tmp_path / "compared.csv").height == 1


def test_by_time_the_history_is_what_came_first(run: Run, tmp_path: Path) -> None:
    lines = [f"{user},{item},{(user * 7 + item * 3) % 50}" for user in range(12) for item in range(20)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,time", *lines]))
    how = ("--by", "new-users-time", "--history", "0.5", "--seed", "3")
    done = run("data", "split", tmp_path / "log.csv", "-o", tmp_path / "new", *how)
    assert done.code == 0, done.err
    split = tl.NewUserSplit.load(tmp_path / "new")
    assert (split.info["by"], split.info["history"], split.info["seed"]) == ("time", 0.5, 3)
    assert split.test.history.times is not None
    assert split.test.targets.times is not None
    assert split.test.history.times.mean() < split.test.targets.times.mean()


def test_options_that_new_users_have_no_use_for_are_an_error(
    run: Run, new: Path, files: Path, tmp_path: Path
) -> None:
    model = files / "model"
    for given, words in (
        ((model, new, "--seen", "train"), "has new users, and --seen is for known ones: leave it out"),
        ((model, new, "--propensity", "0.5"), "--propensity is for known ones"),
        ((files / "log.csv", new), "is a file of lists"),
    ):
        done = run("evaluate", *given)
        assert done.code == 2
        assert words in done.usage_error
    done = run("evaluate", model, new, "--user", "u")
    assert (done.code, "--user cannot change" in done.err) == (1, True)
    again = run("data", "split", files / "log.csv", "-o", tmp_path / "x", "--history", "0.5")
    assert (again.code, "--history is not an option of --by user" in again.usage_error) == (2, True)
