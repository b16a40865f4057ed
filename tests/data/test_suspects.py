"""Users who are no people stand out, and people do not."""

from __future__ import annotations

import numpy as np
import pytest

import truelike as tl
from truelike.data.suspects import of_an_hour, of_items

NOON = 1_700_000_000


def log(counts: list[int], apart: int = 86_400, unit: int = 1) -> list[tuple[int, int, int, int]]:
    """Rows of users with so many items each, that are so many seconds apart."""
    return [(u, i, 1, unit * (NOON + apart * i + u)) for u, n in enumerate(counts) for i in range(n)]


def test_the_limit_follows_from_the_quartiles() -> None:
    assert of_items(tl.read(log([20] * 50 + [60] * 50))).limit == 60 * 3**3
    assert of_items(tl.read(log([20] * 100))).limit == 20 * 2**3, "the quartiles are a factor of 2 apart at least"
    assert of_items(tl.read(log([1] * 100))).limit == 100


@pytest.mark.parametrize("robots", [1, 10])
def test_robots_do_not_hide_each_other(robots: int) -> None:
    rng = np.random.default_rng(0)
    people = (1 + rng.geometric(0.1, 200)).tolist()
    data = tl.read(log([*people, *[3_000] * robots]))
    found = tl.suspicious_users(data)
    assert found["user_id"].to_list() == list(range(200, 200 + robots))
    assert found["why"].to_list() == ["items"] * robots
    assert not tl.suspicious_users(data.without_users(found["user_id"])).height


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_many_items_in_an_hour_are_suspicious_where_the_unit_is_known(unit: int) -> None:
    data = tl.read(
        [*log([10, 200, 5] * 20, unit=unit), *(("robot", i, 1, unit * (NOON + 10 * i)) for i in range(190))]
    )
    found = tl.suspicious_users(data)
    assert found.rows() == [("robot", 190, 190, "hour")]
    hour = of_an_hour(data)
    assert hour is not None
    assert hour.counts.tolist() == [1] * 60 + [190]
    numbers = data.with_parts(times=np.arange(data.n_interactions))
    assert of_an_hour(numbers) is None
    assert tl.suspicious_users(numbers).height == 0
    assert dict(tl.describe(data).rows())["users with far more items in an hour"] == "1 above 100: robot (190)"


def test_the_busiest_hour_is_found_wherever_it_begins() -> None:
    rng = np.random.default_rng(3)
    rows = [
        (int(u), int(i), 1, NOON + int(t))
        for u, i, t in zip(*rng.integers(0, [[5], [200], [20_000]], (3, 400)), strict=False)
    ]
    data = tl.read(rows)
    hour = of_an_hour(data)
    assert hour is not None
    assert data.times is not None
    for user in range(data.n_users):
        lo, hi = data.csr.indptr[user : user + 2]
        times = data.times[lo:hi]
        assert hour.counts[user] == max(int(((times > end - 3_600) & (times <= end)).sum()) for end in times)


def test_people_are_not_faster_than_an_item_every_two_seconds() -> None:
    hurried = log([400, 10_000] * 3, apart=1)
    hour = of_an_hour(tl.read(hurried))
    assert hour is not None
    assert (hour.limit, hour.counts.tolist()) == (1_800, [400, 3_600] * 3)
