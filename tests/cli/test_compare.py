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
QUICK = ("--set", "epochs=2", "--set", "batch_size=200", "--trials", 2, "--seeds", 1, "--n-workers", 1)


def test_the_table_goes_to_stdout_the_page_to_a_file_and_the_last_line_names_a_command_that_trains(
    run: Run, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_bytes(log.read_bytes())
    names = "itempop,BPR,bpr:negatives=hard:factors=6"
    found = run("compare", "log.csv", "--models", names, *QUICK, "--table", "table.csv")
    assert found.code == 0, found.err
    assert set(found.table["model"]) == {"ItemPop", "BPR", "BPR:negatives=hard:factors=6"}
    assert pl.read_csv("table.csv").equals(found.table)
    assert "<svg" in Path("comparison/report.html").read_text()
    sentence = found.err.splitlines()[-1]
    [best] = found.table.filter(pl.col("against_best") == "best")["model"]
    assert sentence.startswith(f"Use {best} on this dataset")
    command = sentence.split(" with: ")[1].split()
    assert command[:3] == ["truelike", "train", "log.csv"]
    trained = run(*command[1:])
    assert trained.code == 0, trained.err
    assert type(tl.load("model")).__name__ == best.split(":")[0]


@pytest.mark.parametrize(("asked", "words"), [((), "The last tenth"), (("--by", "random"), "drawn at random")])
def test_the_command_says_how_a_log_with_times_was_split(
    run: Run, tmp_path: Path, asked: tuple[str, ...], words: str
) -> None:
    lines = [f"{user},{item},{(user * 7 + item * 3) % 50}" for user in range(12) for item in range(20)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,time", *lines]))
    command = ("compare", tmp_path / "log.csv", "-m", "ItemPop", "-d", tmp_path / "runs", "--n-workers", 1, *asked)
    found = run(*command)
    assert found.code == 0, found.err
    assert words in found.err


@pytest.mark.skipif(os.name != "posix", reason="kills with SIGKILL")
def test_a_killed_comparison_continues_and_ctrl_c_says_that_it_will(log: Path, tmp_path: Path) -> None:
    directory = tmp_path / "runs"
    command = [sys.executable, "-m", "truelike", "compare", str(log), "-m", "ItemPop,BPR", "-d", str(directory)]
    place = directory / "tuning" / "trials.jsonl"

    def until(lines: int, stop: signal.Signals) -> tuple[list[str], str, int]:
        process = subprocess.Popen(
            [*command, "--n-workers", "1"],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            if place.exists() and len(place.read_text().splitlines()) >= lines:
                break
            time.sleep(0.05)
        process.send_signal(stop)
        _, messages = process.communicate(timeout=60)
        return place.read_text().splitlines(), messages, process.returncode

    first, _, _ = until(2, signal.SIGKILL)
    second, messages, code = until(len(first) + 2, signal.SIGINT)
    assert f"kept in {directory}: the same command continues" in messages
    assert "Traceback" not in messages
    assert code == 130
    whole = [line for line in first if line.endswith("}")]
    assert second[: len(whole)] == whole
    keys = [json.loads(line)["key"] for line in second]
    assert len(keys) == len(set(keys)) >= len(first) + 2
