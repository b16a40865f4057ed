from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl

Run = Callable[..., Any]


def tuned(run: Run, split: Path, tmp_path: Path, *more: object) -> Path:
    config = tmp_path / "best.toml"
    quick = ("--set", "epochs=2", "--set", "batch_size=200", "--trials", 3, "-d", tmp_path / "trials")
    found = run("tune", split, "--model", "BPR", *quick, "--n-workers", 1, "--config", config, *more)
    assert found.code == 0, found.err
    assert "best: ndcg@20" in found.err
    return config


def test_train_runs_the_settings_that_tune_finds(run: Run, split: Path, tmp_path: Path) -> None:
    config = tuned(run, split, tmp_path)
    trained = run("train", "--config", config, "-o", tmp_path / "model")
    assert trained.code == 0, trained.err
    score = float(config.read_text().split("ndcg@20 on validation: ")[1].split("\n")[0])
    model, parts = tl.load(tmp_path / "model"), tl.Split.load(split)
    assert tl.evaluate(model, parts.validation, metrics=["ndcg"])["ndcg@20"] == pytest.approx(score, abs=1e-12)


def test_a_search_continues_from_its_directory(run: Run, split: Path, tmp_path: Path) -> None:
    tuned(run, split, tmp_path)
    before = (tmp_path / "trials" / "trials.jsonl").read_text()
    table = tmp_path / "trials.csv"
    tuned(run, split, tmp_path, "-o", table)
    assert (tmp_path / "trials" / "trials.jsonl").read_text() == before
    assert "learning_rate" in pl.read_csv(table).columns


def test_a_log_is_split_first_and_the_best_settings_are_printed(run: Run, log: Path) -> None:
    found = run("tune", log, "--model", "ItemKNN", "--trials", 2, "--n-workers", 1)
    assert found.code == 0, found.err
    assert "split by user" in found.err
    assert "trial 1 of 2" in found.err
    assert 'model = "ItemKNN"' in found.out
    assert "neighbors = " in found.out
