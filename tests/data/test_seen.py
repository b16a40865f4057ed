"""What lists leave out: by kinds of events and periods, against brute force."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import truelike as tl
from truelike.data.seen import seen_of
from truelike.errors import DataError, ParameterError, muted

DAY = 86_400
SCHEMA = tl.Schema(
    {"view": {"seen": "7d"}, "cart": 0.5, "buy": {"role": "target"}, "dislike": "negative", "shown": "shown"},
    "event",
)
KINDS = ["view", "cart", "buy", "dislike"]
EVENT = st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from(KINDS), st.integers(0, 40))


def data_of(events: list[tuple[int, int, str, int]]) -> Any:
    rows = [(f"u{user}", f"i{item}", kind, 10**9 + day * DAY) for user, item, kind, day in events]
    return tl.read(pl.DataFrame(rows, schema=["user", "item", "event", "time"], orient="row"), kinds=SCHEMA)


def found(data: Any, rule: Any) -> set[tuple[str, str]]:
    with muted():  # nothing may be known of a kind
        seen = seen_of(data, rule)
    if seen is None:
        return set()
    csr, rows = seen.rows(np.arange(data.n_users))
    return {
        (data.users[user], data.items[item])
        for user, row in enumerate(rows)
        for item in csr.indices[csr.indptr[row] : csr.indptr[row + 1]]
    }


RULES: list[tuple[Any, dict[str, float]]] = [
    (True, {"buy": 1e9, "view": 7, "dislike": 1e9}),
    (False, {}),
    ("30d", {"buy": 30, "view": 30, "dislike": 30}),
    (timedelta(days=3), {"buy": 3, "view": 3, "dislike": 3}),
    ("cart", {"cart": 1e9}),
    (["buy", "cart"], {"buy": 1e9, "cart": 1e9}),
    ({"interactions": "5d", "dislike": True}, {"buy": 5, "dislike": 1e9}),
    ({"buy": False}, {}),
]


@pytest.mark.filterwarnings("ignore:exclude_seen names 'cart'")
@given(events=st.lists(EVENT, min_size=1, max_size=20))
def test_seen_is_what_the_rules_say(events: list[tuple[int, int, str, int]]) -> None:
    events = [(0, 0, "buy", 20), (1, 1, "buy", 20), *events]
    data = data_of(events)
    last = max(day for *_, day in events)
    for rule, days in RULES:
        latest: dict[tuple[int, int, str], int] = {}
        for user, item, kind, day in events:
            latest[user, item, kind] = max(day, latest.get((user, item, kind), 0))
        expected = {
            (f"u{user}", f"i{item}")
            for (user, item, kind), day in latest.items()
            if kind in days and last - day < days[kind]
        }
        assert found(data, rule) == expected, rule


def test_without_a_schema_it_is_the_training_data_itself() -> None:
    data = tl.read([("ann", "tea"), ("bob", "rum")])
    assert seen_of(data, True) is data
    assert seen_of(data, ["interactions"]) is data
    assert seen_of(data, False) is None


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("zorp", "a period is 'zorp'"),
        (["buy", "zorp"], "exclude_seen names the kind 'zorp'; there are 'interactions', 'view'"),
        (["shown"], "exclude_seen names the kind 'shown'; there are 'interactions', 'view'"),
        ({"buy": 3}, "exclude_seen is 3; expected true, false or a period"),
        (3, "exclude_seen is 3; it must be True, False, a period"),
        (np.array(1), "exclude_seen is array"),
    ],
)
def test_rules_that_are_none(rule: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        seen_of(data_of([(0, 0, "buy", 1)]), rule)


def test_periods_need_times() -> None:
    with pytest.raises(DataError, match="needs times: name their column"):
        seen_of(tl.read([("ann", "tea")]), "2d")
    with pytest.raises(DataError, match="needs times since 1970"):
        seen_of(tl.read([("ann", "tea", 1, 5)]), "2d")
