import uuid
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import truelike as tl
from truelike.errors import DataError

ROWS = [("ann", 7), ("ann", 9), ("bob", 12)]
TABLE = {"item_id": [9, 7, 99], "title": ["Milk", "Green tea", "Not sold"]}
EXPECTED = ["Green tea", "Milk", "12"]


def titles(data: tl.Dataset) -> list[str]:
    assert data.titles is not None
    return data.titles.to_list()


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({7: "Green tea", 9: "Milk", 99: "Not sold"}, id="mapping"),
        pytest.param({"7": "Green tea", 9.0: "Milk", "else": "Not sold"}, id="mapping of mixed keys"),
        pytest.param(pl.DataFrame(TABLE), id="polars"),
        pytest.param(pd.DataFrame(TABLE), id="pandas"),
        pytest.param(pa.table(TABLE), id="pyarrow"),
        pytest.param((TABLE["item_id"], TABLE["title"]), id="pair of lists"),
        pytest.param((pd.Series(TABLE["item_id"]), pl.Series(TABLE["title"])), id="pair of series"),
        pytest.param(
            pl.DataFrame({"year": [1, 2, 3], "Title": TABLE["title"], "asin": TABLE["item_id"]}), id="names"
        ),
        pytest.param(pl.DataFrame({"number": TABLE["item_id"], "what": TABLE["title"]}), id="two columns"),
        pytest.param(pl.DataFrame({"name": TABLE["title"], "number": TABLE["item_id"]}), id="title first"),
    ],
)
def test_titles_are_taken_in_every_form(given: Any) -> None:
    assert titles(tl.read(ROWS, titles=given)) == EXPECTED
    assert titles(tl.read(ROWS).with_titles(given)) == EXPECTED


@pytest.mark.parametrize("name", ["titles.csv", "titles.tsv", "titles.parquet", "titles.jsonl"])
def test_titles_are_read_from_files(tmp_path: Path, name: str) -> None:
    path, frame = tmp_path / name, pl.DataFrame(TABLE)
    if name.endswith("parquet"):
        frame.write_parquet(path)
    elif name.endswith("jsonl"):
        frame.write_ndjson(path)
    else:
        frame.write_csv(path, separator="\t" if name.endswith("tsv") else ",")
    assert titles(tl.read(ROWS, titles=path)) == EXPECTED
    assert titles(tl.read(ROWS).with_titles(str(path))) == EXPECTED


def test_titles_are_found_by_ids_of_every_kind() -> None:
    one, two = uuid.UUID(int=1), uuid.UUID(int=2)
    data = tl.read([("a", one), ("b", two)])
    assert titles(data.with_titles({one: "first", "else": "unused"})) == ["first", str(two)]
    assert titles(tl.read([("a", "x"), ("b", "y")], titles={"x": "first"})) == ["first", "y"]
    for missing in (None, "", float("nan")):
        assert titles(tl.read(ROWS, titles={7: missing, 9: "Milk"})) == ["7", "Milk", "12"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tea": "Green tea"}, r"none of the 1 titles is of an item .*'tea'.*7, 9, 12"),
        (["Green tea", "Milk"], r"titles are list; expected a mapping"),
        (("tea", "milk"), r"titles are tuple; expected a mapping"),
        (([7, 9], ["Green tea"]), r"2 items and 1 titles"),
        (
            pl.DataFrame({"item": [7], "a": [1], "b": [2]}),
            r"no column .* looks like the title: .*'item', 'a', 'b'",
        ),
        (pl.DataFrame({"title": ["x"], "a": [1], "b": [2]}), r"no column .* looks like the item id"),
        ("nothing.csv", r"there is no file 'nothing\.csv'"),
        ("https://example.org/titles.csv", "is an address"),
    ],
)
def test_titles_that_cannot_be_used_are_an_error(given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        tl.read(ROWS, titles=given)


def test_a_bad_line_in_a_file_of_titles_is_named(tmp_path: Path) -> None:
    (tmp_path / "titles.csv").write_text("item,title\n7,Toy Story, The\n9,Milk\n")
    with pytest.raises(DataError, match=r"1 lines of the titles in .* are bad: line 2 has 3 fields instead of 2"):
        tl.read(ROWS, titles=tmp_path / "titles.csv")
    (tmp_path / "titles.csv").write_bytes("item,title\n7,Thé\n".encode("latin-1"))
    assert titles(tl.read(ROWS).with_titles(tmp_path / "titles.csv", encoding="latin-1")) == ["Thé", "9", "12"]
    with pytest.raises(DataError, match=r"line 2 is not UTF-8 .*encoding="):
        tl.read(ROWS, titles=tmp_path / "titles.csv")


def test_the_titles_of_a_split_are_those_of_all_its_parts() -> None:
    split = tl.Split(tl.read(ROWS), None, tl.read([("bob", 9)])).with_titles({9: "Milk"})
    assert [titles(part) for part in split.parts] == [["7", "Milk", "12"]] * 3
