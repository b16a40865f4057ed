from __future__ import annotations

import io
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
QUICK = ("--set", "epochs=2", "--set", "batch_size=200", "--trials", 2, "--seeds", 1, "--jobs", 1)


def test_the_table_goes_to_stdout_the_page_to_a_file_and_the_last_line_s_command_trains(
    run: Run, log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run("compare", "log.csv", "--models", "itempop,BPR", *QUICK, "--table", "table.csv")
    assert found.code == 0, found.err
    table = pl.read_csv(io.StringIO(found.out))
    assert sorted(table["model"]) == ["BPR", "ItemPop"]
    assert pl.read_csv("table.csv").equals(table)
    assert "<svg" in Path("comparison/report.html").read_text()
    sentence = found.err.splitlines()[-1]
    assert sentence.startswith(f"Use {table['model'][0]} on this log")
    command = sentence.split(" with: ")[1].split()
    assert command[:3] == ["truelike", "train", "log.csv"]
    trained = run(*command[1:])
    assert trained.code == 0, trained.err
    assert type(tl.load("model")).__name__ == table["model"][0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--models", "BPR,Nobody"), "there is no model 'Nobody'; there are ItemPop"),
        (("--metric", "good"), "ndcg@20"),
        (("--trials", "2", "--minutes", "1"), "one of them"),
        (("--set", "fuctors=3"), "'fuctors'"),
        (("--set", "factors=many"), "factors is 'many'"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    arguments: tuple[str, ...], words: str, run: Run, log_file: Path, tmp_path: Path
) -> None:
    found = run("compare", log_file, "-d", tmp_path / "runs", *arguments)
    assert found.code == 1
    assert words in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(os.name != "posix", reason="kills with SIGKILL")
def test_a_killed_comparison_goes_on_and_ctrl_c_says_that_it_will(log_file: Path, tmp_path: Path) -> None:
    directory = tmp_path / "runs"
    command = [
        sys.executable,
        "-m",
        "truelike",
        "compare",
        str(log_file),
        "-m",
        "ItemPop,BPR",
        "-d",
        str(directory),
    ]
    place = directory / "tuning" / "trials.jsonl"

    def until(lines: int, stop: signal.Signals) -> tuple[list[str], str]:
        process = subprocess.Popen([*command, "--jobs", "1"], stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            if place.exists() and len(place.read_text().splitlines()) >= lines:
                break
            time.sleep(0.05)
        process.send_signal(stop)
        _, said = process.communicate(timeout=60)
        return place.read_text().splitlines(), said

    first, _ = until(2, signal.SIGKILL)
    second, said = until(len(first) + 2, signal.SIGINT)
    assert f"kept in {directory}: the same command goes on" in said
    assert "Traceback" not in said
    whole = [line for line in first if line.endswith("}")]
    assert second[: len(whole)] == whole
    keys = [json.loads(line)["key"] for line in second]
    assert len(keys) == len(set(keys)) >= len(first) + 2


def test_a_model_may_be_named_with_parameters_of_its_own(
    run: Run, log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = "BPR:factors=4,bpr:negatives=hard:factors=6,ItemPop"
    found = run("compare", "log.csv", "--models", names, *QUICK)
    assert found.code == 0, found.err
    table = pl.read_csv(io.StringIO(found.out))
    assert set(table["model"]) == {"BPR:factors=4", "BPR:negatives=hard:factors=6", "ItemPop"}
    trials = [json.loads(line) for line in Path("comparison/final/trials.jsonl").read_text().splitlines()]
    for trial in trials:
        if "hard" in trial["model"]:
            assert (trial["settings"]["negatives"], trial["settings"]["factors"]) == ("hard", 6)
    wrong = run("compare", "log.csv", "--models", "BPR:fuctors=4")
    assert wrong.code == 1
    assert "did you mean 'factors'" in wrong.err
    assert "after a colon comes name=value" in run("compare", "log.csv", "--models", "BPR:4").err
