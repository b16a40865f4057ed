"""`tl.Split(train, validation, test)`: a split of one's own, whose parts were read separately."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl
from truelike.errors import DataError, DataWarning

TRAIN = [("ann", "tea"), ("ann", "rum"), ("bob", "tea"), ("bob", "gin"), ("cy", "rum"), ("cy", "milk")]
TEST = [("bob", "rum"), ("cy", "gin")]
NEW = [("bob", "ale"), ("eve", "tea"), ("eve", "ale")]


def pairs(data: tl.Dataset) -> list[tuple[Any, Any]]:
    frame = data.to_frame()
    return list(zip(frame["user_id"].to_list(), frame["item_id"].to_list(), strict=True))


def csv(place: Path, name: str, rows: list[tuple[str, str]]) -> Path:
    (place / name).write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in rows))
    return place / name


def test_parts_that_were_read_separately_get_what_the_training_part_has(tmp_path: Path) -> None:
    train = tl.read(pl.DataFrame(TRAIN, schema=["user", "item"], orient="row").to_pandas(), name="shop")
    split = tl.Split(train.with_titles({"tea": "Green tea"}), None, tl.read(TEST))
    split.save(tmp_path / "split")
    again = tl.Split.load(tmp_path / "split")
    for found in (split, again):
        assert [pairs(part) for part in found.parts] == [sorted(TRAIN), [], TEST]
        for part in found.parts:
            assert part.users is found.train.users
            assert part.items is found.train.items
            assert part.titles is found.train.titles
            assert (part.library, part.name) == ("pandas", "shop")
    assert again.info == split.info
    assert split.info["dropped"] == {"users": 0, "items": 0, "validation_rows": 0, "test_rows": 0}


def test_rows_of_unknown_users_and_items_are_dropped_and_counted() -> None:
    with pytest.warns(DataWarning, match="dropped 3 of 5 test rows: .* 1 user and 1 item .*not in the train"):
        split = tl.Split(tl.read(TRAIN), tl.read(TEST), tl.read(TEST + NEW))
    assert pairs(split.test) == TEST
    assert split.info["dropped"] == {"users": 1, "items": 1, "validation_rows": 0, "test_rows": 3}
    assert split.train.n_users == 3
    assert split.train.n_items == 4


def test_only_users_and_items_with_interactions_are_counted_as_dropped() -> None:
    data = tl.read(TEST + NEW)
    part = data.select(data.users.take(data.user_of_entry).to_numpy() != "eve")
    with pytest.warns(DataWarning, match="dropped 1 of 3 test rows: they are of 1 item that"):
        split = tl.Split(tl.read(TRAIN), None, part)
    assert split.info["dropped"] == {"users": 0, "items": 1, "validation_rows": 0, "test_rows": 1}


def test_a_part_without_any_known_row_is_refused_with_ids_of_both() -> None:
    with pytest.raises(DataError, match=r"none of the 2 test rows .*'eve'.*'ann'"):
        tl.Split(tl.read(TRAIN), None, tl.read([("eve", "ale"), ("joe", "ale")]))


@pytest.mark.parametrize("part", ["validation", "test"])
@pytest.mark.parametrize("again", [TRAIN, [*TRAIN, TRAIN[0]]], ids=["same rows", "a row repeated"])
def test_a_part_that_equals_the_training_part_is_refused(part: str, again: list[tuple[str, str]]) -> None:
    with pytest.raises(DataError, match=f"the {part} part has the same 6 pairs as the training part"):
        tl.Split(tl.read(TRAIN), **{part: tl.read(again)})
    data = tl.read(TRAIN)
    with pytest.raises(DataError, match=f"the {part} part has the same"):
        tl.Split(data, **{part: data})
    with pytest.raises(DataError, match=r"Split takes a Dataset, not Split: pass split\.train"):
        tl.Split(tl.Split(data))


def test_rows_that_are_also_in_training_are_counted_in_a_warning() -> None:
    with pytest.warns(DataWarning, match="2 of 4 test rows are also in the training part"):
        split = tl.Split(tl.read(TRAIN), None, tl.read(TEST + TRAIN[:2]))
    assert split.info["also_in_train"] == {"validation_rows": 0, "test_rows": 2}
    assert pairs(split.test) == sorted(TEST + TRAIN[:2])
    assert tl.Split(*split.parts, info=split.info).info == split.info  # and says nothing again


def test_parts_may_be_whatever_read_takes(tmp_path: Path) -> None:
    frame = pl.DataFrame(TRAIN, schema=["user", "item"], orient="row")
    split = tl.Split(frame, TEST[:1], csv(tmp_path, "test.csv", TEST))
    assert [pairs(part) for part in split.parts] == [sorted(TRAIN), TEST[:1], TEST]


def test_ids_that_are_numbers_in_one_file_and_text_in_another_are_the_same(tmp_path: Path) -> None:
    train = tl.read(csv(tmp_path, "train.csv", [("007", "1"), ("7", "2"), ("8", "1"), ("8", "3")]))
    test = tl.read(csv(tmp_path, "test.csv", [("7", "3"), ("8", "2")]))
    assert (train.users.kind, test.users.kind) == ("str", "int")
    assert pairs(tl.Split(train, None, test).test) == [("7", 3), ("8", 2)]
