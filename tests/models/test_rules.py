"""Rules and exclusions give the same lists for one user and for many, in memory, in files and in the service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import truelike as tl
from truelike.errors import DataError, DataWarning, FilterError, ParameterError
from truelike.models import batch, ruled

NAMES = ["ItemPop", "EASE", "ItemKNN", "IALS", "NBPO"]
PRODUCTS = pl.DataFrame(
    {
        "item_id": list(range(40)),
        "brand": [("a", "b", "c", None)[n % 4] for n in range(40)],
        "price": [float(n % 7) for n in range(40)],
        "tags": [[str(n % 3), str(n % 5)] for n in range(40)],
        "days": [n % 10 for n in range(40)],
    }
)
RULES: dict[str, dict[str, Any]] = {
    "filter": {"filter": "price < 5"},
    "filters": {"filter": ["price < 5", "days > 1"]},
    "boosts": {"boosts": [tl.Boost(filter="brand = a", add=1.5), {"items": [3, 5], "add": -2}]},
    "pins": {"pins": {7: 1, 9: 3}},
    "diversity": {"diversity": 0.4},
    "caps": {"at_most": {"brand": 1, "tags": 2}},
    "new": {"min_new": 0.3, "new": "days < 2"},
    "all": {
        "filter": "price < 6", "boosts": [{"filter": "brand = b", "add": 0.5}], "pins": {7: 2}, "diversity": 0.2,
        "at_most": {"brand": 3}, "min_new": 0.25, "new": "days < 3",
    },
}  # fmt: skip


def rules_of(name: str) -> tl.Rules:
    return tl.Rules(**RULES[name], items=PRODUCTS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rules", RULES)
def test_lists_do_not_depend_on_who_else_is_asked_for(
    fitted: Callable[[str], Any], name: str, rules: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, used = fitted(name), rules_of(rules)
    users = [*list(model.train_.users)[:9], "nobody"]
    excluded = {users[0]: list(range(0, 40, 3)), "nobody": [1, 2], users[4]: 5}
    options: dict[str, Any] = {"rules": used, "exclude": excluded, "on_unknown": "popular"}
    whole = model.recommend(users, 6, **options)
    with pytest.warns(DataWarning, match="users of exclude"):  # "nobody" is not asked for
        alone = [model.recommend(user, 6, **options).cast({"user_id": pl.String}) for user in users[:-1]]
    alone.append(model.recommend("nobody", 6, **options))
    assert pl.concat(alone).equals(whole)
    monkeypatch.setattr(ruled, "users_at_once", lambda *_: 2)
    assert model.recommend(users, 6, n_jobs=2, **options).equals(whole)
    model.recommend_to(tmp_path / "lists.parquet", users, 6, block_size=4, progress=False, **options)
    assert pl.read_parquet(tmp_path / "lists.parquet").equals(whole)
    for user in (users[0], "nobody"):
        own = whole.filter(pl.col("user_id") == str(user))["item_id"]
        assert not set(own) & set(excluded[user]) - set(used.pins)


@pytest.mark.parametrize("name", NAMES)
def test_each_rule_does_what_it_says(fitted: Callable[[str], Any], name: str) -> None:
    model = fitted(name)
    plain = model.recommend([0, 1, 2], 40)
    about = {row["item_id"]: row for row in PRODUCTS.rows(named=True)}

    def lists(rules: str, k: int = 8) -> list[list[int]]:
        found = model.recommend([0, 1, 2], k, rules=rules_of(rules)).partition_by("user_id", maintain_order=True)
        return [each["item_id"].to_list() for each in found]

    full = [each["item_id"].to_list() for each in plain.partition_by("user_id", maintain_order=True)]
    assert lists("filter") == [[item for item in own if about[item]["price"] < 5][:8] for own in full]
    assert lists("filters") == [
        [item for item in own if about[item]["price"] < 5 and about[item]["days"] > 1][:8] for own in full
    ]
    for own, pinned in zip(full, lists("pins"), strict=True):
        assert (pinned[0], pinned[2]) == (7, 9)
        assert [item for item in pinned if item not in (7, 9)] == [item for item in own if item not in (7, 9)][:6]
    for capped in lists("caps"):
        tags = [tag for item in capped for tag in set(about[item]["tags"])]
        brands = [about[item]["brand"] for item in capped if about[item]["brand"] is not None]
        assert max(map(tags.count, tags)) <= 2
        assert len(brands) == len(set(brands))
    for own, mixed in zip(full, lists("new", 10), strict=True):
        assert sum(about[item]["days"] < 2 for item in mixed) >= 3
        assert mixed == sorted(mixed, key=own.index), "in the order of the scores"
        kept = [item for item in mixed if about[item]["days"] >= 2]
        assert kept == [item for item in own if about[item]["days"] >= 2][: len(kept)]
    scores = np.array(model.score(0, list(model.train_.items)))
    boosted = model.recommend(0, 40, exclude_seen=False, rules=rules_of("boosts"))
    unit = scores.std(dtype=np.float64)
    for item, score in zip(boosted["item_id"], boosted["score"], strict=True):
        more = 1.5 * (about[item]["brand"] == "a") - 2 * (item in (3, 5))
        row = list(model.train_.items).index(item)
        assert score == pytest.approx(scores[row] + more * unit, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_new_users_have_lists_by_the_same_rules(fitted: Callable[[str], Any], name: str) -> None:
    model = fitted(name)
    histories = {"x": [1, 2, 3], "y": [], "z": [8]}
    for rules in map(rules_of, RULES):
        found = model.recommend_from_items(
            histories, 5, rules=rules, exclude={"x": [7], "y": [20]}, on_unknown="popular"
        )
        alone = model.recommend_from_items([1, 2, 3], 5, rules=rules, exclude=[7])
        assert found.filter(pl.col("user_id") == "x").drop("user_id").equals(alone)
        assert found["user_id"].unique(maintain_order=True).to_list() == ["x", "y", "z"]
    every = model.recommend_from_items(histories, 40, exclude={"x": [7]}, exclude_seen=False, on_unknown="skip")
    assert set(every.filter(pl.col("user_id") == "x")["item_id"]) == set(range(40)) - {7}
    assert set(every.filter(pl.col("user_id") == "z")["item_id"]) == set(range(40))
    with pytest.raises(ParameterError, match="one list of item ids"):
        model.recommend_from_items([1, 2], exclude={"x": [7]})


def test_the_table_is_a_frame_a_file_or_what_the_training_data_carries(tmp_path: Path) -> None:
    log = [(user, item) for user in range(30) for item in range(12) if (user * item) % 5 < 2]
    products = PRODUCTS.head(12).with_columns(pl.format("Product {}", "item_id").alias("title"))
    PRODUCTS.drop("tags").write_csv(tmp_path / "products.csv")
    carried = tl.ItemPop().fit(tl.read(log, items=products))
    model = tl.ItemPop().fit(tl.read(log))
    rules: dict[str, Any] = {"filter": "price < 5 and brand != b", "at_most": {"brand": 1}}
    expected = carried.recommend(k=4, rules=tl.Rules(**rules))
    assert len(expected)
    for table in (PRODUCTS, PRODUCTS.drop("tags").to_pandas(), PRODUCTS.to_arrow(), tmp_path / "products.csv"):
        assert model.recommend(k=4, rules=tl.Rules(**rules, items=table)).equals(expected)
    titled = carried.recommend(k=4, rules=tl.Rules(filter="title contains 'Product 1'"))
    assert set(titled["item_id"]) <= {1, 10, 11}
    with pytest.raises(FilterError, match=r"no attributes of items.*--items FILE"):
        model.recommend(k=4, rules=tl.Rules(**rules))
    with pytest.raises(DataError, match="items twice: 1"):
        model.recommend(rules=tl.Rules(filter="a = 1", items=pl.DataFrame({"item": [1, 1], "a": [1, 2]})))
    with pytest.raises(DataError, match="none of the 1 items of the table"):
        model.recommend(rules=tl.Rules(filter="a = 1", items=pd.DataFrame({"item": [99], "a": [1]})))


def test_rules_say_what_they_name_in_vain(fitted: Callable[[str], Any]) -> None:
    model = fitted("ItemPop")

    def ask(**rules: Any) -> Any:
        return model.recommend([0, 1], 3, rules=tl.Rules(**rules, items=PRODUCTS))

    plain = model.recommend([0, 1], 3)
    with pytest.warns(
        DataWarning, match=r"2 of 3 pinned items are not in the training data, and skipped: 'x', 99"
    ):
        assert ask(pins={"x": 1, 99: 2, 7: 3})["item_id"].to_list()[2] == 7
    with pytest.warns(DataWarning, match="1 of 1 items of a boost"):
        assert ask(boosts=[{"items": ["x"], "add": 1}]).equals(plain)
    with pytest.warns(DataWarning, match="none of the 40 items fits 'price > 100'"):
        assert not len(ask(filter="price > 100"))
    with pytest.warns(DataWarning, match="none of the 40 items fits 'days > 100'"):
        assert ask(min_new=0.5, new="days > 100").equals(plain)
    with pytest.warns(DataWarning, match="no item that may be listed fits the filter"):
        assert not len(model.recommend(0, candidates=[6], rules=tl.Rules(filter="price < 1", items=PRODUCTS)))
    for wrong in ({"filter": "colour = red"}, {"at_most": {"colour": 1}}, {"min_new": 0.5, "new": "colour = red"}):
        with pytest.raises(FilterError, match=r"no column 'colour'\. They have brand, days, price, tags"):
            ask(**wrong)
    with pytest.raises(ParameterError, match="same position"):
        ask(pins={7: 1, "7": 2})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"filter": 3}, "filter is 3"),
        ({"filter": ["price < 3", 4]}, "filter is 4"),
        ({"filter": [None]}, "filter is None"),
        ({"boosts": np.array(3)}, "expected a list"),
        ({"new": 3, "min_new": 0.1}, "new is 3"),
        ({"new": "days < 3"}, "expected both"),
        ({"min_new": 0.3}, "expected both"),
        ({"min_new": 1.5, "new": "days < 3"}, "from 0 to 1"),
        ({"diversity": -0.1}, "diversity is -0.1"),
        ({"diversity": True}, "diversity is True"),
        ({"diversity": float("nan")}, "diversity is nan"),
        ({"pins": [7]}, "mapping from item to position"),
        ({"pins": {7: 0}}, "at least 1"),
        ({"pins": {7: 1.0}}, "whole number"),
        ({"pins": {7: 1, 8: 1}}, "same position"),
        ({"at_most": {"brand": 0}}, "at least 1"),
        ({"at_most": "brand"}, "mapping from column"),
        ({"boosts": {"add": 1}}, "expected a list"),
        ({"boosts": [{"items": [1]}]}, "no `add`"),
        ({"boosts": [{"add": 11}]}, "from -10 to 10"),
        ({"boosts": [{"add": 1, "item": 3}]}, "unknown names 'item'"),
        ({"boosts": [3]}, "a boost is 3"),
        ({"boosts": [{"add": 1, "items": {"a": 1}}]}, "mapping"),
    ],
)
def test_wrong_rules_are_an_error(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        tl.Rules(**wrong)


def test_what_is_no_rules_is_an_error(fitted: Callable[[str], Any]) -> None:
    model = fitted("ItemPop")
    with pytest.raises(ParameterError, match=r"expected tl.Rules\(...\)"):
        model.recommend(0, rules={"filter": "price < 3"})
    with pytest.raises(ParameterError, match="with diversity it is at most 500"):
        model.recommend([], 501, rules=tl.Rules(diversity=0.1))


def test_rules_are_read_from_a_file(fitted: Callable[[str], Any], tmp_path: Path) -> None:
    text = """
    filter = "price < 6"
    diversity = 0.2
    min_new = 0.25
    new = "days < 3"
    boosts = [{filter = "brand = b", add = 0.5}]
    pins = {7 = 2}
    at_most = {brand = 3}
    """
    (tmp_path / "rules.toml").write_text(text)
    model, read = fitted("IALS"), tl.Rules.read(tmp_path / "rules.toml", items=PRODUCTS)
    expected = model.recommend(k=8, rules=rules_of("all"))
    assert model.recommend(k=8, rules=read).equals(expected)
    assert model.recommend(k=8, rules=tl.Rules.of(read.plain, items=PRODUCTS)).equals(expected)
    for wrong, words in (
        ("filter = ", "cannot be read"),
        ("colour = 1", "unknown names 'colour'"),
        ("pins = 1", "a map"),
    ):
        (tmp_path / "rules.toml").write_text(wrong)
        with pytest.raises((DataError, ParameterError), match=words):
            tl.Rules.read(tmp_path / "rules.toml")


def test_rules_of_a_request_come_beside_those_of_every_list() -> None:
    defaults = tl.Rules(
        filter="a = 1", pins={1: 1, 2: 2, 3: 3}, at_most={"x": 1, "y": 1}, diversity=0.1, min_new=0.1, new="n = 1",
        boosts=[{"add": 1}],
    )  # fmt: skip
    both = tl.Rules(filter="b = 1", pins={9: 2, 3: 7}, at_most={"y": 5}, boosts=[{"add": 2}]).over(defaults)
    assert both.all_filters == ["a = 1", "b = 1"]
    assert both.pins == {1: 1, 9: 2, 3: 7}
    assert both.at_most == {"x": 1, "y": 5}
    assert [boost.add for boost in both.all_boosts] == [1, 2]
    assert (both.diversity, both.min_new, both.new) == (0.1, 0.1, "n = 1")
    other = tl.Rules(diversity=0.5, min_new=0.2, new="m = 1").over(defaults)
    assert (other.diversity, other.min_new, other.new) == (0.5, 0.2, "m = 1")


# --- exclusions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_items_of_each_user_are_excluded_in_every_form(fitted: Callable[[str], Any], name: str) -> None:
    model = fitted(name)
    pairs = [(0, 5), (0, 6), (3, 7), (3, 5)]
    table = pl.DataFrame(pairs, schema=["user_id", "item_id"], orient="row")
    forms: list[Any] = [
        {0: [5, 6], 3: {7, 5}}, {"0": ["5", "6"], "3": np.array([7, 5])}, {0: (5, 6), 3: pl.Series([7, 5]), 8: []},
        table, table.to_pandas(), table.to_arrow(), tl.read(pairs),
    ]  # fmt: skip
    for options in ({}, {"exclude_seen": False}):
        whole = model.recommend([0, 1, 3], 40, **options)
        kept = pl.DataFrame(
            [row for row in whole.rows() if (row[0], row[1]) not in pairs], schema=whole.schema, orient="row"
        ).drop("rank")
        for exclude in forms:
            assert model.recommend([0, 1, 3], 40, exclude=exclude, **options).drop("rank").equals(kept)
            assert model.recommend(k=40, exclude=exclude, **options).filter(
                pl.col("user_id").is_in([0, 1, 3])
            ).drop("rank").equals(kept)  # fmt: skip


def test_one_id_is_excluded_for_all_and_a_text_is_no_list_of_letters(fitted: Callable[[str], Any]) -> None:
    model = fitted("ItemPop")
    whole = model.recommend(0, 40)["item_id"].to_list()
    for exclude in (12, "12", [12], {0: "12"}, {0: 12}, iter([12])):
        assert model.recommend(0, 40, exclude=exclude)["item_id"].to_list() == [n for n in whole if n != 12]


@pytest.mark.parametrize(
    "wrong", [True, b"12", [[1, 2]], [(0, 12)], np.zeros((2, 2)), {0: [[1]]}, {0: {1: 2}}, pl.DataFrame({"item": [1]}),
              [1.5], {0: None}, {None: [1]}, pl.DataFrame({"user": [0, None], "item": [1, 2]})],
)  # fmt: skip
def test_a_wrong_shape_of_exclude_is_an_error(fitted: Callable[[str], Any], wrong: Any, tmp_path: Path) -> None:
    model = fitted("ItemPop")
    for ask in (
        lambda: model.recommend(0, exclude=wrong),
        lambda: model.recommend_to(tmp_path / "lists.csv", exclude=wrong),
        lambda: model.recommend_from_items({0: [1]}, exclude=wrong),
        lambda: model.similar_items(0, exclude=wrong),
    ):
        with pytest.raises(ParameterError, match=r"item ids|one of its|columns"):
            ask()


def test_lists_that_are_of_nobody_exclude_the_same_for_all(fitted: Callable[[str], Any]) -> None:
    model = fitted("NBPO")
    for exclude in ({0: [1]}, tl.read([(0, 1)])):
        with pytest.raises(ParameterError, match="one list of item ids"):
            model.similar_items(0, exclude=exclude)
        with pytest.raises(ParameterError, match="one list of item ids"):
            model.hidden_likes(0, exclude=exclude)


def test_what_exclude_names_in_vain_is_counted(fitted: Callable[[str], Any]) -> None:
    model = fitted("ItemPop")
    plain = model.recommend([0, 1], 3)
    with pytest.warns(DataWarning, match="2 of 3 excluded items are not in the training data"):
        model.recommend([0, 1], 3, exclude=[1, 99, "x"])
    with pytest.warns(DataWarning, match="1 of 2 excluded items are not"):
        assert len(model.recommend([0, 1], 3, exclude={0: [99], 1: [2]})) == len(plain)
    with pytest.warns(DataWarning, match="1 of 3 users of exclude are not"):
        model.recommend([0, 1], 3, exclude={0: [1], "who": [2], 5: [3]})
    assert model.recommend([0, 1], 3, exclude={}).equals(plain)


def test_a_run_with_other_rules_or_exclusions_does_not_continue(
    fitted: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path = fitted("IALS"), tmp_path / "lists.parquet"
    several: list[dict[str, Any]] = [
        {}, {"rules": rules_of("caps")}, {"rules": rules_of("filter")}, {"rules": tl.Rules(pins={7: 1})},
        {"rules": tl.Rules(pins={7: 2})}, {"exclude": {0: [5]}}, {"exclude": {0: [6]}}, {"exclude": {1: [5]}},
        {"exclude": [5]},
    ]  # fmt: skip
    identities = []
    for options in several:
        lists: dict[str, Any] = {
            "candidates": None, "exclude": None, "exclude_seen": True, "on_unknown": "raise", "titles": False,
            "n_jobs": 1, "block_size": 20, **options,
        }  # fmt: skip
        identities.append(batch.Lists(model, None, 5, **lists).identity()["options"])
    assert all(one != other for n, one in enumerate(identities) for other in identities[:n])
    write = batch._Parts.write

    def write_one(parts: Any, number: int, frame: pl.DataFrame) -> None:
        if number == 1:
            raise KeyboardInterrupt
        write(parts, number, frame)

    with monkeypatch.context() as patch:
        patch.setattr(batch._Parts, "write", write_one)
        with pytest.raises(KeyboardInterrupt):
            model.recommend_to(path, k=5, block_size=20, exclude={0: [5]}, progress=False)
    model.recommend_to(path, k=5, block_size=20, exclude={0: [6]}, progress=False)
    assert pl.read_parquet(path).equals(model.recommend(k=5, exclude={0: [6]}))
