from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl

Run = Callable[..., Any]


def test_describe_in_a_pipe_is_one_csv_and_takes_a_split_as_a_whole(run: Run, log: Path, split: Path) -> None:
    whole = sum(part.n_interactions for part in tl.Split.load(split).parts)
    for path, n in ((log, tl.read(log).n_interactions), (split, whole)):
        table = dict(run("data", "describe", path).table.rows())
        assert table["Interactions"] == f"{n:,}"
        assert "Gini index of item popularity" in table


@pytest.mark.parametrize(
    ("by", "options"),
    [
        ("random", ()),
        ("user", ("--rounding", "random", "--test", "0.2", "--item-guard", "1")),
        ("leave-one-out", ()),
        ("user-time", ("--seed", "3")),
        ("temporal", ("--validation", "0")),
        ("last-n", ("--n", "3", "--validation", "2")),
        ("at-date", ("--test-from", "40", "--validation-from", "30")),
    ],
)
def test_every_strategy_writes_a_split(run: Run, tmp_path: Path, by: str, options: tuple[str, ...]) -> None:
    lines = [f"{user},{item},{(user * 7 + item * 3) % 50}" for user in range(12) for item in range(20)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,time", *lines]))
    done = run("data", "split", tmp_path / "log.csv", "-o", tmp_path / by, "--by", by, *options)
    assert done.code == 0, done.err
    split = tl.Split.load(tmp_path / by)
    assert split.train.times is not None
    assert split.test.times is not None
    if by in ("user-time", "temporal", "last-n", "at-date"):
        assert split.train.times.mean() < split.test.times.mean()
    names = dict(zip(options[::2], options[1::2], strict=True))
    for name, value in names.items():
        assert str(split.info[name.strip("-").replace("-", "_")]) == value


def test_folds_are_splits_in_directories_of_their_own(run: Run, log: Path, tmp_path: Path) -> None:
    done = run("data", "split", log, "-o", tmp_path / "folds", "--by", "k-fold", "--k", 3)
    assert done.code == 0, done.err
    assert [tl.Split.load(tmp_path / "folds" / name).info["fold"] for name in "012"] == [0, 1, 2]


def test_users_who_are_never_tested_are_counted(run: Run, tmp_path: Path) -> None:
    lines = [f"{user},{(user + n) % 7}" for user in range(20) for n in range(3)]
    lines += [f"{user},{item}" for user in range(20, 40) for item in range(7)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item", *lines]))
    done = run("data", "split", tmp_path / "log.csv", "-o", tmp_path / "s")
    assert (
        "20 users have too few interactions to be tested; --rounding random tests those with two or more"
        in done.err
    )
    done = run("data", "split", tmp_path / "log.csv", "-o", tmp_path / "r", "--rounding", "random")
    assert "too few interactions to be tested" not in done.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--by", "temporal", "--seed", "1"), "--seed is not an option of --by temporal"),
        (("--n", "2"), "--n is not an option of --by user"),
        (("--by", "at-date"), "--by at-date needs --test-from"),
    ],
)
def test_an_option_of_another_strategy_is_an_error(
    run: Run, log: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = run("data", "split", log, "-o", tmp_path / "s", *options)
    assert (done.code, words in done.usage_error) == (2, True)


def test_parts_of_your_own_become_a_split_with_the_ids_of_the_training_part(
    run: Run, files: Path, tmp_path: Path
) -> None:
    (tmp_path / "test.csv").write_text((files / "test.csv").read_text() + "somebody,1\n")
    parts = ("--validation", files / "validation.csv", "--test", tmp_path / "test.csv")
    done = run("data", "split", files / "train.csv", *parts, "-o", tmp_path / "own")
    assert done.code == 0, done.err
    assert done.err.count("warning: dropped 1 of ") == 1
    own, made = tl.Split.load(tmp_path / "own"), tl.Split.load(files / "split")
    for a, b in zip(own.parts, made.parts, strict=True):
        assert a.to_frame().equals(b.to_frame())
    mixed = run("data", "split", files / "train.csv", parts[0], parts[1], "--test", "0.1", "-o", tmp_path / "x")
    assert (mixed.code, "both shares or both files" in mixed.usage_error) == (2, True)


def test_all_reading_options_reach_the_reader(run: Run, log: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.dat"
    rows = pl.read_csv(log).rows()
    text = "".join(f"é{user}~{item}~{n % 5}~7~{n % 3}\n" for n, (user, item) in enumerate(rows)) + "u1~~5~7~1\n"
    path.write_bytes(text.encode("latin-1"))
    (tmp_path / "titles.csv").write_text("item,title\n1,One\n")
    options = ["--format", "csv", "--separator", "~", "--no-header", "--user", 0, "--item", 1, "--rating", 2,
               "--time", 3, "--weight", 4, "--min-rating", 1, "--on-bad-rows", "drop", "--encoding", "latin-1",
               "--k-core", 2, "--titles", tmp_path / "titles.csv"]  # fmt: skip
    done = run("train", path, "--model", "ItemPop", "-o", tmp_path / "m", *options)
    assert done.code == 0, done.err
    kept = pl.DataFrame(rows, schema=["user", "item"], orient="row").with_row_index("n")
    kept = kept.filter(pl.col("n") % 5 >= 1, pl.col("n") % 3 >= 1)
    core, _ = tl.k_core(tl.read(kept), user=2, item=2)
    train = tl.load(tmp_path / "m").train_
    assert train.n_interactions == core.n_interactions
    assert train.users[0].startswith("é")
    assert train.has_weights
    assert "One" in train.titles
    for command in ("tune", "compare", "evaluate", "train", ("data", "describe"), ("data", "split")):
        help_text = run(*([command] if isinstance(command, str) else command), "--help").out
        for option in ("--encoding", "--on-bad-rows", "--k-core", "--weight"):
            assert option in help_text, (command, option)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"a,b\nc,d\n", "--no-header"),
        (b"a,b\nc,d\n", "--user"),
        (b"196,242\n186,302\n", "--no-header"),
        (b"user,item\na,\nc,d\n", "--on-bad-rows drop"),
        ("user,item\né,1\n".encode("latin-1"), "--encoding latin-1"),
        (b"user,item,date\na,1,03/04/2026\nb,2,03/05/2026\n", "Pass --dates day-first or --dates month-first"),
        (b"", "is empty"),
    ],
)
def test_errors_of_reading_name_options_of_the_command_line(
    run: Run, tmp_path: Path, content: bytes, hint: str
) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    done = run("data", "describe", path)
    assert done.code == 1
    assert hint in done.err
    assert "=" not in done.err
    assert done.err.count("\n") == 1


def test_options_that_cannot_apply_are_an_error(run: Run, split: Path) -> None:
    for options, words in ((("--min-rating", 3), "which --min-rating cannot change"), (("--k-core", 3), "k-core")):
        done = run("data", "describe", split, *options)
        assert done.code == 1
        assert words in done.err


def test_the_list_says_what_is_in_the_cache(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUELIKE_DATA", str(tmp_path))
    table = run("data", "list").table
    assert "ml-1m" in table["name"].to_list()
    assert set(table["cached"]) == {"no"}
