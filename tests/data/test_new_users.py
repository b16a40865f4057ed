"""Splits of whole users: who is held out, what their histories are, and that all parts of a dataset go along."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import truelike as tl
from truelike.errors import DataError, DataWarning, NotFoundError, ParameterError, StorageError

WORLD = tl.synthetic.World(n_users=200, n_items=60, seed=3).dataset()


PARTS = ("interactions", "shown", "item_features", "user_features")


def new_parts(split: tl.NewUserSplit) -> list[tl.Dataset]:
    return [part for new in (split.validation, split.test) for part in (new.history, new.targets)]


def rows(data: tl.Dataset, part: str = "interactions") -> list[tuple[Any, ...]]:
    there = part == "interactions" or part in data.kinds or part in data.carries
    return list(data.to_frame(part).iter_rows()) if there else []


def everything(split: tl.NewUserSplit) -> list[Any]:
    """All parts by the ids of the caller."""
    of_datasets = [
        {part: found for part in (*data.kinds, *PARTS) if (found := rows(data, part))}
        | {"ids": (list(data.users), list(data.items)), "titles": data.titles, "name": data.name}
        for data in (split.train, *new_parts(split))
    ]
    return [
        {**each, "titles": None if each["titles"] is None else each["titles"].to_list()} for each in of_datasets
    ]


SIZE = st.one_of(st.floats(0, 0.45), st.integers(0, 3))


@pytest.mark.filterwarnings("ignore:the .* part has no users")
@settings(max_examples=40)
@given(
    st.sets(st.tuples(st.integers(0, 9), st.integers(0, 7)), min_size=15, max_size=60),
    SIZE,
    SIZE,
    st.floats(0.05, 0.95),
    st.sampled_from(["random", "time", None]),
    st.integers(0, 2**32),
)
def test_users_are_held_out_whole_and_nothing_is_lost(
    chosen: set[tuple[int, int]], validation: float, test: float, history: float, by: Any, seed: int
) -> None:
    log = [(user, item, 1, user * item % 7) for user, item in chosen]
    data = tl.read(log)
    how: dict[str, Any] = {
        "validation": validation, "test": test, "history": history, "by": by, "seed": seed
    }  # fmt: skip
    counts = data.interactions_per_user()
    able = int((counts > 1).sum())
    asked = [size if isinstance(size, int) else round(size * able) for size in (validation, test)]
    if sum(asked) >= able:
        with pytest.raises(ParameterError, match="none of these is left to train on"):
            tl.splits.new_users(data, **how)
        return
    split = tl.splits.new_users(data, **how)
    train, parts = split.train, new_parts(split)
    users = [set(train.users), set(split.validation.history.users), set(split.test.history.users)]
    assert len(set().union(*users)) == sum(map(len, users)), "a user has one part"
    assert all(part.items == train.items for part in parts)
    assert train.popularity().all(), "no item is unknown"
    whole = [row for part in (train, *parts) for row in rows(part)]
    kept = set().union(*users)
    dropped = [row for row in rows(data) if row[0] not in kept or row[1] not in set(train.items)]
    assert Counter(whole) + Counter(dropped) == Counter(rows(data))
    for name, part, size, held in zip(
        ("validation", "test"), (split.validation, split.test), asked, users[1:], strict=True
    ):
        n, known = (each.interactions_per_user() for each in (part.history, part.targets))
        assert len(held) <= size
        assert ((n == np.clip(np.rint(history * (n + known)), 1, n + known - 1)) & (known >= 1)).all()
        if by != "random":
            for user in held:
                first, later = (
                    [row[3] for row in rows(each) if row[0] == user] for each in (part.history, part.targets)
                )
                assert max(first) <= min(later)
        assert split.info["dropped"][f"{name}_rows"] >= 0
    info = split.info["dropped"]
    assert sum(asked) == len(users[1]) + len(users[2]) + info["users"]
    assert info["validation_rows"] + info["test_rows"] == len(dropped)
    assert info["items"] == data.n_items - train.n_items
    assert split.info["users_never_tested"] == int((counts == 1).sum())
    shuffled = log.copy()
    random.Random(seed).shuffle(shuffled)
    assert everything(tl.splits.new_users(tl.read(shuffled), **how)) == everything(split)


def test_the_seed_decides_who_is_held_out_and_what_their_histories_are() -> None:
    one, other = (tl.splits.new_users(WORLD, seed=seed) for seed in (1, 2))
    assert set(one.test.history.users) != set(other.test.history.users)
    assert one.test.history.n_users == round(0.1 * (WORLD.interactions_per_user() > 1).sum())
    both = {tuple(rows(tl.splits.new_users(WORLD, test=150, validation=0, seed=s).test.history)) for s in (1, 2)}
    assert len(both) == 2


GOLDEN = [[(3, 1), (3, 2), (3, 7)], [(3, 4), (3, 5)], [(0, 1), (0, 2), (0, 7)], [(0, 4), (0, 5)]]


def test_a_split_is_the_same_on_every_machine() -> None:
    data = tl.read([(user, item) for user in range(6) for item in range(8) if (user + item) % 3])
    split = tl.splits.new_users(data, validation=1, test=1, history=0.6, seed=3)
    found = [rows(part) for part in new_parts(split)]
    assert [[row[:2] for row in part] for part in found] == GOLDEN


def test_users_whose_items_training_does_not_know_are_dropped_and_counted() -> None:
    log = [(user, item) for user in range(20) for item in range(4)]
    log += [(100 + user, 50 + 2 * user + item) for user in range(8) for item in range(2)]  # items of one user each
    log += [(200 + user, 1) for user in range(5)]
    split = tl.splits.new_users(tl.read(log), validation=8, test=8, seed=1)
    lost = 16 - split.validation.history.n_users - split.test.history.n_users
    assert 0 < lost == split.info["dropped"]["users"]
    assert split.info["dropped"]["items"] == 2 * lost
    assert split.info["dropped"]["validation_rows"] + split.info["dropped"]["test_rows"] == 2 * lost
    assert split.info["users_never_tested"] == 5
    assert set(range(200, 205)) <= set(split.train.users)
    with pytest.warns(DataWarning, match="the test part has no users"):
        tl.splits.new_users(tl.read(log[:8]), validation=0, test=0.1)


# --- what a dataset carries -----------------------------------------------------------------------

ROW = st.tuples(
    st.integers(0, 7), st.integers(0, 6), st.sampled_from(["buy", "buy", "view", "seen"]), st.integers(0, 9)
)


@pytest.mark.filterwarnings("ignore::truelike.errors.DataWarning")
@pytest.mark.parametrize("by", ["random", "time"])
@settings(max_examples=25)
@given(st.lists(ROW, min_size=30, max_size=90), st.integers(0, 9))
def test_no_part_leaks(by: Any, log: list[Any], seed: int) -> None:
    table = pl.DataFrame(log, schema=["user", "item", "event", "time"], orient="row")
    items, users = pl.DataFrame({"item": range(7), "size": 1}), pl.DataFrame({"user": range(8), "age": range(8)})
    try:
        data = tl.read(
            table,
            kind="event",
            kinds={"buy": 1, "view": 0.5, "seen": "shown"},
            target="buy",
            items=items,
            users=users,
        )
        split = tl.splits.new_users(data, validation=0.3, test=0.3, history=0.5, by=by, seed=seed)
    except (DataError, ParameterError):
        return  # too few rows
    train, parts = split.train, new_parts(split)
    for part in ("interactions", *data.kinds, *data.carries & {"shown"}):
        held = Counter(row for each in (train, *parts) for row in rows(each, part))
        known = set().union(*(each.users for each in (train, *parts)))
        assert held == Counter(row for row in rows(data, part) if row[0] in known), f"all of {part} is there"
        assert not {row[0] for row in rows(train, part)} & {user for each in parts for user in each.users}
        for new in (split.validation, split.test):
            found = {row[:2] for row in rows(new.targets)}
            assert not found & {row[:2] for row in rows(new.history, part)}, f"{part} of a target is in a history"
            if by == "time":
                cut: dict[Any, int] = {}
                for user, *_, time in rows(new.targets):
                    cut[user] = min(time, cut.get(user, time))
                later = {row[:2] for row in rows(new.history)}
                assert all(row[-1] < cut[row[0]] for row in rows(new.history, part) if row[:2] not in later)
    for each in (train, *parts):
        assert dict(rows(each, "user_features")) == {user: user for user in each.users}
        assert dict(rows(each, "item_features")) == dict.fromkeys(range(7), 1)


@pytest.mark.parametrize("ids", [int, str, lambda number: uuid.UUID(int=number)])
@pytest.mark.parametrize("validation", [0, 3])
def test_a_saved_split_comes_back_as_it_was(tmp_path: Path, ids: Any, validation: int) -> None:
    log = [
        {"user": ids(user), "item": ids(item), "event": event, "time": user * item}
        for user in range(12)
        for item, event in ((user, "buy"), (user + 1, "buy"), (3, "buy"), (4, "view"), (2, "seen"))
    ]
    people = pl.DataFrame(
        {"user": [str(ids(user)) for user in range(12)], "age": range(12), "likes": [["a"]] * 12}
    )
    things = pl.DataFrame({"item": [str(ids(item)) for item in range(9)], "title": [f"no. {n}" for n in range(9)],
                           "size": range(9)})  # fmt: skip
    if ids is int:
        people, things = (
            people.with_columns(pl.col("user").cast(int)),
            things.with_columns(pl.col("item").cast(int)),
        )
    kinds = {"buy": 1, "view": -0.5, "seen": "shown"}
    data = tl.read(log, kind="event", kinds=kinds, target="buy", users=people, items=things, name="shop")
    split = tl.splits.new_users(data, validation=validation, test=6, seed=2)
    split.save(tmp_path / "split")
    found = tl.NewUserSplit.load(tmp_path / "split")
    assert everything(found) == everything(split)
    assert (found.info, repr(found)) == (split.info, repr(split))
    assert found.train.titles is not None
    assert found.test.history.carries == {"times", "kinds", "shown", "item_features", "user_features"}
    tl.splits.new_users(WORLD).save(tmp_path / "split")
    assert everything(tl.NewUserSplit.load(tmp_path / "split")) == everything(tl.splits.new_users(WORLD))


def test_a_directory_that_is_damaged_or_of_others_is_an_error(tmp_path: Path) -> None:
    split, place = tl.splits.new_users(WORLD), tmp_path / "split"
    with pytest.raises(NotFoundError, match=r"there is no split in .*new_users.json is missing"):
        tl.NewUserSplit.load(place)
    split.save(place)
    with pytest.raises(DataError, match="there is no split"):
        tl.Split.load(place)
    (place / "groups.parquet").write_bytes((place / "users.parquet").read_bytes())
    with pytest.raises(StorageError, match=r"groups.parquet .*cannot belong to new_users.json"):
        tl.NewUserSplit.load(place)
    (place / "test-targets.parquet").unlink()
    with pytest.raises(StorageError, match=r"test-targets.parquet is missing"):
        tl.NewUserSplit.load(place)
    (place / "mine.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"other files, which would be lost: mine.txt"):
        split.save(place)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"test": 1.0}, "test is 1.0; a share is at least 0 and below 1"),
        ({"validation": 1.5}, "validation is 1.5; a share"),
        ({"test": -1}, "test is -1; expected a whole number, at least 0"),
        ({"test": True}, "test is True; expected a number"),
        ({"test": "half"}, "test is 'half'; expected a number"),
        ({"validation": 0.6, "test": 0.5}, "none of these is left to train on. Ask for fewer users"),
        ({"validation": 100, "test": 100}, "validation and test are 100 and 100 users, and"),
        ({"history": 0}, "history is 0; it must be above 0 and below 1"),
        ({"history": 1}, "history is 1; it must be above 0 and below 1"),
        ({"history": None}, "history is None; expected a number"),
        ({"by": "user"}, 'by is \'user\'; expected "time" or "random"'),
        ({"seed": 0.5}, "seed is 0.5; expected a whole number"),
    ],
)
def test_a_split_that_cannot_be_made_is_an_error(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        tl.splits.new_users(WORLD, **how)


def test_without_times_or_users_to_hold_out_there_is_an_error() -> None:
    with pytest.raises(DataError, match=r"new_users\(by='time'\) needs times"):
        tl.splits.new_users(WORLD, by="time")
    with pytest.raises(ParameterError, match="and 0 users have two or more interactions"):
        tl.splits.new_users(tl.read([(user, user) for user in range(9)]))
    split = tl.splits.new_users(WORLD)
    with pytest.raises(DataError, match=r"takes a Dataset, not NewUserSplit: pass split.train"):
        tl.splits.new_users(split)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"fit takes a Dataset, not NewUserSplit: pass split.train"):
        tl.ItemPop().fit(split)  # type: ignore[arg-type]
    model = tl.ItemPop().fit(split.train)
    for held_out in (split, split.test):
        with pytest.raises(
            DataError, match=r"^evaluate takes a Dataset, not NewUser.*: tl\.evaluate_new_users\(model, "
        ):
            tl.evaluate(model, held_out)  # type: ignore[arg-type]
    with pytest.raises(
        DataError, match=r"tune takes a Split, not NewUserSplit: tune on .*by_user\(split\.train\)"
    ):
        tl.tune(tl.ItemPop, split)  # type: ignore[arg-type]


def test_parts_that_do_not_belong_together_are_no_split() -> None:
    split = tl.splits.new_users(WORLD)
    with pytest.raises(DataError, match="users of test are in another part, too"):
        tl.NewUserSplit(split.train, split.test, split.test, {})
    with pytest.raises(DataError, match="the histories and targets of validation do not have the same users"):
        tl.NewUserSplit(split.train, tl.NewUsers([("zoe", 1)], [("zoe", 2)]), split.test, {})
    with pytest.raises(DataError, match="cannot read rows from NewUserSplit"):
        tl.NewUsers(split, split)
