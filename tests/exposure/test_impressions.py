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


@pytest.mark.parametrize("column", ["count", "propensity", "position"])
@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "many"])
def test_values_that_are_not_numbers_are_bad_rows(train: Any, column: str, value: Any) -> None:
    values = pl.Series([1.0, value, 1.0, 1.0, 1.0, 1.0] if value != "many" else ["1", value, "1", "1", "1", "1"])
    with pytest.raises(DataError, match=rf"1 row is bad: row 1 \(counted from 0\) has no usable {column}.*Fix it"):
        shown_pairs(table(SHOWN[:6], **{column: values}), train, None)


OTHERS = [("dan", "tea"), ("ann", "ale")]
PROPENSITY = {"propensity": [0.5] * 8}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        *(
            (make(OTHERS), "none of the 2 impressions has both a user and an item")
            for make in (list, tl.read, table)
        ),
        (table(**PROPENSITY), "2 rows have a pair of user and item that is listed before"),
        *(
            (table(**PROPENSITY, **{column: [1] * 8}), f"the columns 'propensity' and '{column}'")
            for column in ("count", "position", "weight")
        ),
        *((empty, "empty") for empty in ([], table([]), pd.DataFrame({"user_id": [], "item_id": []}))),
        (pl.DataFrame({"who": ["ann"], "item_id": ["tea"]}), "no column looks like the user"),
        *((source, ".") for source in ("missing.csv", 7, "http://example.org/log.csv")),
        (TRAIN, "every pair of the impressions is an interaction"),
    ],
)
def test_impressions_that_cannot_be_used_are_an_error(train: Any, source: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        shown_pairs(source, train, None)


def test_bad_lines_of_files_are_named(train: Any, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user_id,item_id,position\nann,tea,1\nann,gin,top\n,gin,2\n")
    with pytest.raises(DataError, match=r"2 rows are bad: .*line 3 has no usable position"):
        shown_pairs(tmp_path / "log.csv", train, None)
    table(**PROPENSITY).write_csv(tmp_path / "log.csv")
    with pytest.raises(DataError, match="2 rows have a pair of user and item that is listed before"):
        shown_pairs(tmp_path / "log.csv", train, None)
