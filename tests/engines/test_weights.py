"""Weights of interactions: mean 1, by repetition and by age."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import truelike as tl
from truelike.engines.weights import interaction_weights, settings_to_try
from truelike.errors import ParameterError

ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(1, 5), st.integers(-50, 50)),
    min_size=1,
    max_size=40,
)


def dataset(rows: list[tuple[int, int, int, int]]) -> tl.Dataset:
    columns = ("user", "item", "weight", "time")
    return tl.read([dict(zip(columns, row, strict=True)) for row in rows], weight="weight")


def slow(data: tl.Dataset, weighting: str, recency: str, half_life: float) -> np.ndarray[Any, Any]:
    """The weights as the documentation defines them, one interaction after the other."""
    assert data.times is not None
    users, times = data.user_of_entry.tolist(), data.times.tolist()
    found = []
    for user, weight, time in zip(users, data.matrix.data.tolist(), times, strict=True):
        own = [t for u, t in zip(users, times, strict=True) if u == user]
        age = {
            "none": 0.0,
            "user": sum(t > time for t in own) / len(own),
            "global": (max(times) - time) / max(max(times) - min(times), 1),
        }[recency]
        count = {"none": 1.0, "log": np.log(1 + weight), "linear": weight}[weighting]
        found.append(count * 0.5 ** (age / half_life))
    return np.array(found) / np.mean(found)


@given(
    ROWS,
    st.sampled_from(["none", "log", "linear"]),
    st.sampled_from(["none", "user", "global"]),
    st.floats(0.05, 3.0),
)
def test_the_weights_are_those_of_the_definition(
    rows: list[tuple[int, int, int, int]], weighting: Any, recency: Any, half_life: float
) -> None:
    data = dataset(rows)
    found, expected = (
        interaction_weights(data, weighting, recency, half_life),
        slow(data, weighting, recency, half_life),
    )
    if found is None:
        assert_allclose(expected, 1.0, rtol=1e-12)
        return
    assert found.dtype == np.float32
    assert_allclose(found, expected, rtol=1e-5)
    assert found.mean(dtype=np.float64) == pytest.approx(1.0, rel=1e-6)


@given(ROWS, st.sampled_from(["user", "global"]), st.integers(1, 10**12), st.integers(-(10**15), 10**15))
def test_recency_does_not_depend_on_the_unit_and_the_start_of_time(
    rows: list[tuple[int, int, int, int]], recency: Any, unit: int, start: int
) -> None:
    same = dataset([(user, item, weight, start + unit * time) for user, item, weight, time in rows])
    one, other = interaction_weights(dataset(rows), recency=recency), interaction_weights(same, recency=recency)
    if one is None or other is None:  # a span of 0
        assert one is other
    else:
        assert_allclose(one, other, rtol=1e-5)


def test_the_largest_possible_time_span_is_no_problem() -> None:
    ends = np.iinfo(np.int64)
    data = tl.read([("ann", "tea", 1, ends.min), ("bob", "tea", 1, ends.max), ("bob", "gin", 1, 0)])
    weights = interaction_weights(data, recency="global", half_life=0.5)
    assert weights is not None
    assert_allclose(weights / weights.max(), [0.25, 0.5, 1.0], rtol=1e-6)


def test_recency_without_times_is_an_error_that_says_what_to_do() -> None:
    data = tl.read([("ann", "tea"), ("bob", "tea")])
    with pytest.raises(ParameterError, match=r"recency is 'user', and the training data has no times.*time="):
        interaction_weights(data, recency="user")


def test_each_setting_to_try_is_one_that_the_data_allows() -> None:
    rows = [(user, item, 1, user + item) for user in range(4) for item in range(4)]
    timed, plain = tl.read(rows), tl.read([row[:2] for row in rows])
    assert settings_to_try(plain) == [{}]
    first, *others = settings_to_try(timed)
    assert first == {}
    assert {setting["recency"] for setting in others} == {"user", "global"}
    for setting in others:
        assert interaction_weights(timed, **setting) is not None
        assert tl.IALS(**setting)
