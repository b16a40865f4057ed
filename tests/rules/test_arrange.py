"""Lists by rules are what the guide says: compared with a program that tries all items at each place."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelike.errors import ParameterError
from truelike.rules import arrange
from truelike.rules.arrange import BoundRules, Cap, Place
from truelike.rules.filters import Filters

N = 12


class Ranked:
    """The ranking of a user, by sorting."""

    def __init__(self, scores: list[int], seen: set[int], similarity: np.ndarray[Any, Any]) -> None:
        self.own = np.array(scores, dtype=np.float32)
        self.seen, self.similarity = seen, similarity

    def scores(self) -> Any:
        return self.own

    def best(self, n: int, allowed: Any, boost: Any) -> Any:
        scores = self.own if boost is None else self.own + boost
        there = [row for row in range(N) if row not in self.seen and (allowed is None or allowed[row])]
        order = sorted(there, key=lambda row: (-scores[row], row))[:n]
        return np.array(order, dtype=np.int32), scores[order]

    def similarities(self, items: Any) -> Any:
        return self.similarity[np.ix_(items, items)]


def bound(**changes: Any) -> BoundRules:
    nothing: dict[str, Any] = {
        "n_items": N, "fitting": None, "units": None, "pins": {}, "diversity": 0.0, "caps": (), "min_new": 0.0,
        "new": None, "warnings": (),
    }  # fmt: skip
    return BoundRules(**{**nothing, **changes})


def by_hand(
    scores: list[float], allowed: list[bool], seen: set[int], pins: dict[int, int], columns: list[list[set[int]]],
    most: list[int], new: set[int], share: Fraction, weight: float, similarity: Any, wanted: int, page: int,
) -> list[int]:  # fmt: skip
    """The definition: each place by itself, without a queue and without a pool."""
    free = [row for row in range(N) if allowed[row] and row not in seen and row not in pins.values()]
    high, low = (max(scores[row] for row in free), min(scores[row] for row in free)) if free else (0.0, 0.0)
    chosen: list[int] = []
    found: list[int] = []

    def fits(row: int) -> bool:
        taken = [*found, *(pin for pin in pins.values() if pin not in found)]
        return all(
            sum(value in column[other] for other in taken) < cap
            for column, cap in zip(columns, most, strict=True)
            for value in column[row]
        )

    def worth(row: int) -> Any:
        if not weight:
            return (scores[row], -row)
        relevance = (np.float32(scores[row]) - np.float32(low)) / (high - low) if high > low else 1.0
        near = max((similarity[row, other] for other in chosen), default=0.0)
        return ((1 - weight) * relevance - weight * near, scores[row], -row)

    for position in range(1, wanted + 1):
        if position in pins:
            found.append(pins[position])
            continue
        possible = [row for row in free if row not in found and fits(row)]
        first = (position - 1) // page * page + 1
        on_page = range(first, first + page)
        so_far = sum(found[at - 1] in new for at in range(first, position))
        so_far += sum(pins[at] in new for at in on_page if at in pins and at > position)
        after = [at for at in on_page if at > position and at not in pins]
        if math.ceil(share * page) - so_far > len(after) and new & set(possible):
            possible = [row for row in possible if row in new]
        if not possible:
            break
        found.append(max(possible, key=worth))
        chosen.append(found[-1])
    found += [row for _, row in sorted(pins.items()) if row not in found]
    return found[:wanted]


SETS = st.lists(st.sets(st.integers(0, 3), max_size=2), min_size=N, max_size=N)
BITS = st.lists(st.booleans(), min_size=N, max_size=N)


@given(
    scores=st.lists(st.integers(0, 6), min_size=N, max_size=N),
    boosts=st.none() | st.lists(st.sampled_from([0.0, 0.5, -1.0]), min_size=N, max_size=N),
    allowed=st.none() | BITS,
    seen=st.sets(st.integers(0, N - 1), max_size=4),
    pins=st.dictionaries(st.integers(1, 9), st.integers(0, N - 1), max_size=3).filter(
        lambda pins: len(set(pins.values())) == len(pins)
    ),
    columns=st.lists(SETS, max_size=2),
    most=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    new=st.none() | BITS.filter(any),
    tenths=st.integers(1, 10),
    weight=st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0]),
    similar=st.lists(st.integers(0, 4), min_size=N * N, max_size=N * N),
    page=st.integers(1, 6),
    offset=st.integers(0, 6),
    look=st.integers(1, 5),
)
def test_a_list_is_the_best_choice_at_each_place(
    scores: list[int], boosts: Any, allowed: Any, seen: set[int], pins: dict[int, int], columns: Any,
    most: list[int], new: Any, tenths: int, weight: float, similar: list[int], page: int, offset: int, look: int,
) -> None:  # fmt: skip
    table = pl.DataFrame(
        {f"column{n}": [sorted(values) or None for values in column] for n, column in enumerate(columns)},
        schema={f"column{n}": pl.List(pl.Int64) for n in range(len(columns))},
    )
    filters, similarity = Filters(table), np.array(similar, dtype=float).reshape(N, N) / 4
    similarity = np.maximum(similarity, similarity.T)
    np.fill_diagonal(similarity, 0)
    caps = tuple(
        Cap(cap, filters.values(f"column{n}")) for n, (_, cap) in enumerate(zip(columns, most, strict=False))
    )
    rules = bound(
        units=None if boosts is None else np.array(boosts, dtype=np.float32), pins=dict(sorted(pins.items())),
        diversity=weight, caps=caps, min_new=0.0 if new is None else tenths / 10,
        new=None if new is None else np.array(new), fitting=None if allowed is None else np.array(allowed),
    )  # fmt: skip
    ranked, wanted = Ranked(scores, seen, similarity), page + offset
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrange, "FIRST_LOOK", look)
        places = rules.arrange(ranked, rules.allow(None), wanted, page)
    boost = rules._boost(ranked)
    boosted = ranked.own if boost is None else ranked.own + boost
    expected = by_hand(
        [float(score) for score in boosted], allowed or [True] * N, seen, pins, columns, most[: len(columns)],
        {row for row in range(N) if new is not None and new[row]}, Fraction(tenths, 10) if new else Fraction(0),
        weight, similarity, wanted, page,
    )  # fmt: skip
    assert [place.item for place in places] == expected
    assert all(place.score == boosted[place.item] for place in places)
    assert {place.item for place in places if place.pinned} == set(pins.values()) & set(expected)
    shorter = rules.arrange(ranked, rules.allow(None), page, page)
    ended = len(shorter) < page  # pins of later positions end a list that is too short
    assert ended or shorter == places[:page]


def test_a_missing_score_of_a_pin_is_none() -> None:
    ranked = Ranked([1] * N, set(), np.zeros((N, N)))
    ranked.own[3] = -np.inf
    assert bound(pins={1: 3}).arrange(ranked, None, 1, 1) == [Place(3, None, pinned=True)]


def test_beyond_the_pool_of_diversity_items_follow_by_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrange, "MOST_DIVERSE", 4)
    filters = Filters(pl.DataFrame({"brand": ["a"] * 8 + ["b", "c", "d", None]}))
    rules = bound(diversity=0.5, caps=(Cap(1, filters.values("brand")),))
    ranked = Ranked(list(range(N, 0, -1)), set(), np.zeros((N, N)))
    assert [place.item for place in rules.arrange(ranked, None, 4, 4)] == [0, 8, 9, 10]
    with pytest.raises(ParameterError, match="with diversity it is at most 4"):
        rules.arrange(ranked, None, 5, 5)


def test_a_digest_tells_rules_apart() -> None:
    filters = Filters(pl.DataFrame({"brand": ["a", "b"] * 6, "kind": ["a", "a"] * 6}))
    half = np.arange(N) < 6
    several = [
        bound(), bound(pins={1: 2}), bound(pins={2: 1}), bound(diversity=0.1), bound(min_new=0.1, new=half),
        bound(min_new=0.1, new=~half), bound(units=half.astype(np.float32)),
        bound(caps=(Cap(1, filters.values("brand")),)), bound(caps=(Cap(2, filters.values("brand")),)),
        bound(caps=(Cap(1, filters.values("kind")),)),
    ]  # fmt: skip
    assert len({rules.digest() for rules in several}) == len(several)
    assert bound(pins={1: 2}).digest() == bound(pins={1: 2}).digest()
