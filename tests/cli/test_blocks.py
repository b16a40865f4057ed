from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'truelike[big]'")

Run = Callable[..., Any]


def test_a_summary_is_printed(run: Run, log: Path, tmp_path: Path) -> None:
    done = run("blocks", log, "-o", tmp_path / "blocks", "--blocks", 3)
    assert done.code == 0, done.err
    data, found = tl.read(log), done.table.row(0, named=True)
    expected = {"users": data.n_users, "items": data.n_items, "interactions": data.n_interactions, "blocks": 3}
    assert {key: found[key] for key in expected} == expected
    assert found["bytes"] == sum(path.stat().st_size for path in (tmp_path / "blocks").iterdir())
    assert f"wrote {tmp_path / 'blocks'}" in done.err
    assert run("blocks", log, "-o", tmp_path / "blocks", "--quiet").err == ""


def test_options_reach_the_builder(run: Run, log: Path, tmp_path: Path) -> None:
    frame = pl.read_csv(log).rename({"user_id": "who", "item_id": "what"})
    parts = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    frame = frame.with_columns(stars=pl.int_range(pl.len()) % 5, often=pl.lit(2.0), when=pl.lit(7))
    frame[::2].write_parquet(parts[0])
    frame[1::2].write_parquet(parts[1])
    columns = ("--user", "who", "--item", "what", "--rating", "stars", "--weight", "often", "--time", "when")
    more = ("--min-rating", 2, "--min-user", 3, "--min-item", 2, "--memory", "200MB", "--scratch", tmp_path / "s")
    done = run("blocks", *parts, "-o", tmp_path / "blocks", *columns, *more)
    assert done.code == 0, done.err
    names = {"user": "who", "item": "what", "rating": "stars", "weight": "often", "time": "when"}
    data = tl.k_core(tl.read(frame, **names, min_rating=2), user=3, item=2).dataset
    about = json.loads((tmp_path / "blocks" / "blocks.json").read_text())
    assert [about[key] for key in ("users", "interactions")] == [data.n_users, data.n_interactions]
    assert (about["weights"], about["times"]) == (True, True)


def test_errors_name_options(run: Run, log: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("user,item\na,1\n,2\n")
    done = run("blocks", tmp_path / "bad.csv", "-o", tmp_path / "blocks")
    assert done.code == 1
    assert "error: 1 row is bad: line 3 of 'bad.csv' has no user. Fix it, or pass --on-bad-rows drop" in done.err
    dropped = run("blocks", tmp_path / "bad.csv", "-o", tmp_path / "blocks", "--on-bad-rows", "drop")
    assert (dropped.code, "warning: dropped 1 bad row" in dropped.err) == (0, True)
    core = run("blocks", log, "-o", tmp_path / "blocks", "--min-user", "999")
    assert "Ask for fewer interactions with --min-user and --min-item" in core.err
    assert "memory is 'much'" in run("blocks", log, "-o", tmp_path / "blocks", "--memory", "much").err
    assert run("blocks", log, "-o", tmp_path / "blocks", "--blocks", "0").code == 2
