import json
import random
import re
import uuid
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import truelike as tl
from truelike.core.files import describe_files, write_description
from truelike.data.splits import FILES
from truelike.data.strategies import hold_out
from truelike.errors import DataError, DataWarning, ParameterError, StorageError

Pair = tuple[Any, Any]
ROWS = [(u, i, 1, (7 * u + 3 * i) % 11) for u in range(6) for i in range(8) if (u + i) % 3]
WORLD = tl.synthetic.World(n_users=120, n_items=60, impressions_per_user=60, seed=5).dataset()
NOTHING = tl.read([(1, 1, 1, 1)]).select(np.array([False]))
SEEDED: dict[str, Callable[..., tl.Split]] = {
    "random": tl.splits.random,
    "by_user": tl.splits.by_user,
    "leave_one_out": tl.splits.leave_one_out,
    "last_n": lambda data, **how: tl.splits.last_n(data, 2, validation=1, **how),
    "k_fold": lambda data, **how: tl.splits.k_fold(data, **how)[1],
}


def pairs(data: tl.Dataset) -> list[Pair]:
    users = data.users.take(data.user_of_entry).to_list()
    return list(zip(users, data.items.take(data.matrix.indices).to_list(), strict=True))


def parts(split: tl.Split) -> list[list[Pair]]:
    return [pairs(part) for part in split.parts]


def check_whole(split: tl.Split, data: tl.Dataset) -> None:
    """The parts are disjoint, complete except for cold users and items, and share their ids."""
    train, validation, test = parts(split)
    everything = train + validation + test
    assert len(set(everything)) == len(everything)
    users, items = {u for u, _ in train}, {i for _, i in train}
    cold = [(u, i) for u, i in pairs(data) if u not in users or i not in items]
    assert sorted(everything + cold) == sorted(pairs(data))
    dropped = split.info["dropped"]
    assert dropped["validation_rows"] + dropped["test_rows"] == len(cold)
    assert dropped["users"] == data.n_users - len(users)
    assert dropped["items"] == data.n_items - len(items)
    for part in split.parts:
        assert (part.n_users, part.n_items) == (len(users), len(items))
        assert part.users is split.train.users
        assert part.items is split.train.items


@pytest.mark.filterwarnings("ignore:the .* part is empty")
@settings(deadline=None, max_examples=30)
@given(
    st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=12, max_size=50),
    st.floats(0, 0.4),
    st.floats(0, 0.4),
    st.integers(0, 2**32),
)
def test_every_strategy_gives_disjoint_and_complete_parts(
    chosen: set[tuple[int, int]], validation: float, test: float, seed: int
) -> None:
    data = tl.read([(user, item, 1, user * item) for user, item in chosen])
    shares = {"validation": validation, "test": test}
    for make in (
        lambda: tl.splits.random(data, **shares, seed=seed),
        lambda: tl.splits.by_user(data, **shares, seed=seed),
        lambda: tl.splits.by_user(data, **shares, seed=seed, item_guard=2),
        lambda: tl.splits.by_user(data, **shares, rounding="random", seed=seed),
        lambda: tl.splits.by_user(data, **shares, by="time", seed=seed),
        lambda: tl.splits.by_user(data, **shares, by="time", seed=seed, item_guard=2),
        lambda: tl.splits.leave_one_out(data, by="random", seed=seed),
        lambda: tl.splits.leave_one_out(data, seed=seed),
        lambda: tl.splits.last_n(data, 2, validation=1, by="random", seed=seed),
        lambda: tl.splits.temporal(data, **shares),
        lambda: tl.splits.at_date(data, validation_from=seed % 20 + 1, test_from=seed % 20 + 9),
        lambda: tl.splits.k_fold(data, 2 + seed % 3, validation=validation, seed=seed)[seed % 2],
    ):
        try:
            split = make()
        except DataError as error:
            assert re.search("no row is left to train on|there are no interactions", str(error))  # noqa: PT017
        else:
            check_whole(split, data)


@pytest.mark.parametrize("strategy", SEEDED)
def test_the_seed_decides_the_split(strategy: str) -> None:
    make = SEEDED[strategy]
    assert parts(make(WORLD, seed=1)) == parts(make(WORLD, seed=1))
    assert parts(make(WORLD, seed=1)) != parts(make(WORLD, seed=2))


@pytest.mark.parametrize("strategy", [*SEEDED, "temporal"])
def test_the_order_of_rows_does_not_matter(strategy: str) -> None:
    shuffled = ROWS.copy()
    random.Random(3).shuffle(shuffled)
    make = {**SEEDED, "temporal": tl.splits.temporal}[strategy]
    assert parts(make(tl.read(shuffled))) == parts(make(tl.read(ROWS)))


GOLDEN = {
    "random": (
        {"validation": 0.2, "test": 0.2, "seed": 3},
        [(1, 4), (2, 2), (2, 5), (3, 4), (4, 1), (5, 5)],
        [(1, 1), (4, 0), (4, 4), (4, 7), (5, 0), (5, 2)],
    ),
    "by_user": (
        {"validation": 0.2, "test": 0.2, "seed": 3, "item_guard": 1},
        [(0, 4), (1, 0), (2, 6), (3, 5), (4, 7), (5, 5)],
        [(0, 1), (1, 1), (2, 0), (3, 2), (4, 3), (5, 3)],
    ),
    "leave_one_out": (
        {"by": "random", "seed": 3},
        [(0, 2), (1, 4), (2, 5), (3, 7), (4, 7), (5, 6)],
        [(0, 1), (1, 1), (2, 0), (3, 2), (4, 6), (5, 3)],
    ),
    "by_user by time": (
        {"validation": 0.2, "test": 0.2, "by": "time", "seed": 3, "item_guard": 1},
        [(0, 2), (1, 4), (2, 2), (3, 5), (4, 4), (5, 2)],  # (3, 2) stays: it is the last one of item 2
        [(0, 7), (1, 1), (2, 6), (3, 7), (4, 1), (5, 6)],
    ),
    "temporal": (
        {"validation": 0.2, "test": 0.2},
        [(1, 0), (1, 4), (2, 5), (4, 4), (5, 2)],
        [(0, 7), (1, 1), (2, 2), (2, 6), (3, 7), (4, 1), (5, 6)],
    ),
}


@pytest.mark.parametrize("strategy", GOLDEN)
def test_a_split_is_the_same_on_every_machine(strategy: str) -> None:
    arguments, validation, test = GOLDEN[strategy]
    split = getattr(tl.splits, strategy.partition(" ")[0])(tl.read(ROWS), **arguments)
    assert parts(split)[1:] == [validation, test]


def test_a_random_split_has_the_asked_sizes() -> None:
    split = tl.splits.random(WORLD, validation=0.2, test=0.3, seed=4)
    dropped, n = split.info["dropped"], WORLD.n_interactions
    assert split.validation.n_interactions + dropped["validation_rows"] == round(0.2 * n)
    assert split.test.n_interactions + dropped["test_rows"] == round(0.3 * n)


def test_the_rounded_share_of_each_users_interactions_is_held_out() -> None:
    data = tl.read([(user, item) for user in range(30) for item in range(user + 2)])
    split = tl.splits.by_user(data, validation=0.1, test=0.2, seed=8)
    assert split.info["dropped"]["users"] == 0
    held = {part: dict.fromkeys(range(30), 0) for part in (1, 2)}
    for part in (1, 2):
        for user, _ in parts(split)[part]:
            held[part][user] += 1
    cold = split.info["dropped"]
    assert sum(held[1].values()) == sum(round(0.1 * (u + 2)) for u in range(30)) - cold["validation_rows"]
    for user in range(30):
        assert held[1][user] <= round(0.1 * (user + 2))
        assert held[2][user] <= round(0.2 * (user + 2))


# interactions of 40 users each, all of which have 1, 2, ..., 12 of 13 items
STAIRS = tl.read(
    [(40 * n + user, (user + item) % 13) for n in range(1, 13) for user in range(40) for item in range(n)]
)


def chances(make: Callable[[int], tl.Split], data: tl.Dataset, n: int) -> tuple[Any, Any]:
    """In which share of n splits each interaction of a dataset is in validation, and in which in test."""
    found = np.zeros((2, data.n_interactions))
    keys = data.user_of_entry.astype(np.int64) * data.n_items + data.matrix.indices
    for seed in range(n):
        split = make(seed)
        for counts, part in zip(found, split.parts[1:], strict=True):
            users = data.users.codes(part.users.values)[part.user_of_entry].astype(np.int64)
            items = data.items.codes(part.items.values)[part.matrix.indices]
            counts[np.searchsorted(keys, users * data.n_items + items)] += 1
    return found[0] / n, found[1] / n


def test_rounded_at_random_each_interaction_has_the_same_chance() -> None:
    shares = {"validation": 0.15, "test": 0.1}
    n_splits, n_of_user = 200, STAIRS.interactions_per_user()[STAIRS.user_of_entry]
    several = n_of_user > 1
    found = chances(
        lambda seed: tl.splits.by_user(STAIRS, **shares, rounding="random", seed=seed), STAIRS, n_splits
    )
    for share, each in zip(shares.values(), found, strict=True):
        assert not each[~several].any(), "the only interaction of a user stays in training"
        deviation = np.sqrt(share * (1 - share) / n_splits)
        assert abs(each[several] - share).max() < 5 * deviation
        for n in range(2, 13):
            mine = each[n_of_user == n]
            assert abs(mine.mean() - share) < 5 * deviation / np.sqrt(len(mine))
    nearest = chances(lambda seed: tl.splits.by_user(STAIRS, **shares, seed=seed), STAIRS, 20)[1]
    assert not nearest[n_of_user <= 5].any()


def test_a_split_by_user_says_how_many_users_it_never_tests() -> None:
    assert tl.splits.by_user(STAIRS).info["users_never_tested"] == 40 * 5
    assert tl.splits.by_user(STAIRS, rounding="random").info["users_never_tested"] == 40
    assert tl.splits.last_n(STAIRS, 3, validation=2).info["users_never_tested"] == 40 * 5
    assert tl.splits.by_user(STAIRS, test=0).info["users_never_tested"] == 0, "no test part was asked for"
    tested = tl.splits.by_user(STAIRS, test=0.3, rounding="random", seed=1).test.interactions_per_user()
    assert (tested <= np.ceil(0.3 * np.repeat(np.arange(1, 13), 40))).all()


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 9), st.sampled_from([0.0, 0.2, 0.45]), st.integers(0, 2**32))
def test_each_interaction_is_in_the_test_part_of_one_fold(k: int, validation: float, seed: int) -> None:
    folds = tl.splits.k_fold(STAIRS, k, validation=validation, seed=seed)
    tested = [pair for split in folds for pair in parts(split)[2]]
    assert len(tested) == len(set(tested))
    assert len(tested) + sum(split.info["dropped"]["test_rows"] for split in folds) == STAIRS.n_interactions
    assert set(pairs(STAIRS)) - set(tested) <= {pair for pair in pairs(STAIRS) if pair[0] < 80}
    sizes = [split.test.n_interactions + split.info["dropped"]["test_rows"] for split in folds]
    assert max(sizes) - min(sizes) <= 1
    for fold, split in enumerate(folds):
        assert split.info["fold"] == fold
        of_user = split.test.interactions_per_user()
        whole = STAIRS.interactions_per_user()[STAIRS.users.codes(split.train.users.values)]
        assert (of_user >= whole // k).all()
        assert (of_user <= -(-whole // k)).all()
        assert (split.validation.interactions_per_user() <= np.ceil(validation * whole)).all()


def test_the_validation_part_of_a_fold_has_the_asked_share() -> None:
    data = tl.read([(user, item) for user in range(300) for item in range(user % 7 + 3)])
    for split in tl.splits.k_fold(data, 4, validation=0.2):
        assert split.validation.n_interactions == pytest.approx(0.2 * data.n_interactions, rel=0.05)


@pytest.mark.parametrize("by", ["time", "random"])
def test_last_n_holds_out_n_of_each_user_who_has_enough(by: Any) -> None:
    rows = [(user, item, 1, (item * 5 + user) % 8) for user in range(8) for item in range(user + 1)]
    data = tl.read(rows + [(10 + item, item, 1, 0) for item in range(8)])  # so that no item is cold
    split = tl.splits.last_n(data, 2, validation=3, by=by, seed=4)
    for user in range(8):
        train, validation, test = (sorted(times_of_user(part, user)) for part in split.parts)
        if user < 5:  # five interactions or fewer
            assert not validation
            assert not test
        else:
            assert (len(validation), len(test)) == (3, 2)
            assert by == "random" or max(train) < validation[0] <= validation[-1] < test[0]
    assert parts(tl.splits.last_n(data, by=by)) == parts(tl.splits.leave_one_out(data, by=by))
    assert tl.splits.last_n(data, 1, validation=0, by=by).validation.n_interactions == 0


DAY = datetime(2024, 3, 10)
DAYS = pl.DataFrame(
    [(user, item, DAY + timedelta(days=(3 * user + item) % 9)) for user in range(6) for item in range(9)],
    schema=["user", "item", "time"],
    orient="row",
)


@pytest.mark.parametrize("unit", ["date", 1, 10**3, 10**6, 10**9])
@pytest.mark.parametrize(
    ("validation_from", "test_from"),
    [
        ("2024-03-14", "2024-03-16"),
        (date(2024, 3, 14), datetime(2024, 3, 16)),
        (np.datetime64("2024-03-14"), "2024-03-15T00:00:00.000001"),
        ("2024-03-14T02:00:00+02:00", datetime(2024, 3, 15, 22, tzinfo=timezone(timedelta(hours=-2)))),
        (DAY + timedelta(days=4), pl.Series([DAY + timedelta(days=6)])[0]),
    ],
)
def test_at_a_date_every_user_is_cut_at_one_moment(unit: Any, validation_from: Any, test_from: Any) -> None:
    rows = DAYS
    if unit != "date":
        rows = DAYS.with_columns(pl.col("time").dt.epoch("s") * unit)
    split = tl.splits.at_date(tl.read(rows), validation_from=validation_from, test_from=test_from)
    age = (3 * DAYS["user"] + DAYS["item"]) % 9
    for part, wanted in zip(split.parts, (age < 4, (age >= 4) & (age < 6), age >= 6), strict=True):
        assert sorted(pairs(part)) == sorted(DAYS.filter(wanted).select("user", "item").rows())


def test_at_a_date_takes_numbers_and_leaves_validation_out() -> None:
    data = tl.read(ROWS)
    split = tl.splits.at_date(data, test_from=8)
    assert split.validation.n_interactions == 0
    assert split.test.times is not None
    assert split.train.times is not None
    assert split.train.times.max() < 8 <= split.test.times.min()
    assert (
        parts(split)
        == parts(tl.splits.at_date(data, test_from="8"))
        == parts(tl.splits.at_date(data, test_from=7.5))
    )


def test_other_feedback_from_the_moment_on_is_held_out_though_no_interaction_is_that_early() -> None:
    log = [(user, item, "buy", user + item) for user in range(4) for item in range(4)]
    log = [row for row in log if row[3] != 5] + [(0, 1, "view", 5), (0, 2, "view", 4)]
    rows = pl.DataFrame(log, schema=["user", "item", "kind", "time"], orient="row")
    data = tl.read(rows, kind="kind", kinds={"buy": 1, "view": 0.1}, target="buy")
    split = tl.splits.at_date(data, test_from=5)
    assert split.train.to_frame("view")["time"].to_list() == [4]
    assert split.test.to_frame("view")["time"].to_list() == [5]


TIMED = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(-20, 20)), min_size=12, max_size=80
).filter(lambda rows: len({user for user, _, _ in rows}) > 1)


def times_of_user(data: tl.Dataset, user: Any) -> list[int]:
    assert data.times is not None
    lo, hi = data.matrix.indptr[data.users.known(user)[0] : data.users.known(user)[0] + 2]
    return list(data.times[lo:hi].tolist())


@pytest.mark.filterwarnings("ignore:the .* part is empty")
@settings(deadline=None, max_examples=50)
@given(TIMED, st.floats(0, 0.4), st.floats(0, 0.4), st.integers(0, 2**32))
def test_by_time_the_last_interactions_of_each_user_are_held_out(
    rows: list[tuple[int, int, int]], validation: float, test: float, seed: int
) -> None:
    data = tl.read([(user, item, 1, time) for user, item, time in rows])
    try:
        split = tl.splits.by_user(data, validation=validation, test=test, by="time", seed=seed)
    except DataError as error:
        assert "no row is left to train on" in str(error)  # noqa: PT017
        return
    check_whole(split, data)
    assert split.info["by"] == "time"
    for user in split.train.users:
        train, middle, last = (times_of_user(part, user) for part in split.parts)
        before, after = [*train, *middle], [*middle, *last]
        assert max(train) <= min(after, default=max(train))
        assert max(before) <= min(last, default=max(before))
        n = len(times_of_user(data, user))
        assert len(last) <= round(test * n)
        assert len(middle) <= round(validation * n)


@settings(deadline=None, max_examples=50)
@given(TIMED, st.floats(0, 0.9), st.integers(0, 2**32), st.sampled_from(["random", "time", None]))
def test_what_is_held_out_leaves_each_user_and_item_one_interaction(
    rows: list[tuple[int, int, int]], share: float, seed: int, by: Any
) -> None:
    data = tl.read([(user, item, 1, time) for user, item, time in rows])
    rest, held_out = hold_out(data, share, seed, by)
    assert rest.interactions_per_user().min() >= 1
    assert rest.popularity().min() >= 1
    assert sorted(pairs(rest) + pairs(held_out)) == pairs(data)
    if by is None:
        assert pairs(held_out) == pairs(hold_out(data, share, seed, "time")[1])


def test_a_pair_is_trained_on_only_if_all_of_its_rows_are_before_the_held_out_ones() -> None:
    rows = [("ann", item, 1, time) for time, item in enumerate(["tea", "gin", "ale", "rum", "tea"])]
    rows += [(user, item, 1, 0) for user in ("bob", "eve") for item in ("tea", "gin", "ale", "rum")]
    split = tl.splits.by_user(tl.read(rows), validation=0.25, test=0.25, by="time", item_guard=1)
    assert split.test.seen("ann").to_list() == ["tea"]
    assert split.validation.seen("ann").to_list() == ["rum"]
    assert ("ann", "tea") not in pairs(split.train)


@pytest.mark.filterwarnings("ignore:the .* part is empty")
@pytest.mark.parametrize("guard", [1, 5, 9, 1000])
def test_an_item_that_is_held_out_keeps_at_least_item_guard_rows_in_training(guard: int) -> None:
    split = tl.splits.by_user(WORLD, validation=0.2, test=0.2, seed=1, item_guard=guard)
    held_out = split.validation.popularity() + split.test.popularity()
    assert (split.train.popularity()[held_out > 0] >= guard).all()
    assert split.info["dropped"]["items"] == int((WORLD.popularity() == 0).sum())
    assert (held_out.sum() == 0) == (guard == 1000)


def test_leave_one_out_takes_one_row_for_each_part_of_users_with_three_or_more() -> None:
    data = tl.read([(user, item) for user in range(6) for item in range(user + 1)])
    split = tl.splits.leave_one_out(data, seed=2)
    cold = split.info["dropped"]
    assert split.info["by"] == "random"
    assert split.test.n_interactions + cold["test_rows"] == 4
    assert split.validation.n_interactions + cold["validation_rows"] == 4
    assert {user for user, _ in parts(split)[1] + parts(split)[2]} <= {2, 3, 4, 5}
    timed = tl.splits.leave_one_out(tl.read([(u, i, 1, (i * 5 + u) % 7) for u in range(5) for i in range(7)]))
    assert timed.info["by"] == "time"
    assert [set(part.times.tolist()) for part in timed.parts[1:] if part.times is not None] == [{5}, {6}]
    data = tl.read(ROWS)
    assert parts(tl.splits.by_user(data, by=None, seed=5)) == parts(tl.splits.by_user(data, by="time", seed=5))


def test_a_temporal_split_never_trains_on_the_future() -> None:
    rows = [(user, item, 1, (user * 31 + item * 17) % 40) for user in range(12) for item in range(15)]
    split = tl.splits.temporal(tl.read(rows), validation=0.15, test=0.1)
    train, validation, test = (part.times for part in split.parts)
    assert train is not None
    assert validation is not None
    assert test is not None
    assert train.max() < validation.min() <= validation.max() < test.min()


@pytest.mark.filterwarnings("ignore:the .* part is empty")
def test_cold_users_and_items_are_dropped_from_every_part_and_counted() -> None:
    warm = [(user, item, 1, user + item) for user in range(4) for item in range(4)]
    late = [(9, 0, 1, 100), (9, 1, 1, 100), (0, 9, 1, 100), (1, 9, 1, 100)]
    split = tl.splits.temporal(tl.read(warm + late), validation=0, test=0.2)
    assert split.info["dropped"] == {"users": 1, "items": 1, "validation_rows": 0, "test_rows": 4}
    assert split.train.users.values.to_list() == [0, 1, 2, 3]
    assert split.test.n_interactions == 0
    with pytest.warns(DataWarning, match="the validation part is empty"):
        tl.splits.by_user(tl.read([(1, 2), (1, 3), (2, 2), (2, 3)]), validation=0.1, test=0.0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tl.splits.random(WORLD, validation=-0.1), ParameterError, r"validation is -0\.1"),
        (lambda: tl.splits.by_user(WORLD, test=1.0), ParameterError, r"test is 1\.0"),
        (
            lambda: tl.splits.random(WORLD, validation=0.5, test=0.5),
            ParameterError,
            "nothing is left to train",
        ),
        (lambda: tl.splits.by_user(WORLD, item_guard=-1), ParameterError, "item_guard is -1"),
        (lambda: tl.splits.leave_one_out(WORLD, by="age"), ParameterError, "by is 'age'"),  # type: ignore[arg-type]
        (lambda: tl.splits.by_user(WORLD, by="age"), ParameterError, "by is 'age'"),  # type: ignore[arg-type]
        (lambda: tl.splits.by_user(WORLD, by="time"), DataError, r"by_user\(by='time'\) needs times.*time="),
        (lambda: tl.splits.leave_one_out(WORLD, by="time"), DataError, "needs times.*time="),
        (lambda: tl.splits.temporal(WORLD), DataError, "needs times.*by_user"),
        (lambda: tl.splits.random([(1, 2)]), DataError, r"takes a Dataset, not list: pass tl\.read"),  # type: ignore[arg-type]
        (lambda: tl.splits.random(WORLD, seed=1.5), ParameterError, "seed is 1.5; .*number"),  # type: ignore[arg-type]
        (lambda: tl.splits.by_user(WORLD, validation="0.1"), ParameterError, "validation is '0.1'; .*number"),  # type: ignore[arg-type]
        (lambda: tl.splits.by_user(WORLD, test=None), ParameterError, "test is None; .*number"),  # type: ignore[arg-type]
        (lambda: tl.splits.by_user(WORLD, rounding="up"), ParameterError, "rounding is 'up'; .*nearest"),  # type: ignore[arg-type]
        (lambda: tl.splits.last_n(WORLD, 0), ParameterError, "n is 0"),
        (lambda: tl.splits.last_n(WORLD, validation=-1), ParameterError, "validation is -1"),
        (lambda: tl.splits.last_n(WORLD, by="time"), DataError, r"last_n\(by='time'\) needs times.*time="),
        (lambda: tl.splits.k_fold(WORLD, 1), ParameterError, "k is 1"),
        (lambda: tl.splits.k_fold(WORLD, 10**7), ParameterError, "k is 10,000,000; .* make no more folds"),
        (lambda: tl.splits.k_fold(WORLD, 2, validation=0.5), ParameterError, "nothing is left to"),
        (lambda: tl.splits.at_date(WORLD, test_from=1), DataError, "at_date needs times"),
        (
            lambda: tl.splits.at_date(tl.read(ROWS), test_from="May"),
            ParameterError,
            "test_from is 'May'; .*2024-05-01",
        ),
        (lambda: tl.splits.at_date(tl.read(ROWS), test_from=None), ParameterError, "test_from is None; .*date"),  # type: ignore[arg-type]
        (
            lambda: tl.splits.at_date(tl.read(ROWS), test_from="²"),
            ParameterError,
            "test_from is '²'; .*2024-05-01",
        ),
        (lambda: tl.splits.at_date(NOTHING, test_from=1), DataError, "the dataset is empty"),
        (lambda: tl.splits.at_date(tl.read(ROWS), test_from=True), ParameterError, "test_from is True; .*date"),
        (lambda: tl.splits.at_date(tl.read(ROWS), test_from=float("nan")), ParameterError, "test_from is nan"),
        (
            lambda: tl.splits.at_date(tl.read(ROWS), test_from="2024-05-01"),
            DataError,
            "0 to 10.*no times since 1970",
        ),
        (
            lambda: tl.splits.at_date(tl.read(ROWS), test_from=11),
            DataError,
            "test_from is 11.*0 to 10.*from then on",
        ),
        (lambda: tl.splits.at_date(tl.read(ROWS), test_from=0), DataError, "test_from is 0.*before it"),
        (
            lambda: tl.splits.at_date(tl.read(ROWS), validation_from=5, test_from=5),
            ParameterError,
            "validation_from is 5, which is not before test_from",
        ),
        (
            lambda: tl.splits.temporal(tl.read([(u, i, 1, 5) for u in "ab" for i in "xy"]), test=0.3),
            DataError,
            "one time",
        ),
    ],
)
def test_a_split_that_cannot_be_made_is_an_error(
    make: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


# --- on disk ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids",
    [
        [f"ü{n}" for n in range(6)],
        [n - 3 for n in range(6)],
        [uuid.UUID(int=n) for n in range(6)],
        ["007", *"12345"],
    ],
    ids=["text", "integers", "uuids", "zeros"],
)
def test_a_saved_split_comes_back_as_it_was(tmp_path: Path, ids: list[Any]) -> None:
    rows = [(ids[user], ids[item], 1, user * 5 + item) for user in range(6) for item in range(6)] * 2
    data = tl.read(rows, name="logé").with_titles({ids[0]: "the “first”"})
    split = tl.splits.by_user(data, validation=0.2, test=0.2, seed=np.int64(3))
    split.save(tmp_path / "split")
    again = tl.Split.load(tmp_path / "split")
    assert parts(again) == parts(split)
    assert again.info == split.info
    for one, other in zip(again.parts, split.parts, strict=True):
        assert one.to_frame().to_dict(as_series=False) == other.to_frame().to_dict(as_series=False)
        assert one.name == "logé"
        assert one.titles is not None
        assert other.titles is not None
        assert one.titles.to_list() == other.titles.to_list()


def saved(place: Path) -> Path:
    tl.splits.by_user(tl.read(ROWS), validation=0.2, test=0.2).save(place / "split")
    return place / "split"


def test_saving_replaces_the_old_split_and_leaves_nothing_else(tmp_path: Path) -> None:
    saved(tmp_path)
    other = tl.splits.random(WORLD)
    other.save(tmp_path / "split")
    assert parts(tl.Split.load(tmp_path / "split")) == parts(other)
    assert [path.name for path in tmp_path.iterdir()] == ["split"]


@pytest.mark.parametrize("name", ["split.json", "train.parquet", "test.parquet", "users.parquet", "items.parquet"])
@pytest.mark.parametrize("damage", ["cut", "gone", "garbage"])
def test_a_damaged_directory_is_an_error_that_names_it(tmp_path: Path, name: str, damage: str) -> None:
    path = saved(tmp_path) / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-30] if damage == "cut" else b"\x00garbage\xff")
    with pytest.raises((StorageError, DataError), match="split"):
        tl.Split.load(tmp_path / "split")


@pytest.mark.parametrize("wrong", [1_000_000, -1])
@pytest.mark.parametrize("column", ["user", "item"])
def test_a_row_number_outside_the_id_maps_is_an_error(tmp_path: Path, column: str, wrong: int) -> None:
    path = saved(tmp_path) / "test.parquet"
    pl.read_parquet(path).with_columns(pl.lit(wrong, dtype=pl.Int32).alias(column)).write_parquet(path)
    describe_again(tmp_path / "split")
    with pytest.raises(StorageError, match=f"test.parquet.*{column}s"):
        tl.Split.load(tmp_path / "split")


def describe_again(place: Path) -> None:
    """As if the files had been written as they are now."""
    about = json.loads((place / "split.json").read_text())
    about["files"] = describe_files(place, FILES[1:])
    write_description(place / "split.json", about)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, 0.0, None, "x"])
def test_a_weight_that_is_not_a_positive_number_is_damage(tmp_path: Path, wrong: Any) -> None:
    path = saved(tmp_path) / "train.parquet"
    kind = pl.String if wrong == "x" else pl.Float32
    pl.read_parquet(path).with_columns(pl.lit(wrong, dtype=kind).alias("weight")).write_parquet(path)
    describe_again(tmp_path / "split")
    with pytest.raises(StorageError, match=r"train\.parquet has .* weight"):
        tl.Split.load(tmp_path / "split")


def authors(place: Path, train: Any, validation: Any, test: Any) -> Path:
    for name, part in (("train", train), ("validation", validation), ("test", test)):
        (place / f"{name}_data.json").write_text(json.dumps(part))
    return place


def test_the_format_of_the_authors_is_read_without_cold_users_and_items(tmp_path: Path) -> None:
    split = tl.Split.load(authors(tmp_path, [[0, 2], [1], []], [[1], [], [0]], [[], [2, 3], []]))
    assert parts(split) == [[(0, 0), (0, 2), (1, 1)], [(0, 1)], [(1, 2)]]
    assert split.info["dropped"] == {"users": 1, "items": 1, "validation_rows": 1, "test_rows": 1}


@pytest.mark.parametrize(
    "train", [[], {}, 5, [1, 2], [[0], ["x"]], [[0], [1.5]], [[0], [-1]], [[0], [1], [2]], [[[0]], [[1]]]]
)
def test_a_damaged_file_of_the_authors_is_an_error(tmp_path: Path, train: Any) -> None:
    with pytest.raises((StorageError, DataError)):
        tl.Split.load(authors(tmp_path, train, [[1], []], [[], [0]]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": {"users": "uuid", "items": "int"}}, "damaged"),
        ({"library": "os"}, "damaged"),
        ({"format": 99}, "format 99; this version reads format 2"),
    ],
)
def test_a_split_whose_description_was_edited_is_an_error(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    place = saved(tmp_path)
    about = json.loads((place / "split.json").read_text())
    (place / "split.json").write_text(json.dumps(about | change))
    with pytest.raises(StorageError, match=message):
        tl.Split.load(place)
    with pytest.raises(DataError, match=r"neither split\.json nor train_data\.json"):
        tl.Split.load(tmp_path / "nothing")
    saved(tmp_path)
    (place / "test.parquet").write_bytes((place / "validation.parquet").read_bytes())
    with pytest.raises(StorageError, match=r"test\.parquet.* cannot belong to split\.json"):
        tl.Split.load(place)


def test_a_panic_of_polars_on_a_damaged_split_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(*_: Any, **__: Any) -> None:
        raise pl.exceptions.PanicException("index out of bounds")

    data = tl.read([(user, item) for user in range(9) for item in range(user, user + 5)])
    tl.splits.random(data, validation=0.1, test=0.1, seed=0).save(tmp_path / "split")
    monkeypatch.setattr(pl, "read_parquet", panic)
    with pytest.raises(StorageError, match=r"users.parquet is damaged: index out of bounds"):
        tl.Split.load(tmp_path / "split")
