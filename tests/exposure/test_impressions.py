"""Impressions in any form become shown pairs, or an error that says what is wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import truelike as tl
from truelike.errors import DataError, DataWarning
from truelike.exposure import shown_pairs as exposure
from truelike.exposure.shown_pairs import CERTAIN

TRAIN = [("ann", "tea"), ("ann", "rum"), ("bob", "rum"), ("eve", "gin")]
SHOWN = [*TRAIN, ("ann", "gin"), ("bob", "tea"), ("bob", "tea"), ("bob", "tea")]


@pytest.fixture
def train() -> Any:
    return tl.read(TRAIN)


def table(rows: list[tuple[Any, ...]] = SHOWN, **columns: Any) -> pl.DataFrame:  # type: ignore[type-arg]
    return pl.DataFrame(
        {"user_id": [row[0] for row in rows], "item_id": [row[1] for row in rows], **columns},
        strict=False,
    )


def shown_pairs(source: Any, train: Any, miss_rate: float | None) -> Any:
    data = tl.read(train, impressions=source)
    assert data.shown is not None
    return exposure.shown_pairs(data, data.shown, miss_rate)


def flips(pairs: Any) -> list[float]:
    found: list[float] = np.round(1 / (1 + np.exp(-pairs.all_logits().astype(np.float64))), 6).tolist()
    return found


def check(pairs: Any) -> None:
    """The pairs of `SHOWN` with a miss rate of 0.5: gin, rum and tea of ann, rum and tea of bob, gin of eve."""
    assert pairs.indptr.tolist() == [0, 3, 5, 6]
    assert pairs.indices.tolist() == [0, 1, 2, 1, 2, 0]
    assert pairs.taken.tolist() == [0, 1, 1, 1, 0, 1]
    assert flips(pairs) == [0.5, 0.5, 0.5, 0.5, 0.125, 0.5]
    assert pairs.added == 0
    assert pairs.evidence == "impressions"
    assert pairs.miss_rate == 0.5


# --- forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", ["count", "Count", "weight"])
def test_counts_come_in_a_column_or_as_repeated_rows(train: Any, count: str) -> None:
    check(shown_pairs(SHOWN, train, 0.5))
    check(shown_pairs(table(SHOWN[:6], **{count: [1, 1, 1, 1, 1, 3]}), train, 0.5))
    check(shown_pairs(table(SHOWN[:7], **{count: [1, 1, 1, 1, 1, 1, 2]}), train, 0.5))


@pytest.mark.parametrize("make", [pl.DataFrame.to_pandas, pl.DataFrame.to_arrow, pl.DataFrame.lazy])
def test_frames_of_every_library_are_read(train: Any, make: Any) -> None:
    frame = make(table())
    assert isinstance(frame, pd.DataFrame | pa.Table | pl.LazyFrame)
    check(shown_pairs(frame, train, 0.5))


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "csv.gz"])
def test_files_of_every_kind_are_read(train: Any, tmp_path: Path, suffix: str) -> None:
    file, frame = tmp_path / f"shown.{suffix}", table(SHOWN[:6], count=[1, 1, 1, 1, 1, 3])
    if suffix == "parquet":
        frame.write_parquet(file)
    elif suffix == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dicts()))
    elif suffix == "csv.gz":
        file.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        frame.write_csv(file, separator="\t" if suffix == "tsv" else ",")
    check(shown_pairs(file, train, 0.5))
    check(shown_pairs(str(file), train, 0.5))


def test_datasets_matrices_and_block_directories_have_counts_as_weights(train: Any, tmp_path: Path) -> None:
    shown = tl.read(SHOWN)
    check(shown_pairs(shown, train, 0.5))
    check(shown_pairs(shown.to_frame(), train, 0.5))
    blocks = tl.blocks.build(shown, tmp_path / "blocks", blocks=2, progress=False)
    check(shown_pairs(blocks, train, 0.5))
    by_number = tl.read(train.matrix)
    check(shown_pairs(shown.matrix, by_number, 0.5))


def test_ids_of_another_type_are_the_same_ids(tmp_path: Path) -> None:
    train = tl.read([(1, 7), (2, 8)])
    assert shown_pairs(table([("1", "7"), ("1", "8"), ("2", "8")]), train, None).n_pairs == 3


def test_without_a_miss_rate_a_like_is_noticed_at_once(train: Any) -> None:
    pairs = shown_pairs(SHOWN, train, None)
    assert pairs.logit == -CERTAIN
    assert len(pairs.logits) == 0
    assert pairs.miss_rate == 0


def test_propensities_are_those_of_a_pair(train: Any) -> None:
    frame = table(SHOWN[:6], propensity=[1.0, 0.5, 1.0, 1.0, 0.25, 0.125])
    pairs = shown_pairs(frame, train, None)
    assert pairs.evidence == "propensities"
    assert flips(pairs) == [0.75, 0.5, 0.0, 0.0, 0.875, 0.0]
    assert flips(shown_pairs(frame, train, 0.5))[0] == 0.875


def test_a_split_has_impressions_that_can_be_used() -> None:
    world = tl.synthetic.World(n_users=60, n_items=50, impressions_per_user=20)
    data = tl.read(world.dataset(), impressions=world.impressions())
    split = tl.splits.random(data, validation=0.2, test=0.3, seed=0)
    assert split.train.shown is not None
    pairs = exposure.shown_pairs(split.train, split.train.shown, None)
    assert pairs.evidence == "impressions"
    assert pairs.added == 0


# --- estimated miss rates ------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["frame", "csv"])
def test_the_miss_rate_is_estimated_from_times_and_positions(tmp_path: Path, form: str) -> None:
    world = tl.synthetic.World(n_users=600, n_items=300, impressions_per_user=300, seed=4)

    def given(frame: Any) -> Any:
        if form == "frame":
            return frame
        frame.write_csv(tmp_path / "log.csv")
        return tmp_path / "log.csv"

    data, shown = world.impression_log(miss_rate=0.4)
    assert shown_pairs(given(shown), data, None).miss_rate == pytest.approx(0.4, abs=0.03)
    assert shown_pairs(given(shown), data, 0.1).miss_rate == 0.1
    assert shown_pairs(given(shown.drop("time")), data, None).miss_rate == 0
    data, shown = world.impression_log(examination=[0.9, 0.4])
    pairs = shown_pairs(given(shown), data, None)
    assert pairs.miss_rate == pytest.approx([0.1, 0.6], abs=0.06)
    missed = shown.with_columns(flip=pl.Series(pairs.miss_rate).gather(shown["position"] - 1))
    product = missed.group_by("user_id", "item_id").agg(pl.col("flip").product()).sort("user_id", "item_id")
    skipped = pairs.taken == 0
    assert np.allclose(np.array(flips(pairs))[skipped], product["flip"].to_numpy()[skipped], atol=1e-5)


def test_rows_have_positions_and_counts(train: Any) -> None:
    rows = table(SHOWN[:2], position=["3", "1"], count=[2, 1], time=[5, 6])
    shown = tl.read(train, impressions=rows).shown
    assert shown is not None
    assert {name: values.tolist() for name, values in shown.known.items()} == {
        "positions": [1, 3],
        "times": [6, 5],
    }
    assert shown.csr.data.tolist() == [1, 2]


# --- bad input -----------------------------------------------------------------------------------


def test_interactions_that_were_not_shown_are_a_counted_warning(train: Any) -> None:
    with pytest.warns(DataWarning, match="2 of 4 interactions are not among the impressions; they count as shown"):
        pairs = shown_pairs(SHOWN[2:], train, None)
    assert pairs.added == 2
    assert pairs.taken.sum() == 4


def test_ids_that_are_not_known_are_a_counted_warning(train: Any) -> None:
    rows = [*SHOWN, ("ann", "ale"), ("dan", "tea"), ("dan", "tea")]
    with pytest.warns(DataWarning, match="3 of 11 impressions are left out"):
        check(shown_pairs(rows, train, 0.5))
    with pytest.warns(DataWarning, match="2 of 8 impressions are left out"):
        check(shown_pairs(tl.read(rows), train, 0.5))


@pytest.mark.parametrize("make", [list, tl.read, table])
def test_a_log_of_other_users_is_an_error(train: Any, make: Any) -> None:
    with pytest.raises(DataError, match="none of the 2 impressions has both a user and an item of the dataset"):
        shown_pairs(make([("dan", "tea"), ("ann", "ale")]), train, None)


@pytest.mark.parametrize("value", [0.0, -0.5, 1.5])
def test_propensities_outside_0_to_1_are_an_error(train: Any, value: float) -> None:
    frame = table(SHOWN[:6], propensity=[1.0, value, 1.0, value, 0.5, 0.5])
    with pytest.raises(DataError, match=rf"2 propensities are outside \(0, 1\], e\.g\. {value:g}"):
        shown_pairs(frame, train, None)


@pytest.mark.parametrize(("column", "value"), [("count", 0), ("count", -1), ("weight", -2), ("count", 2.5)])
def test_counts_are_whole_numbers_above_0(train: Any, column: str, value: float) -> None:
    frame = table(SHOWN[:6], **{column: [1, value, 1, 1, 1, 1]})
    with pytest.raises(
        DataError, match=rf"1 impressions have a {column} that is no whole number above 0, e\.g\. {value:g}"
    ):
        shown_pairs(frame, train, None)


@pytest.mark.parametrize("column", ["count", "propensity", "position"])
@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "many"])
def test_values_that_are_not_numbers_are_bad_rows(train: Any, column: str, value: Any) -> None:
    values = pl.Series([1.0, value, 1.0, 1.0, 1.0, 1.0] if value != "many" else ["1", value, "1", "1", "1", "1"])
    with pytest.raises(DataError, match=rf"1 row is bad: row 1 \(counted from 0\) has no usable {column}.*Fix it"):
        shown_pairs(table(SHOWN[:6], **{column: values}), train, None)


def test_a_bad_line_of_a_file_is_named(train: Any, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user_id,item_id,position\nann,tea,1\nann,gin,top\n,gin,2\n")
    with pytest.raises(DataError, match=r"2 rows are bad: .*line 3 has no usable position"):
        shown_pairs(tmp_path / "log.csv", train, None)


@pytest.mark.parametrize("value", [0, -3, 1.5])
def test_positions_are_whole_numbers_from_1(train: Any, value: float) -> None:
    with pytest.raises(DataError, match=rf"1 positions are not whole numbers from 1, e\.g\. {value:g}"):
        shown_pairs(table(SHOWN[:6], position=[1, value, 1, 1, 1, 1]), train, None)


def test_a_pair_has_one_propensity(train: Any, tmp_path: Path) -> None:
    frame = table(propensity=[0.5] * 8)
    frame.write_csv(tmp_path / "log.csv")
    for form in (frame, tmp_path / "log.csv"):
        with pytest.raises(DataError, match="2 rows have a pair of user and item that is listed before"):
            shown_pairs(form, train, None)


@pytest.mark.parametrize("column", ["count", "position", "weight"])
def test_a_propensity_says_all(train: Any, column: str) -> None:
    frame = table(propensity=[0.5] * 8, **{column: [1] * 8})
    with pytest.raises(DataError, match=f"the columns 'propensity' and '{column}'"):
        shown_pairs(frame, train, None)


@pytest.mark.parametrize("empty", [[], table([]), pd.DataFrame({"user_id": [], "item_id": []})])
def test_an_empty_table_is_an_error(train: Any, empty: Any) -> None:
    with pytest.raises(DataError, match="empty"):
        shown_pairs(empty, train, None)


def test_a_table_without_a_column_of_users_is_an_error(train: Any) -> None:
    with pytest.raises(DataError, match="no column looks like the user"):
        shown_pairs(pl.DataFrame({"who": ["ann"], "item_id": ["tea"]}), train, None)


@pytest.mark.parametrize("source", ["missing.csv", 7, "http://example.org/log.csv"])
def test_what_is_no_table_is_an_error(train: Any, source: Any) -> None:
    with pytest.raises(DataError):
        shown_pairs(source, train, None)


def test_impressions_that_were_all_taken_are_an_error(train: Any) -> None:
    with pytest.raises(DataError, match="every pair of the impressions is an interaction"):
        shown_pairs(TRAIN, train, None)
