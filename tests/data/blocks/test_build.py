"""A block directory that is built of files has exactly what `tl.read` reads from the same rows."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import truelike as tl
from truelike.core.array_files import read_arrays
from truelike.data.blocks import build as module
from truelike.data.blocks import sources, tables
from truelike.data.blocks.build import build, parse_memory
from truelike.data.blocks.format import array_file, user_file
from truelike.errors import DataError, DataWarning, MissingExtraError, ParameterError, StorageError, TooLargeError

try:
    import duckdb  # noqa: F401
except ImportError:
    pytestmark = pytest.mark.skip(reason="DuckDB is not installed: pip install 'truelike[big]'")


def content(directory: Path) -> dict[str, Any]:
    """Everything in a block directory, without the random ids of its files."""
    about = json.loads((directory / "blocks.json").read_text())
    about.pop("crc32")
    found: dict[str, Any] = {}
    for number, block in enumerate(about["blocks"]):
        block["arrays"].pop("id")
        descriptor = os.open(directory / array_file(number), os.O_RDONLY)
        try:
            arrays = read_arrays(descriptor)[1]
        finally:
            os.close(descriptor)
        found |= {f"{number} {name}": (array.dtype.str, array.tolist()) for name, array in arrays.items()}
    names = {path.name for path in directory.iterdir()}
    tables = {name: (directory / name).read_bytes() for name in names if name.endswith(".parquet")}
    return {"about": about, "names": names, **found, **tables}


def same(source: Any, place: Path, *, blocks: int = 3, core: tuple[int, int] = (0, 0), **how: Any) -> None:
    """Build of files and of what `tl.read` reads, and compare every byte but the random ids."""
    build(source, place / "of files", blocks=blocks, min_user=core[0], min_item=core[1], name="log", **how)
    data = tl.read(source, name="log", **how)
    if any(core):
        data = tl.k_core(data, user=core[0], item=core[1]).dataset
    build(data, place / "of dataset", blocks=blocks)
    assert content(place / "of files") == content(place / "of dataset")
    assert not [path for path in place.iterdir() if "scratch" in path.name]


def rows(n: int = 3_000, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "user_id": rng.integers(-50, 150, n),
            "item_id": (rng.random(n) ** 2 * 60).astype(int),
            "rating": rng.integers(1, 6, n),
            "weight": rng.random(n) * 3,
            "timestamp": rng.integers(0, 10**9, n),
        }
    )


AS_TEXT = pl.format("ü{}", "user_id").alias("user_id"), pl.format("{}-品", "item_id").alias("item_id")
HOW: list[dict[str, Any]] = [{}, {"min_rating": 3}, {"weight": "weight"}, {"time": "rating", "weight": "rating"}]


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".tsv", ".csv.gz"])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("texts", [False, True])
def test_files_give_what_read_gives(tmp_path: Path, ending: str, how: dict[str, Any], texts: bool) -> None:
    same(write(rows().with_columns(AS_TEXT) if texts else rows(), tmp_path / f"log{ending}"), tmp_path, **how)


def write(frame: pl.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.write_parquet(path, row_group_size=max(1, len(frame) // 3))
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        frame.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")
    return path


def test_many_groups_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALLEST_GROUP", 500)
    monkeypatch.setattr(module, "LARGEST_GROUP", 500)
    for how in HOW:
        same(write(rows().with_columns(AS_TEXT), tmp_path / "log.parquet"), tmp_path, blocks=5, **how)


@pytest.mark.parametrize(
    "ids",
    [
        ["7", "07", "x"],
        ["7", "-3", "10"],
        ["7", "9223372036854775808"],
        ["+7", "8"],
        ["a'b", 'q"q', "new\nline"],
        ["z", "Z", "é", "\U0001f600", "\uffff"],
    ],
)
def test_ids_of_text_files(tmp_path: Path, ids: list[str]) -> None:
    frame = pl.DataFrame({"user": ids * 3, "item": (ids[::-1] * 3)})
    same(write(frame, tmp_path / "log.csv"), tmp_path, blocks=1)
    same(write(frame, tmp_path / "log.parquet"), tmp_path, blocks=1)


@pytest.mark.parametrize(
    "dtype",
    [pl.Int8, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64, pl.Boolean, pl.Categorical, pl.Enum(["0", "1", "2"])],
)
def test_types_of_ids(tmp_path: Path, dtype: Any) -> None:
    numbers = pl.Series([0, 1, 1, 0] if dtype != pl.UInt64 else [2**64 - 1, 5, 40, 5], dtype=pl.UInt64)
    ids = numbers.cast(pl.String).cast(dtype) if dtype in (pl.Categorical, pl.Enum) else numbers.cast(dtype)
    frame = pl.DataFrame({"user": ids, "item": ids.reverse()})
    same(write(frame, tmp_path / "log.parquet"), tmp_path, blocks=2)


def test_fractions_are_no_ids(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [1.5, 2.0], "item": [1, 2]})
    with pytest.raises(DataError, match=r"user ids are numbers with a fraction, or too large, such as 1\.5"):
        build(write(frame, tmp_path / "log.parquet"), tmp_path / "blocks")
    with pytest.raises(DataError, match="item ids are numbers with a fraction"):
        build(tmp_path / "log.parquet", tmp_path / "blocks", user="item", item="user")
    write(pl.DataFrame({"user": [b"a"], "item": [1]}), tmp_path / "log.parquet")
    with pytest.raises(DataError, match="are of the type BLOB"):
        build(tmp_path / "log.parquet", tmp_path / "blocks")


def test_uuids_are_kept_as_text_of_their_kind(tmp_path: Path) -> None:
    import duckdb

    ids = [uuid.UUID(int=number * 7919 << 90) for number in range(40)]
    path = tmp_path / "log.parquet"
    values = ", ".join(f"('{user}'::UUID, '{item}'::UUID)" for user, item in zip(ids, reversed(ids), strict=True))
    duckdb.sql(f"COPY (SELECT * FROM (VALUES {values}) t(user_id, item_id)) TO '{path}'")
    build(path, tmp_path / "of files", blocks=3, name="log")
    build(tl.read(list(zip(ids, reversed(ids), strict=True)), name="log"), tmp_path / "of dataset", blocks=3)
    assert content(tmp_path / "of files") == content(tmp_path / "of dataset")
    about = json.loads((tmp_path / "of files" / "blocks.json").read_text())
    assert about["ids"] == {"user": "uuid", "item": "uuid"}


# --- times ----------------------------------------------------------------------------------------

MOMENTS = pl.Series([-1, 0, 10**15 + 1, 1_600_000_000_123_456], dtype=pl.Int64)


@pytest.mark.parametrize(
    "times",
    [
        MOMENTS.cast(pl.Datetime("us")),
        (MOMENTS * 1000 + 999).cast(pl.Datetime("ns")),
        (MOMENTS // 1000).cast(pl.Datetime("ms")),
        MOMENTS.cast(pl.Datetime("us", "UTC")),
        pl.Series([0, 1, 2, 20_000]).cast(pl.Date),
        pl.Series([0.5, 1.0000005, 1e9, -2.25]),
        pl.Series([1, 2, 3, 4], dtype=pl.UInt64),
        pl.Series(["5", "6", "+7", "-8"]),
        pl.Series(["5.5", "6", "1e3", ".5"]),
        pl.Series(["2024-01-05", "2024-02-01", "1999-12-31", "2000-01-01"]),
        pl.Series(["2024-01-05T10:00:00", "2024-02-01T00:00:01", "1999-12-31T23:59:59", "2000-01-01T00:00:00"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_times(tmp_path: Path, times: pl.Series, ending: str) -> None:
    frame = pl.DataFrame(
        {"user": ["a", "b", "b", "c"] * 2, "item": [1, 2, 2, 3] * 2, "day": pl.concat([times, times])}
    )
    same(write(frame, tmp_path / f"log{ending}"), tmp_path, blocks=2)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_dates_that_begin_with_the_day_or_the_month(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "TIMES", 2)  # the value that tells may be in another part
    users, items = ["a", "b", "b", "c"], [1, 2, 2, 3]
    for number, days in enumerate((["03/04/2026", "05/06/2026", "01/02/2026", "13/04/2026"], ["3.4.2026"] * 4)):
        log = write(pl.DataFrame({"user": users, "item": items, "day": days}), tmp_path / f"log{number}{ending}")
        same(log, tmp_path, blocks=2)
    log = write(pl.DataFrame({"user": users, "item": items, "day": ["03/04/2026"] * 4}), tmp_path / f"log{ending}")
    with pytest.raises(DataError, match=r"dates of the column 'day' may begin .*: '03/04'"):
        build(log, tmp_path / "blocks")
    for order in ("day-first", "month-first"):
        same(log, tmp_path, blocks=2, dates=order)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_what_is_lost_with_rows_of_weight_zero_is_counted(tmp_path: Path, ending: str) -> None:
    rows = {"user": [*"aabcc"], "item": [1, 2, 1, 3, 1], "qty": [2, 0, 0, 0, 1], "stars": [5, 5, 5, 1, 5]}
    log = write(pl.DataFrame(rows), tmp_path / f"log{ending}")
    for how, message in (
        ({}, r"^left out 3 rows of weight 0 \(column 'qty'\), and so 1 user and 2 items without"),
        ({"min_rating": 2, "rating": "stars"}, "^left out 2 rows .* 1 user and 1 item without"),
    ):
        with pytest.warns(DataWarning, match=message) as told:
            same(log, tmp_path, blocks=2, weight="qty", **how)
        assert len({str(each.message) for each in told}) == 1, "as tl.read says it"


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize(
    "day", [["1", "x", "3"], ["2024-01-01", "soon", "2024-01-03"], ["1.5", "", "2"], ["a", "b", "c"]]
)
def test_values_that_are_no_times(tmp_path: Path, ending: str, day: list[str]) -> None:
    log = write(pl.DataFrame({"user": ["a", "b", "c"], "item": [1, 2, 3], "day": day}), tmp_path / f"log{ending}")
    with pytest.warns(DataWarning, match="looks like a time, but"):
        same(log, tmp_path, blocks=1)
    with pytest.raises(DataError, match=r"bad: .* has no usable time"):
        build(log, tmp_path / "blocks", time="day")
    if day != ["a", "b", "c"]:
        with pytest.warns(DataWarning, match="dropped 1 bad row"):
            same(log, tmp_path, blocks=1, time="day", on_bad_rows="drop")


# --- bad rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_bad_rows(tmp_path: Path, ending: str) -> None:
    frame = pl.DataFrame(
        {
            "user": ["a", "", "c", "d", "e", "f", None, "h"],
            "item": ["1", "2", None, "4", "5", "6", "7", "8"],
            "weight": ["1", "1", "1", "inf", "x", "0", "1", "1e-3"],
        }
    )
    log = write(frame, tmp_path / f"log{ending}")
    with pytest.warns(DataWarning, match="dropped 5 bad rows: "), pytest.warns(DataWarning, match="weight 0"):
        same(log, tmp_path, blocks=2, weight="weight", on_bad_rows="drop")
    place = "line 3 of" if ending == ".csv" else r"row 1 \(counted from 0\) of"
    with pytest.raises(DataError, match=rf'^5 rows are bad: {place} .* has no user.*on_bad_rows="drop"'):
        build(log, tmp_path / "blocks", weight="weight")


def test_negative_weights_are_taken_back_in_memory_only(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,weight\na,1,2\na,1,-1\nb,2,1\n")
    with pytest.raises(DataError, match=r"1 row is bad: line 3 of .* has no usable weight"):
        build(tmp_path / "log.csv", tmp_path / "blocks", weight="weight")
    with pytest.warns(DataWarning, match="1 rows have a negative weight"):
        data = tl.read(tmp_path / "log.csv", weight="weight")
    build(data, tmp_path / "blocks")
    assert tl.blocks.open(tmp_path / "blocks").to_dataset().to_frame()["weight"].to_list() == [1, 1]


def test_bad_numbers_are_named_by_their_lines(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text('user,item,rating\n"a\nb",1,5\nc,2,4\n\nd,3,high\n')
    with pytest.raises(DataError, match=r"^1 row is bad: line 6 of 'log.csv' has no usable rating"):
        build(tmp_path / "log.csv", tmp_path / "blocks", min_rating=3)


def test_lines_that_cannot_be_parsed(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(b"user,item\na,1\nb\nc,3,4\n\xff,5\nd,6\n")
    with pytest.warns(DataWarning, match="dropped 3 bad rows: line 3 .*has 1 field instead of 2"):
        same(tmp_path / "log.csv", tmp_path, blocks=2, on_bad_rows="drop")


def test_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,rating\na,1,2\n")
    with pytest.raises(DataError, match="the dataset is empty"):
        build(tmp_path / "log.csv", tmp_path / "blocks", min_rating=3)
    for text in ("user,item\n", "user,item\n\n"):
        (tmp_path / "log.csv").write_text(text)
        with pytest.raises(DataError, match="the dataset is empty"):
            build(tmp_path / "log.csv", tmp_path / "blocks")
    write(rows().clear(), tmp_path / "log.parquet")
    with pytest.raises(DataError, match="the dataset is empty"):
        build(tmp_path / "log.parquet", tmp_path / "blocks")
    (tmp_path / "log.csv").write_text("")
    with pytest.raises(DataError, match="is empty"):
        build(tmp_path / "log.csv", tmp_path / "blocks")
    assert {path.name for path in tmp_path.iterdir()} == {"log.csv", "log.parquet"}


# --- the k-core, and random logs ------------------------------------------------------------------


@pytest.mark.parametrize("core", [(2, 0), (0, 60), (6, 20), (8, 10)])
def test_the_core_is_that_of_k_core(
    tmp_path: Path, core: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_GROUP", 500)
    log = write(rows().drop("timestamp").with_columns(AS_TEXT), tmp_path / "log.parquet")
    same(log, tmp_path, core=core)
    same(log, tmp_path, core=core, weight="weight", time="rating")
    with pytest.raises(DataError, match="nothing is left of the dataset in its 61/1-core"):
        build(log, tmp_path / "blocks", min_user=61, min_item=1)


IDS = st.one_of(
    st.lists(st.integers(-3, 12), min_size=1, max_size=40),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3), min_size=1, max_size=40),
)


@settings(max_examples=12)
@given(IDS, st.data())
def test_random_logs(tmp_path_factory: pytest.TempPathFactory, users: list[Any], data: st.DataObject) -> None:
    place = tmp_path_factory.mktemp("random")
    n = len(users)
    items = data.draw(st.lists(st.sampled_from([1, 2, 3, 2**40]), min_size=n, max_size=n))
    weights = data.draw(st.lists(st.floats(0.001, 1e6), min_size=n, max_size=n))
    days = data.draw(st.lists(st.integers(-(2**60), 2**60), min_size=n, max_size=n))
    frame = pl.DataFrame({"user": users, "item": items, "weight": weights, "day": days})
    how: dict[str, Any] = data.draw(st.sampled_from([{}, {"weight": "weight"}]))
    blocks = data.draw(st.integers(1, len(set(users))))
    same(write(frame, place / "log.parquet"), place, blocks=blocks, **how)
    if all("\0" not in str(user) and "\r" not in str(user) for user in users):
        same(write(frame, place / "log.csv"), place, blocks=blocks, **how)


# --- sources --------------------------------------------------------------------------------------


def test_several_files_are_one_log(tmp_path: Path) -> None:
    whole = rows().with_columns(AS_TEXT)
    build(tl.read(whole, name="log"), tmp_path / "expected", blocks=3)
    expected = content(tmp_path / "expected")
    for ending in (".parquet", ".csv"):
        place = tmp_path / f"log{ending}s"
        (place / "more").mkdir(parents=True)
        parts = [place / f"a{ending}", place / f"b{ending}", place / "more" / f"c{ending}"]
        for number, path in enumerate(parts):
            write(whole[number * 1_000 : (number + 1) * 1_000], path)
        (place / "_SUCCESS").write_text("")
        (place / ".hidden").write_text("x")
        for source in (parts, [str(part) for part in parts], place, f"{place}/**/*{ending}"):
            build(source, tmp_path / "blocks", blocks=3, name="log")
            assert content(tmp_path / "blocks") == expected


def test_names_with_letters_of_patterns(tmp_path: Path) -> None:
    place = tmp_path / "a[b]*? it's"
    place.mkdir()
    for ending in (".parquet", ".csv"):
        same(write(rows(), place / f"log[1]{ending}"), place, weight="weight")
    (tmp_path / "a[b]*? it's" / "log[1].csv").unlink()
    build(place / "log[1].parquet", place / "of files", blocks=3)


def test_keys_in_the_names_of_directories_are_columns(tmp_path: Path) -> None:
    whole = (
        rows()
        .drop("timestamp")
        .with_columns(pl.lit("2024-01-0").add(pl.col("rating").cast(pl.String)).alias("day"))
    )
    for (day,), part in whole.partition_by("day", as_dict=True).items():
        (tmp_path / "log" / f"day={day}").mkdir(parents=True)
        write(part.drop("day"), tmp_path / "log" / f"day={day}" / "part.parquet")
    build(tmp_path / "log", tmp_path / "of files", blocks=3)
    build(tl.read(whole.with_columns(pl.col("day").str.to_date()), name="log"), tmp_path / "of dataset", blocks=3)
    assert content(tmp_path / "of files") == content(tmp_path / "of dataset")


def test_a_column_of_the_files_is_not_replaced_by_a_key_in_the_name_of_a_directory(tmp_path: Path) -> None:
    place = tmp_path / "user_id=7" / "item_id=8"
    place.mkdir(parents=True)
    build(write(rows(), place / "log.parquet"), tmp_path / "of files", blocks=3)
    build(tl.read(rows(), name="log"), tmp_path / "of dataset", blocks=3)
    assert content(tmp_path / "of files") == content(tmp_path / "of dataset")
    (place / "day=2024-01-02").mkdir()
    write(rows().drop("timestamp"), place / "day=2024-01-02" / "log.parquet")
    with pytest.raises(
        DataError, match=r"the column user_id, item_id is in the files and, with other values maybe"
    ):
        build(place / "day=2024-01-02", tmp_path / "blocks", time="day")


def test_a_column_that_only_a_later_file_has_is_missing_in_the_first(tmp_path: Path) -> None:
    write(rows().drop("timestamp"), tmp_path / "a.parquet")
    write(rows(), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"there is no column 'timestamp' in .*a.parquet"):
        build(f"{tmp_path}/*.parquet", tmp_path / "blocks")


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    write(rows(), tmp_path / "a.parquet")
    write(rows().with_columns(AS_TEXT), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"is of the type VARCHAR in .*b.parquet' and BIGINT in .*a.parquet"):
        build(f"{tmp_path}/*.parquet", tmp_path / "blocks")
    write(rows().rename({"item_id": "thing"}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"there is no column 'item_id' in .*b.parquet"):
        build(f"{tmp_path}/*.parquet", tmp_path / "blocks")
    write(rows(), tmp_path / "c.csv")
    with pytest.raises(DataError, match="files of several formats: csv, parquet"):
        build(tmp_path, tmp_path.parent / "blocks")
    (tmp_path / "d.csv").write_text("customer,item_id\n1,2\n")
    with pytest.raises(DataError, match=r"has the columns customer, item_id, and .*c.csv' has user_id, item_id"):
        build([tmp_path / "c.csv", tmp_path / "d.csv"], tmp_path / "blocks")


def test_sources_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "log.jsonl").write_text('{"user": 1, "item": 2}\n')
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(b"user,item\n1,2\n" * 9_999)[:-20])
    (tmp_path / "whole.parquet").write_bytes(b"PAR1 this is no Parquet PAR1")
    damaged = bytearray(write(rows(), tmp_path / "log.parquet").read_bytes())
    (tmp_path / "cut.parquet").write_bytes(damaged[: len(damaged) // 2])
    damaged[200:400] = bytes(200)
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    for source, words in [
        (tmp_path / "none.csv", "there is no file"),
        (tmp_path / "empty", "there are no files in"),
        (f"{tmp_path}/*.pq", "no file matches"),
        (tmp_path / "log.jsonl", "expected Parquet files"),
        (tmp_path / "log.csv.gz", "is not a whole gzip file"),
        (tmp_path / "whole.parquet", "cannot be read"),
        (tmp_path / "cut.parquet", "cannot be read"),
        (tmp_path / "damaged.parquet", "is damaged|cannot be read"),
        ([], "the log is list; expected"),
        (7, "the log is int; expected"),
    ]:
        with pytest.raises(DataError, match=words):
            build(source, tmp_path / "blocks")
    assert not [path for path in tmp_path.iterdir() if "blocks" in path.name]


# --- the place ------------------------------------------------------------------------------------


def test_an_older_directory_is_replaced_and_other_files_are_not_lost(tmp_path: Path) -> None:
    log = write(rows(), tmp_path / "log.parquet")
    build(log, tmp_path / "blocks", blocks=12)
    assert (tmp_path / "blocks" / user_file(11)).exists()
    same(log, tmp_path, blocks=2)
    build(log, tmp_path / "blocks", blocks=2, name="log")
    assert content(tmp_path / "blocks") == content(tmp_path / "of files")
    (tmp_path / "blocks" / "thesis.txt").write_text("years of work")
    with pytest.raises(StorageError, match=r"holds other files, which would be lost: thesis\.txt"):
        build(log, tmp_path / "blocks")
    with pytest.raises(StorageError, match="is a file"):
        build(log, log)
    assert (tmp_path / "blocks" / "thesis.txt").exists()


def test_scratch_is_elsewhere(tmp_path: Path) -> None:
    log, elsewhere = write(rows(), tmp_path / "log.parquet"), tmp_path / "scratch" / "new"
    build(log, tmp_path / "blocks", scratch=elsewhere)
    assert list(elsewhere.iterdir()) == []


def test_a_killed_build_leaves_the_old_directory_and_the_next_one_sweeps(tmp_path: Path) -> None:
    log = write(rows(), tmp_path / "log.parquet")
    build(log, tmp_path / "blocks", blocks=2)
    before = content(tmp_path / "blocks")
    script = f"""
        import time
        from truelike.data.blocks import build, format
        writes = format.BlockWriter.add
        def add(self, *arrays):
            writes(self, *arrays)
            print("written", flush=True)
            time.sleep(60)
        format.BlockWriter.add = add
        build.build({str(log)!r}, {str(tmp_path / "blocks")!r}, blocks=5)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"written\n"
        assert len([path for path in tmp_path.iterdir() if path.name.startswith(".blocks")]) == 2
        child.kill()
    assert content(tmp_path / "blocks") == before
    build(log, tmp_path / "blocks", blocks=3)
    assert {path.name for path in tmp_path.iterdir()} == {"log.parquet", "blocks"}


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    log = write(rows(), tmp_path / "log.parquet")
    script = f"""
        import signal
        from truelike.data.blocks import build, tables
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        slow = "SELECT sum(a.range + b.range) FROM range(100000000) a, range(100000000) b"
        def check(self, _):
            print("started", flush=True)
            self.connection.execute(slow).fetchall()
        tables.LogTable.check = check
        build.build({str(log)!r}, {str(tmp_path / "blocks")!r}, blocks=5)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == b"started\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        error = child.stderr.read()
    assert b"KeyboardInterrupt" in error
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


# --- arguments ------------------------------------------------------------------------------------


def test_little_memory_spills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 700_000
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 150_000, n), rng.integers(0, 300_000, n)
    frame = pl.DataFrame({"user": users, "item": items})
    frame = frame.with_columns(
        pl.format("a long user id, {}", "user"), pl.format("a longer id of an item, {}", "item")
    )
    frame.write_parquet(tmp_path / "log.parquet")
    report = build(tmp_path / "log.parquet", tmp_path / "blocks", blocks=4, memory="100MB").report
    expected = (n, len(np.unique(users)), len(np.unique(items)), len(np.unique(users * 300_000 + items)))
    assert (report.rows, report.users, report.items, report.interactions) == expected
    monkeypatch.setattr(tables, "SHARE", 0.1)
    with pytest.raises(TooLargeError, match=r'memory=0\.1 GB is too little .*Give more, e\.g\. memory="1GB"'):
        build(tmp_path / "log.parquet", tmp_path / "blocks", memory="100MB")
    assert {path.name for path in tmp_path.iterdir()} == {"log.parquet", "blocks"}


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    def full(*_: Any) -> None:
        raise duckdb.IOException("Could not write file: No space left on device")

    monkeypatch.setattr(tables.LogTable, "group", full)
    with pytest.raises(StorageError, match=r"is full .*scratch=\.\.\."):
        build(write(rows(), tmp_path / "log.parquet"), tmp_path / "blocks")
    monkeypatch.undo()

    def full_too(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full_too)
    with pytest.raises(StorageError, match="No space left"):
        build(tmp_path / "log.parquet", tmp_path / "blocks")
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def test_wrong_arguments(tmp_path: Path) -> None:
    log = write(rows(), tmp_path / "log.parquet")
    data = tl.read(log)
    for source in (log, data):
        with pytest.raises(ParameterError, match="blocks is 999, and there are 200 users"):
            build(source, tmp_path / "blocks", blocks=999)
    wrong: dict[str, Any]
    for wrong in (
        {"blocks": 0}, {"blocks": 1.5}, {"min_user": -1}, {"memory": "much"}, {"memory": "1MB"}, {"memory": 2.5},
        {"on_bad_rows": "mend"}, {"min_rating": "high"},
    ):  # fmt: skip
        with pytest.raises(ParameterError, match=f"^{next(iter(wrong))} is "):
            build(log, tmp_path / "blocks", **wrong)
    with pytest.raises(ParameterError, match="a Dataset was given, which min_rating cannot change"):
        build(data, tmp_path / "blocks", min_rating=3)
    with pytest.raises(DataError, match="there is no column 'x'"):
        build(log, tmp_path / "blocks", user="x")
    assert not (tmp_path / "blocks").exists()
    assert parse_memory("0.5 gib") == 2**29


def test_titles_and_name(tmp_path: Path) -> None:
    log, titles = write(rows(), tmp_path / "log.csv"), {n: f"Title {n}" for n in range(50)}
    build(log, tmp_path / "of files", blocks=2, titles=titles, min_item=40, min_user=1)
    data = tl.k_core(tl.read(log, titles=titles), user=1, item=40).dataset
    build(data, tmp_path / "of dataset", blocks=2)
    assert content(tmp_path / "of files") == content(tmp_path / "of dataset")
    assert json.loads((tmp_path / "of files" / "blocks.json").read_text())["name"] == "log"
    assert pl.read_parquet(tmp_path / "of files" / "items.parquet")["title"][0] == "Title 0"


def test_without_duckdb_a_dataset_can_be_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write(rows(), tmp_path / "log.parquet")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r'pip install "truelike\[big\]"'):
        build(log, tmp_path / "blocks")
    assert build(tl.read(log), tmp_path / "blocks", blocks=4).report.blocks == 4


def test_about_20_million_interactions_are_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write(rows(), tmp_path / "log.parquet")
    assert len(build(log, tmp_path / "blocks")) == 1
    monkeypatch.setattr(module, "INTERACTIONS_PER_BLOCK", 500)
    report = build(log, tmp_path / "blocks").report
    assert report.blocks == -(-report.interactions // 500)
