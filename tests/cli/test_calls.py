"""How the command line is called, what it says when that is wrong, and how it ends."""

from __future__ import annotations

import io
import os
import re
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
from truelike.cli.output import show

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train"], "which log"),
        (["evaluate", "model"], "a split"),
        (["evaluate", "model", "{log}", "--part", "half"], "validation or test"),
        (["evaluate", "model", "{log}", "--ks", "0"], "from 1 up"),
        (["evaluate", "a", "b", "{log}", "--measure", "ndcg@7"], "ndcg@20"),
        (["evaluate", "a", "a", "{log}"], "given twice"),
        (["data", "split", "{log}", "-o", "x", "--by", "moon"], "leave-one-out"),
        (["recommend", "model"], "--users"),
        (["recommend", "model", "--all", "-k", "0"], "from 1 up"),
        (["recommend", "model", "--all", "--on-unknown", "cry"], "popular or skip"),
    ],
)
def test_a_wrong_call_is_exit_code_2(run: Run, log_file: Path, arguments: list[str], words: str) -> None:
    done = run(*(argument.format(log=log_file) for argument in arguments))
    assert done.code == 2
    assert words in " ".join(done.err.replace("\u2502", " ").split())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (b"data = 5", "data in .* is 5; it is text"),
        (b"[model]", "model in .*; it is text"),
        (b"parameters = 3", "parameters in .* is 3; it is a table"),
        (b"[read]\nuzer = 'a'", "unknown keys: uzer"),
        (b"[read]\nheader = 'no'", "header in .* true or false"),
        (b"data = '\xff'", "is not UTF-8"),
        (b"data = ", "is not TOML"),
        (b"colour = 'red'", "unknown keys: colour"),
    ],
)
def test_a_wrong_config_is_explained(run: Run, tmp_path: Path, config: bytes, words: str) -> None:
    path = tmp_path / "train.toml"
    path.write_bytes(config)
    done = run("train", "--config", path, "-o", tmp_path / "m")
    assert done.code == 1
    assert re.search(words, done.err)


def test_the_output_place_is_checked_before_the_training(run: Run, log_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, words in ((tmp_path / "file", "is a file"), (tmp_path, "other files"), ("file/m", "is a file")):
        done = run("train", log_file, "-o", tmp_path / place)
        assert done.code == 1
        assert words in done.err
        assert "training" not in done.err
    assert run("demo", "-o", tmp_path / "file").code == 1


def test_a_world_too_small_for_a_demo_is_explained(run: Run, tmp_path: Path) -> None:
    done = run("demo", "--users", 2, "--items", 2, "-o", tmp_path / "demo")
    assert done.code == 1
    assert "too few" in done.err


def test_all_reading_options_reach_the_reader(run: Run, log_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.dat"
    rows = pl.read_csv(log_file).rows()
    path.write_text("".join(f"{user}~{item}~{n % 5}\n" for n, (user, item) in enumerate(rows)) + "u1~~5\n")
    options = ["--format", "csv", "--separator", "~", "--no-header", "--rating", 2, "--min-rating", 1,
               "--drop-bad-rows", "--user", 0, "--item", 1]  # fmt: skip
    assert run("train", path, "--model", "ItemPop", "-o", tmp_path / "m", *options).code == 0
    kept = sum(n % 5 >= 1 for n in range(len(rows)))
    assert tl.load(tmp_path / "m").train_.n_interactions == kept
    judged = run("evaluate", tmp_path / "m", path, *options)
    assert judged.code == 1  # all of it was seen in training
    assert "no user of the test set" in judged.err


@pytest.mark.parametrize(
    ("content", "options", "hint"),
    [
        ("a,b\nc,d\n", [], "--no-header"),
        ("a,b\nc,d\n", [], "--user"),
        ("user,item\na,\nc,d\n", [], "--drop-bad-rows"),
    ],
)
def test_hints_are_in_the_words_of_the_command_line(
    run: Run, tmp_path: Path, content: str, options: list[str], hint: str
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(content)
    done = run("data", "describe", path, *options)
    assert done.code == 1
    assert hint in done.err
    assert "=..." not in done.err
    assert "on_bad_rows" not in done.err


def test_describe_in_a_pipe_is_one_csv_and_takes_a_split_as_a_whole(
    run: Run, log_file: Path, split_directory: Path
) -> None:
    split = tl.Split.load(split_directory)
    whole = sum(part.n_interactions for part in split.parts)
    for path, n in ((log_file, tl.read(log_file).n_interactions), (split_directory, whole)):
        table = dict(pl.read_csv(io.StringIO(run("data", "describe", path).out)).rows())
        assert table["Interactions"] == f"{n:,}"
        assert "Gini index of item popularity" in table


def test_models_of_one_directory_name_are_told_apart_and_the_comparison_is_written(
    run: Run, split_directory: Path, tmp_path: Path
) -> None:
    for place, model in (("a", "ItemPop"), ("b", "ItemKNN")):
        assert run("train", split_directory, "--model", model, "-o", tmp_path / place / "model").code == 0
    paths = [tmp_path / place / "model" for place in "ab"]
    table = tmp_path / "compared.csv"
    done = run("evaluate", *paths, split_directory, "--ks", "3,7", "--comparison", table)
    assert done.code == 0
    compared = pl.read_csv(table)
    assert compared["measure"].to_list() == ["ndcg@7"]
    assert set(pl.read_csv(io.StringIO(done.out))["model"]) == {f"ItemPop ({paths[0]})", f"ItemKNN ({paths[1]})"}


def test_training_tells_the_paper_s_two_measures(run: Run, split_directory: Path, tmp_path: Path) -> None:
    done = run("train", split_directory, "--model", "ItemPop", "-o", tmp_path / "m")
    assert "validation: f1@2 0." in done.err
    assert ", ndcg@20 0." in done.err


def test_an_id_is_never_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show(pl.DataFrame({"[b]user": ["[/red]", "[bold]x"]}), title="[/title]")
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("[/red]", "[bold]x", "[b]user", "[/title]"))


# --- how it ends ----------------------------------------------------------------------------------

posix = pytest.mark.skipif(os.name != "posix", reason="pipes, signals and /dev/full")


@posix
@pytest.mark.parametrize("reader", ["head -n 1", "true"])
def test_a_reader_that_goes_away_is_no_error_and_no_noise(model_directory: Path, reader: str) -> None:
    command = (
        f"{sys.executable} -m truelike recommend {model_directory} --all -k 50 | {reader}; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_behind_stdout_is_one_line(model_directory: Path) -> None:
    command = f"{sys.executable} -m truelike recommend {model_directory} --all > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


@posix
def _until_idle(pid: int) -> None:
    """Wait until a process has used no time for a second, however slow the machine is."""
    used, since = -1.0, time.monotonic()
    while time.monotonic() - since < 1.0 or used < 0.3:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        now = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        if now != used:
            used, since = now, time.monotonic()
        time.sleep(0.1)


def test_an_interrupt_says_stopped_and_is_130(model_directory: Path) -> None:
    command = [sys.executable, "-m", "truelike", "recommend", str(model_directory), "--users", "-"]
    # a test run in the background may have been told to ignore interrupts, and its children inherit that
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    _until_idle(process.pid)  # it waits for users by then
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=60)
    assert (process.returncode, words) == (130, "stopped\n")


# --- impressions ----------------------------------------------------------------------------------


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """What was shown in the world of `log_file`."""
    frame = tl.synthetic.World(n_users=120, n_items=60, seed=1).shown().to_frame()
    path = tmp_path / "shown.csv"
    frame.select(pl.format("u{}", "user_id").alias("user_id"), "item_id").write_csv(path)
    return path


QUICK = ("--set", "factors=4", "--set", "epochs=2")


def test_impressions_set_the_flips(run: Run, log_file: Path, shown: Path, tmp_path: Path) -> None:
    to = ("--model", "exact-nbpo", *QUICK, "-o", tmp_path / "model")
    assert run("train", log_file, "--impressions", shown, *to).code == 0
    model = tl.load(tmp_path / "model")
    known = {"user_id": model.train_.users, "item_id": model.train_.items}
    seen = pl.read_csv(shown).filter(pl.col(name).is_in(ids.values.to_list()) for name, ids in known.items())
    assert model.flips_from == "impressions"
    assert model.flip_probability(seen["user_id"][:9], seen["item_id"][:9]).max() < 1e-6

    likely = seen.unique(maintain_order=True).with_columns(pl.lit(0.25).alias("propensity"))
    likely.write_csv(tmp_path / "likely.csv")
    assert run("train", log_file, "--impressions", tmp_path / "likely.csv", *to).code == 0
    flips = tl.load(tmp_path / "model").flip_probability(likely["user_id"][:9], likely["item_id"][:9])
    assert flips == pytest.approx(0.75, rel=1e-3)


def test_a_held_out_vote_is_not_taken_for_a_dislike(
    run: Run, split_directory: Path, shown: Path, tmp_path: Path
) -> None:
    to = ("--model", "exact-nbpo", *QUICK, "-o", tmp_path / "model")
    assert run("train", split_directory, "--impressions", shown, *to).code == 0
    split, model = tl.Split.load(split_directory), tl.load(tmp_path / "model")
    held_out = split.test.to_frame()
    flips = model.flip_probability(held_out["user_id"], held_out["item_id"])
    votes = sum(part.rows_per_user() for part in split.parts)
    away = (1 - split.train.rows_per_user() / votes)[split.test.user_of_entry]
    assert flips == pytest.approx(away, rel=1e-3)
    assert (flips > 0.05).all()


def test_impressions_that_cannot_be_used_are_explained(
    run: Run, log_file: Path, split_directory: Path, shown: Path, tmp_path: Path
) -> None:
    for name in ("nbpo", "item-knn"):
        done = run("train", log_file, "--impressions", shown, "--model", name, "-o", tmp_path / "model")
        assert (done.code, "--model ExactNBPO" in done.err) == (2, True)
    to = ("--model", "exact-nbpo", *QUICK, "-o", tmp_path / "model")
    done = run("train", log_file, "--impressions", split_directory, *to)
    assert (done.code, "a split" in done.err) == (1, True)
    assert not (tmp_path / "model").exists()


def test_features_are_trained_with_and_items_without_votes_recommended(
    run: Run, log_file: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")
    table = tl.synthetic.World(n_users=120, n_items=60, seed=1).item_features().drop("moods")
    new = table[:1].with_columns(item_id=pl.lit(999, dtype=pl.Int32))
    pl.concat([table, new]).write_csv(tmp_path / "items.csv")
    trained = run(
        "train", log_file, "--item-features", tmp_path / "items.csv", "-o", tmp_path / "model", "-s", "epochs=2"
    )
    assert trained.code == 0, trained.err
    model = tl.load(tmp_path / "model")
    assert model.name == "FM"
    assert 999 in model.recommend("u1", k=100)["item_id"].to_list()
    for name in ("NBPO", "NeuMF"):
        wrong = run("train", log_file, "--model", name, "--item-features", tmp_path / "items.csv")
        assert wrong.code == 2
        assert f"{name} cannot use --item-features: say --model FM" in wrong.err
    wrong = run("train", log_file, "--model", "ACF", "--user-features", tmp_path / "items.csv")
    assert "ACF cannot use --user-features" in wrong.err
