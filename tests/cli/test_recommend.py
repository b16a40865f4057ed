from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl

Run = Callable[..., Any]


def test_users_are_answered_in_the_order_of_the_call(run: Run, model: Path) -> None:
    table = run("recommend", model, "--users", "u3,u1", "-k", 4).table
    assert table.columns == ["user_id", "item_id", "score", "rank"]
    assert table["user_id"].to_list() == ["u3"] * 4 + ["u1"] * 4


def test_users_come_from_stdin_or_a_file(run: Run, model: Path, tmp_path: Path) -> None:
    by_stdin = run("recommend", model, "--users", "-", "-k", 2, stdin="u5\nu6\n").out
    assert by_stdin.count("\n") == 5
    for name, text in (
        ("lines.txt", "u5\n\nu6\n"),
        ("lines.csv", "u5\nu6\n"),
        ("column.csv", "user_id\nu5\nu6\n"),
        ("table.csv", "age,user_id\n30,u5\n40,u6\n"),
        ("table.jsonl", '{"user": "u5"}\n{"user": "u6"}\n'),
    ):
        (tmp_path / name).write_text(text)
        assert run("recommend", model, "--users-file", tmp_path / name, "-k", 2).out == by_stdin, name
    (tmp_path / "wrong.csv").write_text("age,height\n1,2\n")
    wrong = run("recommend", model, "--users-file", tmp_path / "wrong.csv")
    assert (wrong.code, "Rename one to user_id" in wrong.err) == (1, True)


def test_new_users_come_from_an_option_or_a_file_of_histories(run: Run, model: Path, tmp_path: Path) -> None:
    one = run("recommend", model, "--from-items", "1,2", "-k", 3).table
    assert one.columns == ["item_id", "score", "rank"]
    (tmp_path / "histories.csv").write_text("zoe;1\nzoe;2\nadam;5\n")
    options = ("--no-header", "--separator", ";")
    many = run("recommend", model, "--histories", tmp_path / "histories.csv", "-k", 3, *options).table
    assert many["user_id"].unique(maintain_order=True).to_list() == ["adam", "zoe"]
    assert many.filter(pl.col("user_id") == "zoe")["item_id"].to_list() == one["item_id"].to_list()


def test_similar_items(run: Run, model: Path) -> None:
    table = run("recommend", model, "--similar-to", "5", "-k", 3).table
    assert table.columns == ["item_id", "similar_item_id", "score", "rank"]
    assert table["item_id"].to_list() == [5, 5, 5]


def test_candidates_and_excluded_items_come_from_files(run: Run, model: Path, tmp_path: Path) -> None:
    first = run("recommend", model, "--users", "u1", "-k", 1).table["item_id"][0]
    more = ("--candidates", tmp_path / "in-stock.txt", "--exclude", tmp_path / "banned.csv")
    for whom in (("--users", "u1"), ("--from-items", first), ("--similar-to", first)):
        column = "similar_item_id" if whom[0] == "--similar-to" else "item_id"
        best = run("recommend", model, *whom, "-k", 4).table[column].to_list()
        (tmp_path / "in-stock.txt").write_text("\n".join(map(str, [*best[1:], "new"])))
        (tmp_path / "banned.csv").write_text(f"item_id,why\n{best[2]},recalled\n")
        done = run("recommend", model, *whom, *more, "-k", 4)
        assert done.table[column].to_list() == [best[1], best[3]]


def test_titles_come_from_a_file_in_any_encoding(run: Run, files: Path, tmp_path: Path) -> None:
    latin = tmp_path / "titles.csv"
    latin.write_bytes((files / "titles.csv").read_text("utf-8").encode("latin-1"))
    call = ("recommend", files / "model", "--users", "u1", "-k", 2)
    titles = run(*call, "--titles", files / "titles.csv").table
    assert titles["title"].to_list() == [f"Café {item}" for item in titles["item_id"]]
    assert run(*call, "--titles", latin, "--encoding", "latin-1").table.equals(titles)
    wrong = run(*call, "--titles", latin)
    assert (wrong.code, "--encoding latin-1" in wrong.err) == (1, True)


def test_an_unknown_user_is_an_error_or_gets_popular_items(run: Run, model: Path) -> None:
    refused = run("recommend", model, "--users", "nobody")
    assert refused.code == 1
    assert "'nobody'" in refused.err
    assert "Use --on-unknown popular or --on-unknown skip" in refused.err
    served = run("recommend", model, "--users", "nobody", "--on-unknown", "popular", "-k", 2)
    assert served.out.count("nobody") == 2


def test_a_model_that_was_trained_with_pandas_is_answered_without_it(
    run: Run, files: Path, tmp_path: Path
) -> None:
    pandas = pytest.importorskip("pandas")
    data = tl.read(pandas.read_csv(files / "log.csv"))
    tl.ItemPop().fit(data).save(tmp_path / "model")
    for whom in (("--users", "u1"), ("--all-users",), ("--similar-to", "5")):
        done = run("recommend", tmp_path / "model", *whom, "-k", 1)
        assert done.code == 0, done.err
    assert run("evaluate", tmp_path / "model", files / "split").code == 1  # all of it is in training


def test_all_has_two_spellings_and_all_options(run: Run, files: Path, tmp_path: Path) -> None:
    (tmp_path / "in-stock.txt").write_text("\n".join(map(str, range(0, 60, 2))))
    (tmp_path / "banned.txt").write_text("4\n6\n")
    options = ("-k", 3, "--candidates", tmp_path / "in-stock.txt", "--exclude", tmp_path / "banned.txt",
               "--include-seen", "--titles", files / "titles.csv", "--n-jobs", 1)  # fmt: skip
    done = run("recommend", files / "model", "--all", *options, "--block-size", 50, "-o", tmp_path / "a.parquet")
    assert (done.code, done.out) == (0, "")
    assert "wrote 351 rows" in done.err
    assert run("recommend", files / "model", "--all-users", *options, "-o", tmp_path / "b.parquet").code == 0
    model = tl.load(files / "model").set_titles(files / "titles.csv")
    expected = model.recommend(
        k=3, candidates=set(range(0, 60, 2)) & set(model.train_.items),
        exclude={4, 6} & set(model.train_.items), exclude_seen=False, titles=True,
    )  # fmt: skip
    assert len(expected) == 351
    for name in ("a.parquet", "b.parquet"):
        assert pl.read_parquet(tmp_path / name).equals(expected)
    assert not list(tmp_path.glob(".*"))


def test_a_pipe_gets_csv_block_by_block(run: Run, model: Path) -> None:
    whole = run("recommend", model, "--all", "-k", 2).out
    assert run("recommend", model, "--all", "-k", 2, "--block-size", 7).out == whole
    assert whole == tl.load(model).recommend(k=2).write_csv()


KILLED = """
import os, signal, sys
from truelike.models import batch
write = batch._Parts.write
def write_some(parts, number, frame):
    if number == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    write(parts, number, frame)
batch._Parts.write = write_some
from truelike.cli import main
sys.argv = ["truelike", *sys.argv[1:]]
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is a signal of POSIX")
def test_after_kill_9_the_same_command_continues_to_the_same_file(run: Run, model: Path, tmp_path: Path) -> None:
    call = ("recommend", model, "--all", "-k", 4, "--block-size", 10, "-o")
    assert run(*call, tmp_path / "undisturbed.parquet").code == 0
    output = tmp_path / "lists.parquet"
    output.write_bytes(b"of yesterday")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, (*call, output))], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert output.read_bytes() == b"of yesterday"
    done = run(*call, output)
    assert done.code == 0
    assert "continuing at user 40 of 117" in done.err
    assert output.read_bytes() == (tmp_path / "undisturbed.parquet").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["lists.parquet", "undisturbed.parquet"]
    again = run(*call, output)
    assert "continuing" not in again.err


# --- probabilities --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory, files: Path) -> dict[str, Path]:
    """Models with flip probabilities: one that was given impressions, and one of interactions alone."""
    place = tmp_path_factory.mktemp("noisy")
    data, quick = tl.read(files / "log.csv"), {"factors": 6, "epochs": 3, "flip_factors": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few impressions are of users and items without an interaction
        shown = tl.ImpressionMF(steps=30, burn_in=10, samples=4).fit(
            tl.read(data, impressions=files / "shown.csv"), progress=False
        )
    shown.save(place / "shown")
    tl.NBPO(**quick).fit(data, progress=False).save(place / "alone")
    return {"shown": place / "shown", "alone": place / "alone"}


def test_lists_with_probabilities_say_what_they_rest_on(run: Run, noisy: Any, tmp_path: Path) -> None:
    model = tl.load(noisy["shown"])
    done = run("recommend", noisy["shown"], "--users", "u3,u1", "-k", 4, "--probability")
    assert done.table.columns == ["user_id", "item_id", "score", "rank", "probability", "evidence"]
    plain = run("recommend", noisy["shown"], "--users", "u3,u1", "-k", 4).table
    assert done.table.drop("probability", "evidence").equals(plain)
    expected = model.like_probability(plain["user_id"], plain["item_id"])
    assert done.table["probability"].to_numpy() == pytest.approx(expected["probability"].to_numpy(), abs=1e-5)
    assert set(done.table["evidence"]) == {"impressions"}
    assert "known from the impressions of the training data" in done.err
    assert "warning" not in done.err

    for options in (("--from-items", "1,2"), ("--users", "u3,nobody", "--on-unknown", "skip")):
        assert (
            run("recommend", noisy["shown"], *options, "--probability").table["probability"].is_between(0, 1).all()
        )
    for ending in ("csv", "parquet"):
        path = tmp_path / f"all.{ending}"
        assert run("recommend", noisy["shown"], "--all", "-k", 2, "--probability", "-o", path).code == 0
        written = pl.read_csv(path) if ending == "csv" else pl.read_parquet(path)
        assert written.columns[-2:] == ["probability", "evidence"]
        assert written.height == 2 * model.train_.n_users

    alone = run("recommend", noisy["alone"], "--users", "u3", "--probability", "--quiet")
    assert set(alone.table["evidence"]) == {"interactions"}
    assert "a ranking by the model, not probabilities" in alone.err


def test_hidden_likes_from_a_saved_model(run: Run, noisy: Any, files: Path, tmp_path: Path) -> None:
    done = run("recommend", noisy["shown"], "--users", "u3,u1", "-k", 4, "--hidden-likes")
    columns = ["user_id", "item_id", "posterior", "flip_probability", "rank", "evidence"]
    assert done.table.columns == columns
    expected = tl.load(noisy["shown"]).hidden_likes(["u3", "u1"], 4)
    assert done.table["item_id"].to_list() == expected["item_id"].to_list()
    assert "known from the impressions" in done.err

    (tmp_path / "few.txt").write_text("\n".join(map(str, range(20))))
    more = ("--candidates", tmp_path / "few.txt", "--titles", files / "titles.csv", "-o", tmp_path / "h.parquet")
    assert run("recommend", noisy["alone"], "--all", "-k", 3, "--hidden-likes", *more).code == 0
    table = pl.read_parquet(tmp_path / "h.parquet")
    assert table["item_id"].max() < 20
    assert set(table["evidence"]) == {"interactions"}
    assert table["title"].str.starts_with("Caf").all()


def test_probabilities_that_cannot_be_had_are_explained(run: Run, noisy: Any, model: Path) -> None:
    for option in ("--probability", "--hidden-likes"):
        done = run("recommend", model, "--users", "u1", option)
        assert (done.code, "ItemKNN has no probabilities of likes" in done.err) == (1, True)
        assert "truelike train LOG --model ImpressionMF --impressions FILE" in done.err
    for options in (
        ("--users", "u1", "--include-seen"), ("--users", "u1", "--on-unknown", "skip"), ("--from-items", "1"),
        ("--users", "u1", "--probability"),
    ):  # fmt: skip
        done = run("recommend", noisy["shown"], *options, "--hidden-likes")
        assert (done.code, "cannot be used with it" in done.usage_error) == (2, True), options
    for options in (("--similar-to", "5"), ("--users", "nobody", "--on-unknown", "popular")):
        done = run("recommend", noisy["shown"], *options, "--probability")
        assert (done.code, "similar and popular items have none" in done.usage_error) == (2, True)
    unknown = run("recommend", noisy["shown"], "--users", "nobody", "--hidden-likes")
    assert (unknown.code, "'nobody'" in unknown.err) == (1, True)


def test_rules_and_exclusions_by_user_come_from_files(run: Run, model: Path, tmp_path: Path) -> None:
    loaded = tl.load(model)
    users = list(loaded.train_.users)[:4]
    products = pl.DataFrame(
        {"item_id": range(60), "price": [n % 9 for n in range(60)], "brand": ["a", "b", "c"] * 20}
    )
    products.write_csv(tmp_path / "products.csv")
    (tmp_path / "rules.toml").write_text('filter = "price < 7"\nat_most = {brand = 2}\npins = {5 = 1}\n')
    rules = tl.Rules(filter="price < 7", at_most={"brand": 2}, pins={5: 1}, items=products)
    pairs = loaded.recommend(users, 2).select("user_id", "item_id")
    pairs.with_columns(pl.lit("returned").alias("why")).write_csv(tmp_path / "returned.csv")
    options = ("-k", 5, "--rules", tmp_path / "rules.toml", "--items", tmp_path / "products.csv",
               "--exclude", tmp_path / "returned.csv")  # fmt: skip
    expected = loaded.recommend(users, 5, rules=rules, exclude=pairs)
    assert run("recommend", model, "--users", ",".join(users), *options).out == expected.write_csv()
    whole = run("recommend", model, "--all", *options, "-o", tmp_path / "lists.parquet")
    assert whole.code == 0, whole.err
    written = pl.read_parquet(tmp_path / "lists.parquet")
    assert written.filter(pl.col("user_id").is_in(users)).equals(expected)
    new = run("recommend", model, "--from-items", "1,2", *options[:-2])
    assert new.out == loaded.recommend_from_items([1, 2], 5, rules=rules).write_csv()
    for whom, words in (
        (("--similar-to", "5"), "--rules is for lists for users"),
        (("--users", users[0], "--hidden-likes"), "--rules cannot be used with it"),
        (("--from-items", "1", "--probability"), "for new users, --rules cannot be used"),
    ):
        assert words in run("recommend", model, *whom, *options).usage_error
    lonely = run("recommend", model, "--users", users[0], "--items", tmp_path / "products.csv")
    assert "give --rules FILE, too" in lonely.usage_error
    similar = run("recommend", model, "--similar-to", "5", "--exclude", tmp_path / "returned.csv")
    assert (similar.code, "ids are expected" in similar.err) == (1, True)
    (tmp_path / "rules.toml").write_text('filter = "colour = red"\n')
    wrong = run("recommend", model, "--users", users[0], *options)
    assert (wrong.code, "They have brand, price" in wrong.err) == (1, True)
