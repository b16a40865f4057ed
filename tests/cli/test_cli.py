from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl

Run = Callable[..., Any]


def test_from_a_log_to_recommendations_in_four_verbs(
    run: Run, model_directory: Path, split_directory: Path
) -> None:
    judged = run("evaluate", model_directory, split_directory, "--ks", "5,10")
    assert judged.code == 0
    table = pl.read_csv(io.StringIO(judged.out))
    assert set(table["metric"]) >= {"f1", "ndcg", "coverage"}
    assert sorted(set(table["k"])) == [5, 10]

    listed = run("recommend", model_directory, "--users", "u3,u1", "-k", 4)
    recommended = pl.read_csv(io.StringIO(listed.out))
    assert recommended.columns == ["user_id", "item_id", "score", "rank"]
    assert recommended["user_id"].to_list() == ["u3"] * 4 + ["u1"] * 4


def test_parameters_given_on_the_command_line_reach_the_model(model_directory: Path) -> None:
    assert tl.load(model_directory).neighbors == 20


def test_a_model_trained_on_a_split_remembers_its_validation_metrics(model_directory: Path) -> None:
    about = json.loads((model_directory / "model.json").read_text())
    assert 0 < about["metrics"]["validation ndcg@20"] < 1


def test_a_config_file_trains_and_the_command_line_overrides_it(run: Run, log_file: Path, tmp_path: Path) -> None:
    config = tmp_path / "train.toml"
    config.write_text(
        f'data = "{log_file}"\nmodel = "ItemKNN"\n[parameters]\nneighbors = 7\nshrinkage = 2.5\n'
        '[read]\nuser = "user_id"\n'
    )
    assert run("train", "--config", config, "-o", tmp_path / "m", "--set", "neighbors=9").code == 0
    model = tl.load(tmp_path / "m")
    assert (model.neighbors, model.shrinkage) == (9, 2.5)


def test_users_come_from_stdin_a_file_or_the_whole_log(run: Run, model_directory: Path, tmp_path: Path) -> None:
    by_stdin = run("recommend", model_directory, "--users", "-", "-k", 2, stdin="u5\nu6\n").out
    names = tmp_path / "users.txt"
    names.write_text("u5\nu6\n")
    assert run("recommend", model_directory, "--users-file", names, "-k", 2).out == by_stdin
    everyone = pl.read_csv(io.StringIO(run("recommend", model_directory, "--all", "-k", 1).out))
    assert len(everyone) == tl.load(model_directory).train_.n_users


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_recommendations_are_written_in_the_format_of_the_name(
    run: Run, model_directory: Path, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"recommended{ending}"
    done = run("recommend", model_directory, "--users", "u1", "-k", 3, "-o", path)
    assert (done.code, done.out) == (0, "")
    reader = {
        ".csv": pl.read_csv,
        ".tsv": lambda p: pl.read_csv(p, separator="\t"),
        ".jsonl": pl.read_ndjson,
        ".parquet": pl.read_parquet,
    }
    assert len(reader[ending](path)) == 3


def test_strangers_and_likeness(run: Run, model_directory: Path) -> None:
    stranger = pl.read_csv(io.StringIO(run("recommend", model_directory, "--from-items", "1,2", "-k", 3).out))
    assert stranger.columns == ["item_id", "score", "rank"]
    alike = pl.read_csv(io.StringIO(run("recommend", model_directory, "--like", "5", "-k", 3).out))
    assert alike["item_id"].to_list() == [5, 5, 5]


def test_several_models_are_compared_user_by_user(
    run: Run, model_directory: Path, split_directory: Path, tmp_path: Path
) -> None:
    other = tmp_path / "popular"
    run("train", split_directory, "--model", "ItemPop", "-o", other)
    values = tmp_path / "values.parquet"
    done = run("evaluate", model_directory, other, split_directory, "--per-user", values)
    assert done.code == 0
    assert "p_holm" in done.err
    assert pl.read_csv(io.StringIO(done.out)).columns == ["model", "metric", "k", "value", "low", "high"]
    assert set(pl.read_parquet(values)["model"]) == {"ItemKNN (model)", "ItemPop (popular)"}


def test_describe_prints_the_line_of_table_1(run: Run, log_file: Path) -> None:
    log = tl.read(log_file)
    shown = run("data", "describe", log_file).out
    assert f"{log.sparsity:.4%}" in shown
    assert f"{log.n_interactions:,}" in shown
    assert "items per user" in shown


@pytest.mark.parametrize("by", ["random", "user", "leave-one-out"])
def test_every_way_to_split_is_written_and_read(run: Run, log_file: Path, tmp_path: Path, by: str) -> None:
    assert run("data", "split", log_file, "-o", tmp_path / by, "--by", by).code == 0
    assert tl.Split.load(tmp_path / by).test.n_interactions > 0


def test_demo_shows_votes_and_truth_and_writes_a_report(run: Run, tmp_path: Path) -> None:
    done = run("demo", "--users", 150, "--items", 90, "-o", tmp_path / "demo")
    assert done.code == 0
    assert "votes" in done.out
    assert "truth" in done.out
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "<svg" in page
    assert "ItemKNN" in page
    table = pl.read_csv(tmp_path / "demo" / "models.csv")
    assert table["model"][-1] == "ExactNBPO + impressions"
    with_flips = table.filter(pl.col("hidden ECE").is_not_null())["model"].to_list()
    assert with_flips == ["NBPO", "ExactNBPO", "ExactNBPO + impressions"]
    assert "share truly liked" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "nowhere.csv"], "there is no file"),
        (["recommend", "nowhere", "--users", "a"], "no model"),
        (["data", "fetch", "no-such-data"], "ml-1m"),
        (["train", "{log}", "--model", "ItemNNK"], "ItemKNN"),
        (["train", "{log}", "--set", "factor=3"], "did you mean 'factors'"),
        (["train", "{log}", "--set", "neighbors"], "name=value"),
        (["train", "{log}", "--set", "factors=0"], "at least 1"),
        (["train", "{log}", "--set", "factors=few"], "whole number"),
        (["train", "{log}", "--user", "customer"], "'customer'"),
        (["data", "split", "{log}", "-o", "x", "--by", "temporal"], "needs times"),
    ],
)
def test_an_error_is_one_line_on_stderr_with_a_remedy_and_exit_code_1(
    run: Run, log_file: Path, arguments: list[str], words: str
) -> None:
    done = run(*(argument.format(log=log_file) for argument in arguments))
    assert done.code == 1
    assert done.out == ""
    assert words in done.err
    assert "Traceback" not in done.err


def test_an_unknown_user_is_named_and_can_be_served_all_the_same(run: Run, model_directory: Path) -> None:
    refused = run("recommend", model_directory, "--users", "nobody")
    assert refused.code == 1
    assert "'nobody'" in refused.err
    served = run("recommend", model_directory, "--users", "nobody", "--on-unknown", "popular", "-k", 2)
    assert served.out.count("nobody") == 2


def test_bad_rows_stop_with_their_lines_or_are_dropped_with_a_warning(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("user,item\na,1\n,2\nb,2\na,3,9\nb,1\n")
    refused = run("train", path, "-o", tmp_path / "m")
    assert refused.code == 1
    assert "line 3" in refused.err
    assert "line 5" in refused.err
    accepted = run("train", path, "-o", tmp_path / "m", "--drop-bad-rows", "--model", "ItemPop")
    assert accepted.code == 0
    assert "dropped 2 bad rows" in accepted.err


def test_a_wrong_option_is_exit_code_2(run: Run) -> None:
    assert run("train", "--no-such-option").code == 2


def test_help_of_every_verb_has_an_example(run: Run) -> None:
    for verb in (["demo"], ["data", "fetch"], ["data", "list"], ["data", "describe"], ["data", "split"],
                 ["train"], ["evaluate"], ["recommend"]):  # fmt: skip
        assert "Example" in run(*verb, "--help").out, verb


def test_a_reader_that_goes_away_is_not_an_error(model_directory: Path) -> None:
    command = f"{sys.executable} -m truelike recommend {model_directory} --all -k 50 | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("user_id")
    assert "Traceback" not in done.stderr


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['truelike', '--help']\n"
        "from truelike.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numba', 'polars', 'scipy', 'numpy', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_training_goes_on_from_a_checkpoint_and_ends_the_same(
    run: Run, split_directory: Path, tmp_path: Path
) -> None:
    call = ("train", split_directory, "--model", "NBPO", "--set", "factors=8", "--set", "epochs=6")
    assert run(*call, "-o", tmp_path / "whole").code == 0
    stopped = (*call[:-1], "epochs=3", "--checkpoint", tmp_path / "run")
    assert run(*stopped, "-o", tmp_path / "part").code == 0
    done = run(*call, "--checkpoint", tmp_path / "run", "--resume", "-o", tmp_path / "resumed")
    assert done.code == 0
    whole, resumed = tl.load(tmp_path / "whole"), tl.load(tmp_path / "resumed")
    assert whole.item_factors_.tobytes() == resumed.item_factors_.tobytes()


def test_resuming_without_a_place_or_a_model_that_has_none_is_a_wrong_call(
    run: Run, log_file: Path, tmp_path: Path
) -> None:
    assert run("train", log_file, "--resume").code == 2
    assert run("train", log_file, "--model", "ItemPop", "--checkpoint", tmp_path / "run").code == 2


def test_on_a_whole_log_the_number_of_epochs_is_found_unless_it_is_said(
    run: Run, log_file: Path, tmp_path: Path
) -> None:
    def trained(*more: str) -> Any:
        assert (
            run("train", log_file, "-o", tmp_path / "m", "--model", "SoftmaxMF", "-s", "factors=4", *more).code
            == 0
        )
        return tl.load(tmp_path / "m").recommend("u1")["score"].to_list()

    def fitted(**how: Any) -> Any:
        epochs = how.pop("epochs", 60)
        return (
            tl.SoftmaxMF(factors=4, epochs=epochs).fit(tl.read(log_file), **how).recommend("u1")["score"].to_list()
        )

    assert trained() == fitted()  # too few votes
    assert trained("--validation", "0.3") == fitted(validation=0.3)
    assert trained("--validation", "0") == fitted()
    assert trained("--set", "epochs=5") == fitted(epochs=5)
    assert trained("--model", "SoftmaxMF:epochs=5") == fitted(epochs=5)
    wrong = run("train", log_file, "-o", tmp_path / "w", "--model", "SoftmaxMF", "--validation", "2")
    assert wrong.code == 1
    assert "validation is 2.0; a share is at least 0 and below 1" in wrong.err


def test_a_split_with_a_validation_part_needs_no_share(run: Run, split_directory: Path, tmp_path: Path) -> None:
    wrong = run("train", split_directory, "-o", tmp_path / "m", "--validation", "0.1")
    assert wrong.code == 2
    assert "a split has a validation part" in wrong.err


def test_what_was_found_is_told_and_saved(run: Run, log_file: Path, tmp_path: Path) -> None:
    told = run(
        "train", log_file, "-o", tmp_path / "m", "--model", "BPR", "--set", "factors=4", "--validation", "0.3"
    )
    saved = json.loads((tmp_path / "m" / "model.json").read_text())["metrics"]
    assert f"{int(saved['epochs'])} epochs, which were best on votes that were held out: ndcg@20" in told.err
    assert 0 < saved["held-out ndcg@20"] < 1


def test_a_share_means_nothing_to_a_model_without_epochs_and_that_is_said(
    run: Run, log_file: Path, tmp_path: Path
) -> None:
    told = run("train", log_file, "-o", tmp_path / "m", "--model", "EASE", "--validation", "0.1")
    assert told.code == 0
    assert "EASE is trained in one go" in told.err
