"""Events after a log change what is known of a user as if they were rows of the log."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import truelike as tl
from truelike.data.replay import INTERACTIONS, Event, Known
from truelike.data.schema import undeclared
from truelike.errors import DataError, DataWarning, muted
from truelike.serving.event_data import with_events
from truelike.serving.events import SCHEMA as COLUMNS
from truelike.serving.events import Event as Kept

BY_NUMBER = tl.Schema(
    {
        "view": 0.25,
        "cart": {"weight": 0.5, "seen": "7d"},
        "buy": {"role": "target", "weight": 2},
        "refund": {"role": "cancels", "cancels": "buy"},
        "uncart": {"role": "cancels", "cancels": "cart"},
        "dislike": -1,
        "shown": "shown",
        "mail": "ignored",
    },
    "event",
)
BY_QUANTITY = tl.Schema(
    {
        "buy": {"role": "target", "weight": "quantity"},
        "refund": {"role": "cancels", "weight": "quantity"},
        "view": 0.25,
        "dislike": -1,
    },
    "event",
)
START = 1_600_000_000


def rows_of(kinds: list[str]) -> Any:
    row = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from(kinds), st.integers(1, 3))
    return st.lists(row, min_size=1, max_size=25)


def check(schema: tl.Schema, rows: list[tuple[str, str, str, int]], cut: int) -> None:
    """Read a log at once, and read its beginning and let the rest happen."""
    first = schema.targets[0]
    rows = [
        ("a", "x", first, 1),
        ("d", "w", first, 1),  # which nothing takes back
        *[("a", "x", name, 1) for name in schema.names("shown")],
        *rows,
    ]
    cut += len(schema.names("shown"))
    log = pl.DataFrame(
        [(*row, START + number) for number, row in enumerate(rows)],
        schema=["user", "item", "event", "quantity", "time"],
        orient="row",
    )
    events = [
        Kept(user, item, kind, 10**6 * time, quantity=float(quantity))
        for user, item, kind, quantity, time in log[2 + cut :].rows()
    ]
    with muted():
        whole, before = tl.read(log, kinds=schema), tl.read(log[: 2 + cut], kinds=schema)
        found = with_events(before, pl.DataFrame(events, schema=COLUMNS, orient="row"))
    taken = {(user, item) for user, item, kind, *_ in log.rows() if schema.kinds[kind].role == "cancels"}

    def table(data: tl.Dataset, part: str) -> list[tuple[Any, ...]]:
        """Pairs with weights, and with times where nothing was taken back."""
        if part != "interactions" and part not in data.kinds:
            return []
        return [
            (user, item, weight, None if (user, item) in taken else time)
            for user, item, weight, time in data.to_frame(part).rows()
        ]

    for part in ("interactions", *schema.kinds):
        if part not in ("shown", "mail"):
            assert table(found, part) == table(whole, part), part
    # a log leaves out impressions of users and items that it does not know yet
    early = [START + number for number in range(2 + cut)]
    shown = [[] if data.shown is None else data.to_frame("shown").rows() for data in (found, whole)]
    known = {(user, item) for user in before.users for item in before.items}
    of_all = {(user, item) for user in whole.users for item in whole.items}
    counted = [[row for row in each if row[:2] in (known if row[3] in early else of_all)] for each in shown]
    assert counted[0] == counted[1]


@given(rows=rows_of(list(BY_NUMBER.kinds)), cut=st.integers(0, 25))
def test_events_are_rows_that_come_later(rows: list[tuple[str, str, str, int]], cut: int) -> None:
    check(BY_NUMBER, rows, cut)


@given(rows=rows_of(list(BY_QUANTITY.kinds)), cut=st.integers(0, 25))
def test_quantities_of_events_are_those_of_rows(rows: list[tuple[str, str, str, int]], cut: int) -> None:
    check(BY_QUANTITY, rows, cut)


def test_remove_takes_back_all_that_is_known_of_an_item() -> None:
    known: Known[str] = Known(BY_NUMBER)
    known.add(INTERACTIONS, "tea", 4.0, 5)
    known.add("view", "tea", 0.25, 5)
    known.follow([Event("tea", "remove", 1), Event("rum", "remove", 2), Event("gin", "buy", 3)])
    assert known.names == (INTERACTIONS,)
    assert (known.pairs(INTERACTIONS), known.unmatched) == ({"gin": (2.0, 3)}, 1)


def test_of_rows_of_a_log_one_event_is_taken_back() -> None:
    known: Known[str] = Known(BY_NUMBER)
    known.add(INTERACTIONS, "tea", 4.0, 5)  # two purchases
    known.follow([Event("tea", "refund", 6)])
    assert known.pairs(INTERACTIONS) == {"tea": (2.0, 5)}


def test_without_a_schema_signs_of_likes_count_and_typos_are_errors() -> None:
    data = tl.read([("ann", "tea"), ("bob", "rum")])

    def after(*events: tuple[str, str, str]) -> list[tuple[str, str]]:
        frame = pl.DataFrame([Kept(*event, 10**15) for event in events], schema=COLUMNS, orient="row")
        found = with_events(data, frame)
        assert found.schema is undeclared()
        return [row[:2] for row in found.to_frame().rows()]

    old = [("ann", "tea"), ("bob", "rum")]
    assert after(("ann", "rum", "click"), ("bob", "tea", "view")) == [("ann", "rum"), *old]
    assert after(("ann", "gin", "dislike")) == old
    assert after(("ann", "tea", "refund")) == [("bob", "rum")]
    with pytest.raises(DataError, match=r"'clikc' \(1 rows\) is not declared"):
        after(("ann", "gin", "clikc"))
    with pytest.warns(DataWarning, match="1 events have nothing to take back"):
        after(("ann", "gin", "refund"))


def test_of_rows_of_a_log_the_weight_of_the_target_is_taken_back() -> None:
    kinds = {"cart": 0.3, "buy": {"role": "target"}, "undo": {"role": "cancels", "cancels": ["cart", "buy"]}}
    known: Known[str] = Known(tl.Schema(kinds))
    known.add(INTERACTIONS, "tea", 2.0, 5)
    known.follow([Event("tea", "undo", 6)])
    assert known.pairs(INTERACTIONS) == {"tea": (1.0, 5)}


def test_a_kind_named_remove_means_what_the_schema_says() -> None:
    known: Known[str] = Known(tl.Schema({"buy": 1, "remove": "negative"}))
    known.follow([Event("tea", "buy", 1), Event("tea", "remove", 2)])
    assert (known.pairs(INTERACTIONS), known.pairs("remove")) == ({"tea": (1.0, 1)}, {"tea": (-1.0, 2)})
