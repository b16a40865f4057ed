from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl

Run = Callable[..., Any]


def tuned(run: Run, split_directory: Path, tmp_path: Path, *more: object) -> Path:
    config = tmp_path / "best.toml"
    quick = ("--set", "epochs=2", "--set", "batch_size=200", "--trials", 3, "-d", tmp_path / "trials", "--jobs", 1)
    found = run("tune", split_directory, "--model", "BPR", *quick, "--config", config, *more)
    assert found.code == 0, found.err
    assert "best: ndcg@20" in found.err
    return config


def test_what_tune_finds_train_runs(run: Run, split_directory: Path, tmp_path: Path) -> None:
    config = tuned(run, split_directory, tmp_path)
    found = run("train", "--config", config, "-o", tmp_path / "model")
    assert found.code == 0, found.err
    text = config.read_text()
    said = float(text.split("ndcg@20 on validation: ")[1].split("\n")[0])
    model, split = tl.load(tmp_path / "model"), tl.Split.load(split_directory)
    assert tl.evaluate(model, split.validation, metrics=["ndcg"])["ndcg@20"] == pytest.approx(said, abs=1e-12)


def test_a_search_goes_on_from_its_directory(run: Run, split_directory: Path, tmp_path: Path) -> None:
    tuned(run, split_directory, tmp_path)
    before = (tmp_path / "trials" / "trials.jsonl").read_text()
    table = tmp_path / "trials.csv"
    tuned(run, split_directory, tmp_path, "-o", table)
    assert (tmp_path / "trials" / "trials.jsonl").read_text() == before
    assert "learning_rate" in pl.read_csv(table).columns


def test_a_whole_log_is_split_first_and_the_best_is_printed(run: Run, log_file: Path) -> None:
    found = run("tune", log_file, "--model", "ItemKNN", "--trials", 2, "--jobs", 1)
    assert found.code == 0, found.err
    assert "split by user" in found.err
    assert 'model = "ItemKNN"' in found.out
    assert "neighbors = " in found.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tune", "LOG", "--model", "Nobody"), "Nobody"),
        (("tune", "LOG", "--search", "magic"), "'halving', 'optuna' or 'paper'"),
        (("tune", "LOG", "--metric", "good"), "ndcg@20"),
        (("tune", "LOG", "--set", "fuctors=3"), "did you mean 'factors'"),
        (("paper", "run", "--data", "netflix"), "amazon, movielens"),
        (("paper", "claims", "-d", "nowhere"), "there are no runs in 'nowhere'"),
        (("paper", "report", "-d", "nowhere"), "truelike paper run -d nowhere"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    arguments: tuple[str, ...],
    words: str,
    run: Run,
    log_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(*(log_file if word == "LOG" else word for word in arguments))
    assert found.code in (1, 2)
    assert words in found.err
    assert "Traceback" not in found.err


def test_quick_and_full_runs_do_not_share_a_directory(run: Run, tmp_path: Path) -> None:
    (tmp_path / "quick").touch()
    found = run("paper", "run", "-d", tmp_path, "--data", "amazon")
    assert found.code == 1
    assert "quick plan" in found.err


@pytest.mark.skipif(os.name != "posix", reason="kills with SIGKILL")
def test_a_killed_run_goes_on_and_repeats_no_finished_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "truelike", "paper", "run", "--quick", "--data", "world", "-d", str(tmp_path)]
    place = tmp_path / "world" / "final" / "trials.jsonl"

    def until(lines: int, stop: signal.Signals) -> list[str]:
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            if place.exists() and len(place.read_text().splitlines()) >= lines:
                break
            time.sleep(0.05)
        process.send_signal(stop)
        process.wait(30)
        return place.read_text().splitlines()

    first = until(2, signal.SIGKILL)
    second = until(len(first) + 2, signal.SIGINT)
    whole = [line for line in first if line.endswith("}")]
    assert len(whole) >= 2
    assert second[: len(whole)] == whole
    keys = [json.loads(line)["key"] for line in second]
    assert len(keys) == len(set(keys)) >= len(first) + 2
