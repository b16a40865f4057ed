"""Exit codes, messages, and how the command line ends."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl
from truelike.cli.output import show
from truelike.core.progress import logger

Run = Callable[..., Any]
COMMANDS = (
    ["demo"], ["train"], ["evaluate"], ["recommend"], ["tune"], ["compare"], ["data", "fetch"], ["data", "list"],
    ["data", "describe"], ["data", "split"], ["events", "export"], ["events", "prune"], ["events", "delete"],
    ["paper", "run"],
    ["paper", "figures"], ["paper", "report"], ["paper", "claims"], ["blocks"],
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--no-such-option"], "--no-such-option"),
        (["train"], "LOG is missing"),
        (["train", "{log}", "--resume"], "--resume needs --checkpoint"),
        (["train", "{log}", "--set", "neighbors"], "name=value"),
        (["train", "{log}", "-q", "-v"], "exclude each other"),
        (["evaluate", "model"], "truelike evaluate model/ split/"),
        (["evaluate", "model", "{log}", "--part", "half"], "'validation'"),
        (["evaluate", "model", "{log}", "--ks", "0"], "at least 1"),
        (["evaluate", "a", "b", "{log}", "--measure", "ndcg@7"], "ndcg@20"),
        (["evaluate", "a", "a", "{log}"], "given twice"),
        (["data", "split", "{log}", "-o", "x", "--by", "moon"], "leave-one-out"),
        (["data", "describe", "{log}", "--on-bad-rows", "mend"], "'drop'"),
        (["recommend", "model"], "one of --users"),
        (["recommend", "model", "--all-users", "-k", "0"], "--k"),
        (["recommend", "model", "--all-users", "--on-unknown", "cry"], "'popular'"),
        (["tune", "{log}", "--search", "magic"], "'halving'"),
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, log: Path, arguments: list[str], words: str) -> None:
    done = run(*(argument.format(log=log) for argument in arguments))
    assert done.code == 2
    assert words in done.usage_error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "nowhere.csv"], "there is no file"),
        (["train", "https://example.org/log.csv"], "is an address"),
        (["train", "{log}", "--model", "ItemNNK"], "ItemKNN"),
        (["train", "{log}", "--model", "BPR", "--set", "factor=3"], "did you mean 'factors'"),
        (["train", "{log}", "--model", "BPR", "--set", "factors=few"], "whole number"),
        (["train", "{log}", "--user", "customer"], "'customer'"),
        (["train", "{log}", "--n-jobs", "0"], "n_jobs is 0"),
        (["train", "{log}", "--model", "ItemPop", "--checkpoint", "run"], "ItemPop is not trained in epochs"),
        (["recommend", "nowhere", "--users", "a"], "no model"),
        (["data", "fetch", "no-such-data"], "ml-1m"),
        (["data", "split", "{log}", "-o", "x", "--by", "temporal"], "--time"),
        (["tune", "{log}", "--model", "Nobody"], "Nobody"),
        (["tune", "{log}", "--metric", "good"], "ndcg@20"),
        (["compare", "{log}", "--models", "BPR,Nobody"], "there is no model 'Nobody'; there are"),
        (["compare", "{log}", "--models", "BPR:4"], "after a colon comes name=value"),
        (["compare", "{log}", "--set", "factors=many"], "factors is 'many'"),
        (["paper", "run", "--data", "netflix"], "amazon, movielens"),
        (["paper", "claims", "-d", "nowhere"], "there are no runs in 'nowhere'"),
        (["paper", "report", "-d", "nowhere"], "truelike paper run -d nowhere"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(
    run: Run, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*(argument.format(log=log) for argument in arguments))
    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert done.err.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_has_an_example(run: Run, command: list[str]) -> None:
    done = run(*command, "--help")
    assert done.code == 0
    assert f"truelike {' '.join(command)}" in done.out.split("For example:")[1]


@pytest.mark.parametrize(
    ("option", "commands"),
    [("--n-jobs", ["train", "evaluate", "recommend"]), ("--n-workers", ["tune", "compare", "paper run"])],
)
def test_threads_and_processes_have_one_name_each(run: Run, option: str, commands: list[str]) -> None:
    for command in commands:
        assert re.search(rf"{option}\s+N\s", run(*command.split(), "--help").out)


# --- messages -------------------------------------------------------------------------------------


def test_progress_appears_in_a_pipe_unless_quiet(run: Run, split: Path, tmp_path: Path) -> None:
    call = ("train", split, "--model", "BPR", "--set", "epochs=2", "--set", "factors=4", "-o", tmp_path / "m")
    lines = run(*call).err.splitlines()
    assert [line for line in lines if line.startswith("BPR: epoch 2 of 2")]
    assert len(lines) == len(set(lines))
    assert run(*call, "--quiet").err == ""
    verbose = run(*call, "-v").err.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in verbose)


def test_with_verbose_an_error_has_its_traceback(run: Run) -> None:
    done = run("train", "nowhere.csv", "-v")
    assert done.code == 1
    assert "Traceback" in done.err
    assert "error: there is no file" in done.err.splitlines()[-1]


def test_a_warning_is_one_line_once_also_when_quiet(run: Run, tmp_path: Path) -> None:
    rows = "".join(f"u{n % 7},{n % 5},{n % 3 + 1}\n" for n in range(60))
    (tmp_path / "log.csv").write_text("user,item,weight\n" + rows)
    done = run("train", tmp_path / "log.csv", "-m", "ItemPop", "--weight", "weight", "-o", tmp_path / "m", "-q")
    assert done.code == 0
    assert done.err.startswith("warning: ItemPop uses whether a pair was observed, not how often")
    assert done.err.count("\n") == 1


def test_the_logger_is_left_as_it_was(run: Run) -> None:
    before = list(logger.handlers), logger.level
    run("data", "list", "-q")
    assert (list(logger.handlers), logger.level) == before


def test_an_id_is_never_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show(pl.DataFrame({"[b]user": ["[/red]", "[bold]x"]}), title="[/title]")
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("[/red]", "[bold]x", "[b]user", "[/title]"))


# --- progress -------------------------------------------------------------------------------------


def test_notes_are_shown_once_and_bars_to_a_person_unless_the_logger_is_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from truelike.core.progress import note, progress_bar

    monkeypatch.setattr("truelike.core.progress.interactive", lambda: True)
    monkeypatch.setattr(logger, "propagate", False)  # pytest's own handlers are those of the root logger
    note("first")
    handler = logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)
    level = logger.level
    try:
        logger.setLevel("INFO")
        note("second")
        assert not progress_bar("", show=True).disable
        assert progress_bar("", show=False).disable
        logger.setLevel("WARNING")
        note("third")
        assert progress_bar("", show=True).disable
        logger.removeHandler(handler)
        note("fourth")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert capsys.readouterr().err == "first\nsecond\n"


# --- processes ------------------------------------------------------------------------------------

posix = pytest.mark.skipif(os.name != "posix", reason="pipes, signals and /dev/full")


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)


@posix
@pytest.mark.parametrize("reader", ["head -n 1", "true"])
def test_a_reader_that_closes_the_pipe_is_no_error(model: Path, reader: str) -> None:
    done = shell(
        f"{sys.executable} -m truelike recommend {model} --all-users -k 50 | {reader}; exit ${{PIPESTATUS[0]}}"
    )
    assert (done.returncode, done.stderr) == (0, "")


@posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_behind_stdout_is_one_line(model: Path) -> None:
    done = shell(f"{sys.executable} -m truelike recommend {model} --all-users > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


@posix
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "command",
    [
        "recommend {model} --users-file {file}",
        "recommend {model} --all --candidates {file}",
        "recommend {model} --all --exclude {file}",
        "recommend {model} --all --titles {file}",
        "train {log} --model ItemPop --config {file} -o {out}",
        "serve {model} --key-file {file}",
        "serve {model} --items {file}",
        "serve {model} --titles {file}",
    ],
)
def test_a_pipe_or_a_device_in_place_of_a_file_is_refused(
    run: Run, command: str, kind: str, model: Path, log: Path, tmp_path: Path
) -> None:
    file = Path("/dev/zero")
    if kind == "pipe":
        file = tmp_path / "pipe.csv"
        os.mkfifo(file)
    done = run(*command.format(model=model, log=log, file=file, out=tmp_path / "out").split())
    assert (done.code, "regular file" in done.err or "which is no file" in done.err) == (1, True), done.err


@posix
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_pipe_in_place_of_the_output_stays(run: Run, model: Path, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"out.{ending}"
    os.mkfifo(file)
    done = run("recommend", model, "--all", "-o", file)
    assert (done.code, "a pipe, a socket or a device, which would be replaced" in done.err) == (1, True)
    assert file.is_fifo()


@posix
def test_an_interrupted_training_is_130_and_leaves_the_old_model(log: Path, tmp_path: Path) -> None:
    tl.ItemPop().fit(tl.read(log)).save(tmp_path / "model")
    command = ["train", str(log), "--model", "BPR", "--set", "epochs=10000000", "-o", str(tmp_path / "model")]
    process = subprocess.Popen(
        [sys.executable, "-m", "truelike", *command],
        stderr=subprocess.PIPE,
        text=True,
        # a test run in the background may ignore interrupts, and its children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("training BPR")
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert (process.returncode, messages.splitlines()[-1]) == (130, "interrupted")
    assert "Traceback" not in messages
    assert tl.load(tmp_path / "model").name == "ItemPop"


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['truelike', '--help']\n"
        "from truelike.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numba', 'polars', 'scipy', 'numpy', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
