"""Logs with several kinds of events: what becomes of each row."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl
from truelike.errors import DataError, DataWarning, ParameterError

SHOP = tl.Schema({
    "view": {"weight": 0.2, "seen": "7d"},
    "buy": {"role": "target", "weight": "quantity"},
    "refund": {"role": "cancels", "weight": "quantity"},
    "dislike": "negative",
    "shown": "shown",
    "newsletter": "ignored",
}, "event")  # fmt: skip


def log(*rows: tuple[Any, ...]) -> pl.DataFrame:
    columns = ["user", "item", "event", "time", "quantity"]
    return pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)


ROWS = log(
    ("ann", "tea", "view", 1, None),
    ("ann", "tea", "buy", 2, 3.0),
    ("ann", "rum", "buy", 3, 1.0),
    ("ann", "rum", "refund", 4, 1.0),
    ("ann", "tea", "refund", 5, 1.0),
    ("bob", "rum", "dislike", 6, None),
    ("bob", "tea", "buy", 7, 1.0),
    ("bob", "gin", "shown", 8, None),
    ("eve", "gin", "newsletter", 9, None),
    ("ann", "gin", "view", 9, None),
)


def test_each_kind_has_its_place() -> None:
    data = tl.read(ROWS, kinds=SHOP)
    assert data.to_frame().select("user_id", "item_id", "weight", "time").rows() == [
        ("ann", "tea", 2.0, 2),
        ("bob", "tea", 1.0, 7),
    ]
    kinds = {name: data.to_frame(name).select("user_id", "item_id", "weight").rows() for name in data.kinds}
    assert kinds == {
        "dislike": [("bob", "rum", -1.0)],
        "refund": [("ann", "rum", -1.0), ("ann", "tea", -1.0)],
        "view": [("ann", "gin", pytest.approx(0.2)), ("ann", "tea", pytest.approx(0.2))],
    }
    assert data.to_frame("shown").rows()[0][:2] == ("bob", "gin")
    assert data.schema == SHOP
    assert "eve" not in data.users


def test_a_schema_is_carried_along(tmp_path: Path) -> None:
    data = tl.read(ROWS, kinds=SHOP)
    split = tl.splits.random(data, validation=0.0, test=0.5, seed=0)
    split.save(tmp_path / "split")
    tl.blocks.build(data, tmp_path / "blocks", progress=False)
    blocks = tl.blocks.open(tmp_path / "blocks")
    copies = [split.train, split.test, tl.Split.load(tmp_path / "split").train, blocks, blocks.to_dataset()]
    assert all(each.schema == SHOP for each in copies)
    assert tl.read(data, titles={"tea": "Tea"}).schema == SHOP


def test_a_model_keeps_what_makes_items_seen(tmp_path: Path) -> None:
    model = tl.ItemPop().fit(tl.read(ROWS, kinds={**SHOP.kinds, "buy": tl.Kind(role="target")}, kind="event"))
    model.save(tmp_path / "model")
    loaded = tl.load(tmp_path / "model").train_
    assert loaded.schema == model.train_.schema
    assert sorted(loaded.kinds) == ["dislike", "refund", "view"]
    for name in loaded.kinds:
        assert loaded.to_frame(name).equals(model.train_.to_frame(name))


def test_a_damaged_schema_of_a_model_is_refused(tmp_path: Path) -> None:
    import json

    from truelike.core.files import write_description

    tl.ItemPop().fit(tl.read(ROWS.with_columns(quantity=1.0), kinds=SHOP)).save(tmp_path / "model")
    about = json.loads((tmp_path / "model/model.json").read_text())
    about.pop("crc32", None)
    about["data"]["schema"]["kinds"]["buy"]["role"] = "zorp"
    write_description(tmp_path / "model/model.json", about)
    with pytest.raises(tl.errors.StorageError, match="schema of events is damaged"):
        tl.load(tmp_path / "model")


def test_unknown_kinds_are_listed_with_their_counts() -> None:
    rows = log(("ann", "tea", "buy", 1, 1.0), ("ann", "rum", "zorp", 2, 1.0), ("bob", "tea", "zorp", 3, 1.0))
    with pytest.raises(DataError, match=r"'zorp' \(2 rows\) is not declared in kinds, which has 'view'"):
        tl.read(rows, kinds=SHOP)


def test_a_column_of_kinds_is_recognised_and_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="truelike")
    rows = ROWS.filter(pl.col("event") != "newsletter").drop("quantity")
    data = tl.read(rows)
    assert sorted(data.kinds) == ["dislike", "refund", "view"]
    assert data.to_frame().select("user_id", "item_id").rows() == [("bob", "tea")]  # both of ann were taken back
    assert "by their usual meaning: target: buy; evidence: view (weight learned)" in caplog.text


def test_a_recognised_column_with_other_words_is_an_error() -> None:
    rows = log(("ann", "tea", "buy", 1, 1.0), ("ann", "rum", "zorp", 2, 1.0))
    message = r"the column 'event' has the kinds 'buy' \(1 rows\), 'zorp' \(1 rows\)\. .*kind=False"
    with pytest.raises(DataError, match=message):
        tl.read(rows)
    assert tl.read(rows, kind=False).n_interactions == 2
    with pytest.raises(DataError, match=r"'zorp': no kind that truelike knows"):
        tl.read(rows, kind="event")


@pytest.mark.parametrize("values", [[17, 18], ["17", "18"], [f"id{n}" for n in range(60)]])
def test_columns_that_are_no_kinds_are_not_read(values: list[Any]) -> None:
    rows = pl.DataFrame({"user": range(len(values)), "item": ["a"] * len(values), "event": values})
    assert tl.read(rows).schema is None


def test_a_weight_that_is_missing_or_zero() -> None:
    rows = log(("ann", "tea", "buy", 1, None), ("bob", "tea", "buy", 2, 0.0), ("bob", "rum", "buy", 3, 2.0))
    with pytest.raises(DataError, match=r"1 rows have no usable weight \(column 'quantity'\)"):
        tl.read(rows, kinds=SHOP)
    with (
        pytest.warns(DataWarning, match=r"dropped 1 rows have no usable weight"),
        pytest.warns(DataWarning, match=r"2 rows of 'buy' have the weight 0"),
    ):
        assert tl.read(rows, kinds=SHOP, on_bad_rows="drop").to_frame()["item_id"].to_list() == ["rum"]


def test_a_negative_quantity_takes_back() -> None:
    rows = log(("ann", "tea", "buy", 1, 3.0), ("ann", "tea", "buy", 2, -2.0), ("bob", "tea", "buy", 3, -1.0))
    with pytest.warns(DataWarning, match="1 of 2 'buy' rows of negative weight have no earlier event"):
        data = tl.read(rows, kinds=SHOP)
    assert data.to_frame().select("user_id", "weight").rows() == [("ann", 1.0)]


def test_a_refund_of_a_negative_quantity_is_a_refund() -> None:
    rows = log(("ann", "tea", "buy", 1, 3.0), ("ann", "tea", "refund", 2, -2.0), ("bob", "tea", "buy", 3, 1.0))
    data = tl.read(rows, kinds=SHOP)
    assert data.to_frame().select("user_id", "weight").rows() == [("ann", 1.0), ("bob", 1.0)]
    assert data.to_frame("refund")["weight"].to_list() == [-2.0]


def test_a_log_without_kinds_with_negative_weights() -> None:
    rows = [("ann", "tea", 3, 1), ("ann", "tea", -1, 2), ("bob", "tea", 1, 1), ("bob", "tea", -1, 5)]
    frame = pl.DataFrame(rows, schema=["user", "item", "qty", "time"], orient="row")
    with pytest.warns(DataWarning, match="2 rows have a negative weight: they take back earlier rows"):
        data = tl.read(frame, weight="qty")
    assert data.to_frame().rows() == [("ann", "tea", 2.0, 1)]


def test_a_period_needs_times() -> None:
    with pytest.raises(DataError, match="for how long 'view' makes an item seen, and the log has no times"):
        tl.read(ROWS.drop("time"), kinds=SHOP)


def test_a_refund_without_a_purchase_is_counted() -> None:
    rows = log(("ann", "tea", "refund", 1, 1.0), ("ann", "tea", "buy", 2, 1.0))
    with pytest.warns(DataWarning, match="1 of 1 'refund' rows have no earlier event of the user and the item"):
        assert tl.read(rows, kinds=SHOP).n_interactions == 1


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(ParameterError, match="target needs kinds="):
        tl.read(ROWS, target="buy")
    with pytest.raises(ParameterError, match="kinds needs kind="):
        tl.read(ROWS, kinds={"buy": 1})
    with pytest.raises(ParameterError, match="kind is False beside kinds="):
        tl.read(ROWS, kind=False, kinds=SHOP)
    with pytest.raises(ParameterError, match="target is given beside a schema"):
        tl.read(ROWS, kinds=SHOP, target="buy")
    with pytest.raises(DataError, match="there is no column 'quantity'"):
        tl.read(ROWS.drop("quantity"), kinds=SHOP)
