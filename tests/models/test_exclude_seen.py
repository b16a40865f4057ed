"""`exclude_seen` by kinds and periods, in lists, files of lists and evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl
from truelike.errors import ParameterError

DAY = 86_400
SCHEMA = tl.Schema(
    {"view": {"seen": "7d"}, "buy": {"role": "target", "seen": "30d"}, "dislike": "negative"}, "event"
)
ROWS = [
    ("ann", "tea", "buy", 0),  # long ago
    ("ann", "rum", "buy", 95),
    ("ann", "gin", "view", 96),
    ("ann", "milk", "view", 50),
    ("ann", "wine", "dislike", 10),
    *[("bob", item, "buy", 99) for item in ("tea", "rum", "gin", "milk", "wine", "beer")],
    *[("eve", item, "buy", 100) for item in ("tea", "rum", "gin", "milk", "wine", "beer")],
]


@pytest.fixture
def data() -> Any:
    rows = [(user, item, kind, 10**9 + day * DAY) for user, item, kind, day in ROWS]
    return tl.read(pl.DataFrame(rows, schema=["user", "item", "event", "time"], orient="row"), kinds=SCHEMA)


CASES: list[tuple[Any, set[str]]] = [
    (True, {"tea", "milk", "beer"}),
    (False, {"tea", "rum", "gin", "milk", "wine", "beer"}),
    ("buy", {"gin", "milk", "wine", "beer"}),
    ({"dislike": True}, {"tea", "rum", "gin", "milk", "beer"}),
    ("3d", {"tea", "rum", "gin", "milk", "wine", "beer"}),
    ({"interactions": "30d"}, {"tea", "gin", "milk", "wine", "beer"}),
]


@pytest.mark.parametrize(("rule", "expected"), CASES)
@pytest.mark.parametrize("model", [tl.ItemPop(), tl.IALS(factors=4, epochs=2)])
def test_lists_leave_out_what_is_seen(
    data: Any, model: Any, rule: Any, expected: set[str], tmp_path: Path
) -> None:
    model.fit(data, progress=False)
    assert set(model.recommend("ann", k=6, exclude_seen=rule)["item_id"]) == expected
    model.recommend_to(tmp_path / "lists.parquet", ["ann"], k=6, exclude_seen=rule, progress=False)
    assert set(pl.read_parquet(tmp_path / "lists.parquet")["item_id"]) == expected
    model.save(tmp_path / "model")
    assert set(tl.load(tmp_path / "model").recommend("ann", k=6, exclude_seen=rule)["item_id"]) == expected


def test_a_file_of_lists_does_not_continue_one_by_other_rules(data: Any) -> None:
    from truelike.models.batch import Lists

    model = tl.ItemPop().fit(data)
    how: dict[str, Any] = {
        "candidates": None, "exclude": None, "on_unknown": "raise", "titles": False, "n_jobs": 1, "block_size": None,
    }  # fmt: skip
    found = [str(Lists(model, None, 3, exclude_seen=rule, **how).identity()) for rule, _ in CASES]
    assert len(set(found)) == len(found)


def test_repeated_purchases_can_be_predicted_and_measured() -> None:
    train = tl.read([("ann", "coffee", 1, 5), ("ann", "tea", 1, 6), ("bob", "tea", 1, 5), ("eve", "coffee", 1, 5)])
    with pytest.warns(tl.errors.DataWarning, match="exclude_seen=False"):
        split = tl.Split(train, None, tl.read([("ann", "coffee", 1, 9), ("bob", "coffee", 1, 9)]))
    model = tl.ItemPop().fit(split)
    assert tl.evaluate(model, split, ks=1, metrics="hit_rate").users.to_list() == ["bob"]
    again = tl.evaluate(model, split, ks=1, metrics="hit_rate", exclude_seen=False)
    assert (again.users.to_list(), again.left_out) == (["ann", "bob"], ())


def test_evaluation_follows_the_schema(data: Any) -> None:
    test = tl.read([("ann", "tea"), ("ann", "wine"), ("ann", "beer")])
    model = tl.ItemPop().fit(data)
    found = tl.evaluate(model, test, ks=6, metrics=["recall", "precision"])
    assert found["precision@6"] == pytest.approx(2 / 6)  # the wine was disliked, and the tea may be bought again
    assert tl.evaluate(model, test, ks=6, metrics="precision", exclude_seen="buy")["precision@6"] == 2 / 6
    assert tl.evaluate(model, test, ks=6, metrics="precision", exclude_seen=False)["precision@6"] == 3 / 6


def test_rules_that_are_none_are_refused(data: Any) -> None:
    model = tl.ItemPop().fit(data)
    with pytest.raises(ParameterError, match="exclude_seen names the kind 'cart'"):
        model.recommend("ann", exclude_seen=["cart"])
    with pytest.raises(ParameterError, match="exclude_seen is 'buy'; it must be True or False"):
        model.recommend_from_items(["tea"], exclude_seen="buy")


def test_earlier_interactions_without_times_are_seen_for_ever(data: Any) -> None:
    model, test = tl.ItemPop().fit(data), tl.read([("ann", "tea"), ("ann", "beer")])
    earlier = tl.read([("ann", "beer")])
    assert tl.evaluate(model, test, ks=6, metrics="precision", seen=earlier)["precision@6"] == 1 / 6
    assert tl.evaluate(model, test, ks=6, metrics="precision", seen=earlier, exclude_seen=False).left_out == ()


def test_a_kind_that_a_saved_model_does_not_keep_is_said(tmp_path: Path) -> None:
    rows = [
        ("ann", "tea", "buy", 1),
        ("ann", "gin", "view", 2),
        ("bob", "gin", "buy", 3),
        ("bob", "rum", "buy", 3),
    ]
    frame = pl.DataFrame(rows, schema=["user", "item", "event", "time"], orient="row")
    model = tl.ItemPop().fit(tl.read(frame, kind="event", kinds={"view": 0.2, "buy": 1}, target="buy"))
    assert model.recommend("ann", k=3, exclude_seen=["buy", "view"])["item_id"].to_list() == ["rum"]
    model.save(tmp_path / "model")
    with pytest.warns(tl.errors.DataWarning, match="exclude_seen names 'view', of which nothing is known"):
        tl.load(tmp_path / "model").recommend("ann", k=3, exclude_seen=["buy", "view"])
