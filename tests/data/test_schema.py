"""Schemas of events: every way to declare one, usual words, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike.data.schema import USUAL, checked_period, seconds_of
from truelike.errors import DataError, ParameterError


def test_all_ways_to_declare_a_schema_are_one(tmp_path: Path) -> None:
    kinds = {
        "view": tl.Kind(weight=0.2, seen="7d"),
        "buy": tl.Kind(role="target", weight="quantity"),
        "refund": tl.Kind(role="cancels", cancels=("buy",)),
        "shown": tl.Kind(role="shown"),
    }
    short = {"view": {"weight": 0.2, "seen": "7d"}, "buy": "quantity", "refund": "cancels", "shown": "shown"}
    (tmp_path / "shop.toml").write_text(
        'column = "event"\n[kinds]\nview = {weight = 0.2, seen = "7d"}\nshown = "shown"\nrefund = "cancels"\n'
        'buy = {role = "target", weight = "quantity"}\n'
    )
    whole = tl.Schema(kinds, "event")
    assert tl.Schema(short, "event", target="buy") == whole
    assert tl.Schema.load(tmp_path / "shop.toml") == whole
    assert tl.Schema.from_dict(whole.to_dict()) == whole


def test_numbers_are_targets_unless_one_is_named() -> None:
    numbers = {"view": 0.2, "buy": 1, "dislike": -2, "page": 0}
    assert tl.Schema(numbers).targets == ("view", "buy")
    named = tl.Schema(numbers, target="buy")
    assert (named.targets, named.names("evidence"), named.names("ignored")) == (("buy",), ("view",), ("page",))
    assert named.kinds["dislike"] == tl.Kind(role="negative", weight=2.0)


def test_a_learned_weight_is_of_evidence() -> None:
    schema = tl.Schema({"view": "learned", "buy": 1})
    assert (schema.targets, schema.names("evidence")) == (("buy",), ("view",))


@pytest.mark.parametrize(
    ("names", "targets", "evidence"),
    [
        (["view", "cart", "buy", "like"], ("buy",), ("view", "cart", "like")),
        (["Add to cart", "Page-View", "Click"], ("Click",), ("Add to cart", "Page-View")),
        (["view", "impression"], ("view",), ()),
        (["purchase", "order"], ("purchase", "order"), ()),
    ],
)
def test_usual_words(names: list[str], targets: tuple[str, ...], evidence: tuple[str, ...]) -> None:
    schema = tl.Schema.usual(names)
    assert (schema.targets, schema.names("evidence")) == (targets, evidence)


def test_usual_words_that_take_back() -> None:
    schema = tl.Schema.usual(["buy", "like", "refund", "unlike", "remove_from_cart"])
    taken = {name: schema.kinds[name].cancels for name in schema.names("cancels")}
    assert taken == {"refund": ("buy",), "unlike": ("like",)}
    assert schema.kinds["remove_from_cart"].role == "negative"  # there are no carts that it could take back


def test_every_usual_word_has_a_meaning() -> None:
    assert set(tl.Schema.usual(USUAL).kinds) == set(USUAL)


def test_what_is_seen_by_default() -> None:
    schema = tl.Schema({"view": 1, "buy": 1, "dislike": -1, "refund": "cancels", "shown": "shown"}, target="buy")
    seen = {name: kind.seen for name, kind in schema.kinds.items()}
    assert seen == {"view": False, "buy": True, "dislike": True, "refund": True, "shown": False}


def test_periods() -> None:
    assert [seconds_of(text) for text in ("90s", "2m", "1.5h", "30 d", "2w")] == [90, 120, 5400, 2592000, 1209600]
    assert checked_period("seen", timedelta(hours=1)) == "3600s"
    for wrong in ("30", "d", "-1d", "1y", ""):
        with pytest.raises(ParameterError, match=r'e\.g\. "30d"'):
            seconds_of(wrong)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({}, "expected what each kind of events means"),
        ({"a": "shown"}, "no kind is a target"),
        ({"a": float("nan")}, "kind 'a': the weight of a kind is nan; expected a positive number"),
        ({"a": 1, "b": {"rol": 1}}, "kind 'b': it has no rol; known are role, weight, seen, cancels"),
        ({"a": 1, "b": {"role": "likes"}}, "the role of a kind is 'likes'"),
        ({"a": 1, "r": {"role": "cancels", "cancels": ["x"]}}, "the kind 'r' cancels 'x'; expected other kinds"),
        ({"a": 1, "b": {"cancels": "a"}}, 'it is for "cancels"'),
        ({"a": True}, "kind 'a': it is True; expected a role, a number"),
        ({"a": {"role": "target", "weight": "learned"}}, "the weight of a target is learned"),
        ({1: 2}, "the kind 1 is no text"),
        ({"a": {"role": "target", "seen": "soon"}}, "a period is 'soon'"),
        ({"a": 1, "b": {"role": "shown", "seen": "1d"}}, "kind 'b': seen is '1d' of a kind with the role 'shown'"),
        ({"a": 1, "r": {"role": "cancels", "cancels": 3}}, "kind 'r': cancels is 3; expected kinds of the schema"),
        (
            {"a": 1, "b": "shown", "r": {"role": "cancels", "cancels": "b"}},
            "the kind 'r' cancels 'b'; expected other",
        ),
        ("buy", "expected what each kind of events means"),
    ],
)
def test_what_is_no_schema(kinds: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        tl.Schema(kinds)


def test_words_without_a_usual_meaning() -> None:
    with pytest.raises(DataError, match="'zorp': no kind that truelike knows"):
        tl.Schema.usual(["buy", "zorp"])
    with pytest.raises(DataError, match="none is a sign of a like"):
        tl.Schema.usual(["dislike"])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        tl.Schema.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("kinds = ")
    with pytest.raises(DataError, match="is not TOML"):
        tl.Schema.load(tmp_path / "bad.toml")
    (tmp_path / "other.toml").write_text("weights = 1")
    with pytest.raises(ParameterError, match=r"other\.toml': a schema has a table kinds"):
        tl.Schema.load(tmp_path / "other.toml")
    (tmp_path / "marked.toml").write_text(
        "kinds = {buy = 1}", encoding="utf-8-sig"
    )  # as editors on Windows write it
    assert tl.Schema.load(tmp_path / "marked.toml").targets == ("buy",)
