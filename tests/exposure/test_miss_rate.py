"""The miss rate by repeated showings and by position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.data.shown import Shown
from truelike.errors import DataWarning
from truelike.exposure import miss_rate
from truelike.exposure.miss_rate import Estimate, by_position, by_showing, estimated

EXAMINATION = np.array([1.0, 0.7, 0.5, 0.35, 0.25])


def showings(rng: Any, liked: Any, scheduled: Any, m: float) -> tuple[Any, Any]:
    """The number of showings and whether a pair was taken; a shop stops to show what was taken."""
    at = rng.geometric(1 - m, len(scheduled)) if m else np.ones(len(scheduled), dtype=np.int64)
    taken = (rng.random(len(scheduled)) < liked) & (at <= scheduled)
    return np.where(taken, at, scheduled), taken


# --- by repeated showings ------------------------------------------------------------------------


@pytest.mark.parametrize("m", [0.1, 0.3, 0.8])
@pytest.mark.parametrize("liked", [0.02, 0.5])
def test_the_miss_rate_is_recovered_within_its_error(m: float, liked: float) -> None:
    rng = np.random.default_rng(1)
    found = by_showing(*showings(rng, liked, rng.integers(1, 6, 60_000), m))
    assert found.standard_error is not None
    assert found.standard_error < 0.1
    assert abs(found.miss_rate - m) < 3 * found.standard_error
    low, high = found.interval()
    assert low < found.miss_rate < high


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        low, high = by_showing(*showings(rng, 0.1, rng.integers(1, 5, 3_000), 0.4)).interval()
        covered += low <= 0.4 <= high
    assert 180 <= covered <= 198


def test_likes_that_differ_between_pairs_do_no_harm_if_they_do_not_depend_on_the_showings() -> None:
    rng = np.random.default_rng(2)
    found = by_showing(*showings(rng, rng.beta(0.1, 0.9, 60_000), rng.integers(1, 6, 60_000), 0.3))
    assert abs(found.miss_rate - 0.3) < 3 * (found.standard_error or 0)


def test_good_items_that_are_shown_more_often_need_a_group_each() -> None:
    rng = np.random.default_rng(3)
    item = rng.integers(200, size=60_000)
    scheduled = 1 + rng.poisson(0.2 + 4 * (item / 200) ** 2)
    n, taken = showings(rng, 0.3 * (item / 200) ** 2, scheduled, 0.3)
    pooled, grouped = by_showing(n, taken), by_showing(n, taken, item)
    assert pooled.miss_rate > 0.36
    assert abs(grouped.miss_rate - 0.3) < 3 * (grouped.standard_error or 0)


@pytest.mark.parametrize(
    ("n", "taken"),
    [([1, 1, 1], [True, False, False]), ([2, 3, 1], [False, False, False]), ([2, 1, 1], [True, True, True])],
)
def test_without_repeated_showings_or_takes_it_is_not_identified(n: list[int], taken: list[bool]) -> None:
    assert by_showing(np.array(n), np.array(taken)) == Estimate(0.0, None)


def test_if_everything_is_taken_at_once_the_miss_rate_is_near_0() -> None:
    rng = np.random.default_rng(4)
    found = by_showing(*showings(rng, 0.2, rng.integers(1, 6, 5_000), 0.0))
    assert found.miss_rate < 0.01
    assert (found.standard_error or 1) < 0.01


# --- by position ---------------------------------------------------------------------------------


def confounded(rng: Any, n: int) -> tuple[Any, Any, Any]:
    """Good items mostly at good positions."""
    item = rng.integers(100, size=n)
    noise = rng.normal(scale=1.5, size=n)
    position = np.clip(np.round(3 - 1.5 * (item - 50) / 50 + noise), 1, 5).astype(np.int64)
    taken = rng.random(n) < 0.4 * (item / 100) ** 2 * EXAMINATION[position - 1]
    return item, position, taken


def test_examination_is_recovered_where_a_ratio_of_rates_is_wrong() -> None:
    item, position, taken = confounded(np.random.default_rng(0), 200_000)
    naive = np.bincount(position, taken)[1:] / np.bincount(position)[1:]
    assert np.abs(naive / naive.max() - EXAMINATION).max() > 0.1
    assert np.abs(by_position(item, position, taken) - EXAMINATION).max() < 0.03


def test_a_position_with_few_rows_is_shrunk() -> None:
    item, position, taken = confounded(np.random.default_rng(0), 50_000)
    found = by_position(np.append(item, 99), np.append(position, 6), np.append(taken, True))
    assert found[0] > 0.9
    assert 0.2 < found[5] <= 1
    found = by_position(np.append(item, 99), np.append(position, 8), np.append(taken, False))
    assert len(found) == 8
    assert 0.1 < found[6] < 1


def test_positions_beyond_50_count_as_one() -> None:
    rng = np.random.default_rng(0)
    position = np.array([1, 50, 51, 10_000, 10**15])[rng.integers(5, size=50_000)]
    taken = rng.random(50_000) < np.where(position <= 50, 0.2, 0.1)
    found = by_position(rng.integers(10, size=50_000), position, taken)
    assert len(found) == 51
    assert found[50] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("taken", [False, True])
def test_positions_that_tell_nothing_are_all_alike(taken: bool) -> None:
    found = by_position(np.array([0, 0, 1]), np.array([1, 2, 1]), np.array([taken] * 3))
    assert np.allclose(found, 1, atol=0.05)
    assert by_position(np.array([0, 1]), np.array([1, 1]), np.array([taken, True])).tolist() == [1]


# --- a log ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world() -> Any:
    return tl.synthetic.World(n_users=800, n_items=300, impressions_per_user=300, seed=2)


def estimate_of(data: Any, users: Any, items: Any, counts: Any = None, **known: Any) -> Any:
    pairs = (np.asarray(each, dtype=np.int32) for each in (users, items))
    return estimated(data, Shown.from_pairs(*pairs, data.csr.shape, counts, **known))


def of_log(data: Any, shown: Any, **changed: Any) -> Any:
    columns = {name: shown[name].to_numpy() for name in shown.columns}
    log = {"times": columns["time"], "positions": columns.get("position"), **changed}
    return estimate_of(data, columns["user_id"], columns["item_id"], **log)


def test_a_log_tells_the_miss_rate_of_a_world(world: Any) -> None:
    data, shown = world.impression_log(miss_rate=0.4)
    found = of_log(data, shown)
    assert found.miss_rate == pytest.approx(0.4, abs=0.02)
    assert len(found.rates) == shown.n_unique(["user_id", "item_id"])


def test_a_log_tells_the_examination_of_a_world_and_its_level(world: Any) -> None:
    data, shown = world.impression_log(miss_rate=0.3, examination=EXAMINATION)
    found = of_log(data, shown)
    assert np.abs(1 - found.miss_rate - 0.7 * EXAMINATION).max() < 0.06
    relative = of_log(data, shown, times=None)
    assert relative.miss_rate.min() == 0
    assert np.abs(1 - relative.miss_rate - EXAMINATION).max() < 0.08


def test_a_sample_of_a_large_log_tells_the_level(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, shown = world.impression_log(miss_rate=0.3, examination=EXAMINATION)
    monkeypatch.setattr(miss_rate, "MOST_ROWS", 100_000)
    monkeypatch.setattr(miss_rate, "MOST_PAIRS", 80_000)
    assert 1 - of_log(data, shown).miss_rate[0] == pytest.approx(0.7, abs=0.1)


def test_the_order_of_rows_does_not_matter(world: Any) -> None:
    data, shown = world.impression_log(miss_rate=0.3, examination=EXAMINATION)
    mixed = of_log(data, shown.sample(fraction=1, shuffle=True, seed=0))
    found = of_log(data, shown)
    assert (mixed.rates == found.rates).all()
    assert (mixed.miss_rate == found.miss_rate).all()


def test_showings_after_the_interaction_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    users, items = np.repeat(np.arange(500), 20), np.tile(np.arange(20), 500)
    at = rng.geometric(0.5, 10_000)
    taken = (rng.random(10_000) < 0.3) & (at <= 5)
    times = np.tile(np.arange(1, 6), 10_000)
    data = tl.read((users[taken], items[taken], np.ones(taken.sum()), at[taken]))
    codes = np.repeat(data.users.codes(users), 5), np.repeat(data.items.codes(items), 5)
    with caplog.at_level("INFO", logger="truelike"):
        found = estimate_of(data, *codes, times=times)
    assert found.miss_rate == pytest.approx(0.5, abs=0.03)
    expected = np.where(taken, at, 5) * -np.log(found.miss_rate)
    assert np.allclose(found.rates, expected)
    assert "miss rate estimated from" in caplog.text
    assert "(0.4" in caplog.text
    late = estimate_of(data, *codes, np.full(50_000, 2), times=times)
    assert np.allclose(late.rates, 2 * np.where(taken, at, 5) * -np.log(late.miss_rate))


def test_a_log_that_tells_nothing_says_so_and_means_a_miss_rate_of_0(caplog: pytest.LogCaptureFixture) -> None:
    data = tl.read([("a", "x", 1, 5), ("b", "y", 1, 5)])
    with caplog.at_level("INFO", logger="truelike"):
        found = estimate_of(data, [0, 0, 1, 1], [0, 1, 1, 1], times=np.array([5, 5, 4, 5]))
    assert found.miss_rate == 0
    assert np.isinf(found.rates).all()
    assert "taken to be 0" in caplog.text


def test_times_of_another_unit_are_a_warning() -> None:
    data = tl.read([("a", "x", 1, 5), ("b", "y", 1, 5)])
    with pytest.warns(DataWarning, match="2 of 2 interactions come before"):
        estimate_of(data, [0, 0, 1], [0, 1, 1], times=np.array([5, 5, 4]) * 1_000_000)
