"""Trending ranks items by their users of late; and any model can fall back on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose

import truelike as tl
from truelike.data.trends import trend
from truelike.errors import DataError, ParameterError

DAY, NOW = 86_400, 1_700_000_000
# users of tea long ago, of rum lately
ROWS = [(f"old {n}", "tea", 1, NOW - 30 * DAY - n) for n in range(9)]
ROWS += [(f"new {n}", "rum", 1, NOW - n) for n in range(3)]
ROWS += [("ann", "tea", 1, NOW - 40 * DAY), ("ann", "gin", 1, NOW - 31 * DAY)]


@pytest.fixture(scope="module")
def data() -> tl.Dataset:
    rng = np.random.default_rng(0)
    pairs, ages = rng.choice(60 * 30, 600, replace=False).tolist(), rng.integers(0, 400 * DAY, 600).tolist()
    return tl.read([(pair // 30, pair % 30, 1, NOW - age) for pair, age in zip(pairs, ages, strict=True)])


def brute_force(data: tl.Dataset, half_life: float) -> list[float]:
    assert data.times is not None
    scores = dict.fromkeys(range(data.n_items), 0.0)
    for item, time in zip(data.matrix.indices.tolist(), data.times.tolist(), strict=True):
        scores[item] += 0.5 ** ((max(data.times.tolist()) - time) / half_life)
    return list(scores.values())


@pytest.mark.parametrize(
    ("half_life", "seconds"), [("7d", 7 * DAY), ("12h", DAY / 2), (1e6, 1e6), ("1.5 w", 10.5 * DAY)]
)
def test_the_score_is_the_sum_of_halved_users(data: tl.Dataset, half_life: Any, seconds: float) -> None:
    model = tl.Trending(half_life=half_life).fit(data)
    assert model.half_life_ == seconds
    assert_allclose(model.trend_, brute_force(data, seconds), rtol=1e-5, atol=1e-30)
    assert model.score(data.users[0], data.items[3])[0] == model.trend_[3]


@pytest.mark.parametrize("unit", [10**3, 10**6, 10**9])
def test_a_length_of_time_is_the_same_in_every_unit(data: tl.Dataset, unit: int) -> None:
    assert data.times is not None
    other = data.with_parts(times=data.times * unit)
    for half_life in ("7d", None):
        scores = [tl.Trending(half_life=half_life).fit(each).trend_ for each in (data, other)]
        assert_allclose(*scores, rtol=1e-6)


def test_the_default_follows_from_the_time_span_whatever_the_unit() -> None:
    rows = [("ann", "tea", 1, 100), ("bob", "rum", 1, 500)]
    assert tl.Trending().fit(tl.read(rows)).half_life_ == 20.0
    with pytest.raises(
        DataError, match=r"half_life is '7d', and the times of this dataset are 100 to 500, .*a number"
    ):
        tl.Trending(half_life="7d").fit(tl.read(rows))
    assert tl.Trending(half_life=1e9).fit(tl.read(rows)).recommend("ann")["item_id"].to_list() == ["rum"]


def test_what_is_popular_now_comes_before_what_was() -> None:
    log = tl.read(ROWS)
    assert tl.ItemPop().fit(log).recommend_from_items([], k=3, on_unknown="popular")["item_id"][0] == "tea"
    model = tl.Trending(half_life="7d").fit(log)
    assert model.recommend_from_items(["gin"], k=3)["item_id"].to_list() == ["rum", "tea"]
    assert model.similar_items(["gin"], k=1)["similar_item_id"].to_list() == ["rum"]


def test_a_saved_model_is_the_same_and_more_interactions_count(data: tl.Dataset, tmp_path: Path) -> None:
    model = tl.Trending(half_life="30d").fit(data)
    model.save(tmp_path / "model")
    again: Any = tl.load(tmp_path / "model")
    assert again.get_params() == {"half_life": "30d"}
    assert again.half_life_ == model.half_life_
    assert again.recommend(k=30).equals(model.recommend(k=30))
    again.partial_fit([(7, 7, 1, NOW + 400 * DAY)])
    assert again.recommend(3, k=1, exclude_seen=False)["item_id"].to_list() == [7]
    others = [user for user in data.users if user != 3]
    before = model.recommend(others, k=30)
    assert model.forget_users(3).recommend(others, k=30).equals(before)


def test_without_times_it_is_an_error_that_says_what_to_do() -> None:
    log = tl.read([("ann", "tea"), ("bob", "rum")])
    with pytest.raises(DataError, match=r"trending follows from times, .* has none. .*time=.*popular"):
        tl.Trending().fit(log)
    model = tl.ItemPop().fit(log)
    for ask in (model.recommend, model.recommend_from_items, model.similar_items):
        with pytest.raises(DataError, match="trending follows from times"):
            ask(["eve"], on_unknown="trending")
    for wrong in ("7", "7 years", "0d", 0, -1.0, True, float("nan")):
        with pytest.raises(ParameterError, match=r'half_life is .*; it must be a length of time such as "7d"'):
            tl.Trending(half_life=wrong)


def test_any_model_falls_back_on_what_is_trending(tmp_path: Path) -> None:
    log = tl.read(ROWS)
    model: Any = tl.EASE().fit(log)
    share = tl.Trending().fit(log).trend_ / np.float32(log.n_users)
    found = model.recommend(["ann", "eve"], k=3, on_unknown="trending")
    mine = found.filter(pl.col("user_id") == "eve")
    assert mine["item_id"].to_list() == ["rum", "tea", "gin"]
    assert_allclose(mine["score"].to_numpy(), share[log.items.codes(mine["item_id"])], rtol=1e-6)
    assert found.filter(pl.col("user_id") == "ann").equals(model.recommend("ann", k=3))
    assert model.recommend_from_items(["?"], k=1, on_unknown="trending")["item_id"].to_list() == ["rum"]
    assert model.recommend_from_items(["gin", "?"], k=1, on_unknown="trending").equals(
        model.recommend_from_items(["gin"], k=1)
    )
    assert model.similar_items("?", k=1, on_unknown="trending")["similar_item_id"].to_list() == ["rum"]
    assert model.recommend("eve", k=3, on_unknown="trending", exclude="rum")["item_id"].to_list() == ["tea", "gin"]
    model.recommend_to(tmp_path / "lists.parquet", ["ann", "eve"], k=3, on_unknown="trending", progress=False)
    assert pl.read_parquet(tmp_path / "lists.parquet").equals(found)


def test_blocks_have_the_same_trend(data: tl.Dataset, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    blocks = tl.blocks.build(data, tmp_path / "blocks", blocks=3, progress=False)
    for half_life in (None, "30d"):
        assert_allclose(trend(blocks, half_life).scores, trend(data, half_life).scores, rtol=1e-6)
    model: Any = tl.IALS(factors=4, epochs=1).fit(blocks, progress=False)
    first = tl.Trending().fit(data).recommend(0, k=1, exclude_seen=False)["item_id"].to_list()
    assert model.recommend("?", k=1, on_unknown="trending")["item_id"].to_list() == first
