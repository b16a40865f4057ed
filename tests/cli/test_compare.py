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


@pytest.mark.slow
def test_several_datasets_have_one_table_a_page_each_and_a_manifest_that_repeats_them(
    run: Run, log: Path, split: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "runs"
    command = ("compare", log, split, "--models", "itempop,item-knn:neighbors=05", *QUICK[4:], "--lists", 5)
    found = run(*command, "-d", directory, "--table", tmp_path / "table.csv")
    assert found.code == 0, found.err
    assert found.table.columns == ["model", "log ndcg@20", "log std", "split ndcg@20", "split std", "rank"]
    assert set(found.table["model"]) == {"ItemPop", "ItemKNN:neighbors=05"}
    assert pl.read_csv(tmp_path / "table.csv").equals(found.table)
    assert found.err.splitlines()[-1].endswith(
        "two datasets cannot show a difference over datasets; 3 or more are needed"
    )
    for place in (directory, directory / "log", directory / "split"):
        assert "<svg" in (place / "report.html").read_text()
    assert f'data = "{log}"' in (directory / "log" / "best.toml").read_text()
    assert {path.name for path in (directory / "split" / "trec").iterdir()} == {
        "ItemPop.txt", "ItemKNN%3Aneighbors=05.txt", "qrels.txt"
    }  # fmt: skip
    again = run(
        "compare",
        log,
        split,
        "--manifest",
        directory / "manifest.json",
        "-d",
        tmp_path / "again",
        "--n-workers",
        1,
    )
    assert again.code == 0, again.err
    assert again.table.equals(found.table)
    wrong = run("compare", split, log.parent / "train.csv", "--manifest", directory / "manifest.json")
    assert (wrong.code, "of the datasets log, split; split, train given" in wrong.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{log}", "{log}"), "a dataset is given twice"),
        (("{log}", "--manifest", "m.json", "-m", "BPR"), "leave out --models and --set"),
    ],
)
def test_wrong_usage_is_an_error(run: Run, log: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run("compare", *(each.format(log=log) for each in arguments))
    assert done.code == 2
    assert words in done.usage_error


def test_a_page_of_another_format_is_an_error_before_the_work(run: Run, log: Path, tmp_path: Path) -> None:
    done = run("compare", log, "-o", "page.pdf", "-d", tmp_path / "runs")
    assert done.code != 0
    assert "give a path that ends in .html" in done.err
    assert not (tmp_path / "runs").exists()


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
