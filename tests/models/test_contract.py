"""One suite for every recommender: whatever the model, this is what a caller may rely on."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

import truelike as tl
from truelike.errors import ParameterError, UnknownIdError

NOT_PERSONAL = {"ItemPop"}  # the same list for everybody, by definition
BY_HISTORY = {"ItemPop", "ItemKNN", "EASE", "EDLAE"}  # no table of users: a history says all about its owner


def as_bytes(frame: pl.DataFrame) -> tuple[Any, ...]:
    return (
        frame.drop("score").rows(),
        frame["score"].to_numpy().tobytes(),
    )


# --- what is recommended --------------------------------------------------------------------------


def test_on_the_checkerboard_the_missing_item_of_ones_own_colour_comes_first(
    name: str, make: Any, checkerboard: Any
) -> None:
    n = 16
    frame = make().fit(tl.read(checkerboard)).recommend(list(range(n)), k=1)
    firsts = dict(zip(frame["user_id"], frame["item_id"], strict=True))
    if name in NOT_PERSONAL:
        assert len(set(firsts.values())) < n / 2
    else:
        assert firsts == {user: (user + 2) % n for user in range(n)}


def test_a_list_has_four_columns_goes_from_best_to_worst_and_counts_from_1(world: Any, make: Any) -> None:
    frame = make().fit(world).recommend([3, 1], k=7)
    assert frame.columns == ["user_id", "item_id", "score", "rank"]
    assert frame["user_id"].to_list() == [3] * 7 + [1] * 7
    assert frame["rank"].to_list() == [*range(1, 8)] * 2
    for user in (3, 1):
        mine = frame.filter(pl.col("user_id") == user)
        assert mine["score"].is_sorted(descending=True)
        assert mine["item_id"].n_unique() == 7
        assert np.isfinite(mine["score"].to_numpy()).all()


def test_equal_scores_stand_in_the_order_of_the_ids(name: str, world: Any, make: Any) -> None:
    frame = make().fit(world).recommend(list(range(60)), k=40, exclude_seen=False)
    votes = world.popularity() if name == "ItemKNN" else np.zeros(40)  # ItemKNN: the more popular one first
    frame = frame.with_columns(pl.Series("votes", votes[frame["item_id"].to_numpy()]))
    ordered = frame.sort("user_id", pl.col("score").neg(), pl.col("votes").neg(), "item_id")
    assert frame.sort("user_id", "rank")["item_id"].to_list() == ordered["item_id"].to_list()


def test_what_was_seen_is_left_out_unless_asked_for(world: Any, make: Any) -> None:
    model = make().fit(world)
    for user in range(0, 60, 7):
        seen = set(world.seen(user))
        unseen = set(model.recommend(user, k=40)["item_id"])
        everything = set(model.recommend(user, k=40, exclude_seen=False)["item_id"])
        assert unseen == set(range(40)) - seen
        assert everything == set(range(40))


def test_only_the_items_asked_for_and_never_the_excluded_ones(world: Any, make: Any) -> None:
    model = make().fit(world)
    whole = model.recommend(5, k=40)["item_id"].to_list()
    among, excluded = whole[::2], whole[:6]
    kept = [item for item in whole if item in among and item not in excluded]
    assert model.recommend(5, k=40, items=among)["item_id"].to_list() == among
    assert model.recommend(5, k=40, exclude=excluded)["item_id"].to_list() == whole[6:]
    assert model.recommend(5, k=40, items=among, exclude=excluded)["item_id"].to_list() == kept
    assert model.recommend(5, k=40, items=whole[3])["item_id"].to_list() == [whole[3]]
    assert len(model.recommend(5, k=40, items=[])) == 0


def test_fewer_come_back_where_fewer_are_left_and_none_for_who_has_seen_all(name: str, make: Any) -> None:
    if not getattr(make(), "exact", True):
        pytest.skip(f"{name} draws negatives, and refuses a user who has none; see test_factorization.py")
    rows = [("all", item) for item in "abcd"] + [("some", "a"), ("some", "b"), ("one", "c")]
    model = make().fit(tl.read(rows))
    frame = model.recommend(["all", "some", "one"], k=1_000)
    assert frame["user_id"].to_list() == ["some"] * 2 + ["one"] * 3
    empty = model.recommend("all")
    assert len(empty) == 0
    assert empty.columns == ["user_id", "item_id", "score", "rank"]


def test_a_long_list_begins_with_the_short_one(world: Any, make: Any) -> None:
    model = make().fit(world)
    long = model.recommend([2, 4], k=20).filter(pl.col("rank") <= 5)
    assert as_bytes(model.recommend([2, 4], k=5)) == as_bytes(long)


# --- whom and what one may ask for ----------------------------------------------------------------


def test_one_user_may_come_without_a_list_and_twice_in_one(world: Any, make: Any) -> None:
    model = make().fit(world)
    one = model.recommend(9, k=3)
    assert as_bytes(one) == as_bytes(model.recommend([9], k=3)) == as_bytes(model.recommend(np.int64(9), k=3))
    assert as_bytes(model.recommend([9, 9], k=3)) == as_bytes(pl.concat([one, one]))


def test_nobody_gets_an_empty_frame_with_the_same_columns(world: Any, make: Any) -> None:
    model = make().fit(world)
    assert model.recommend([]).schema == model.recommend([1]).schema


def test_users_come_as_a_list_an_array_or_a_series(world: Any, make: Any) -> None:
    model = make().fit(world)
    expected = as_bytes(model.recommend([1, 2], k=3))
    for users in ((1, 2), np.array([1, 2]), pl.Series([1, 2]), iter([1, 2]), ["1", "2"]):
        assert as_bytes(model.recommend(users, k=3)) == expected


def test_frames_come_back_in_the_library_that_was_asked_in_or_trained_from(make: Any, checkerboard: Any) -> None:
    rows = checkerboard
    trained = make().fit(tl.read(pd.DataFrame(rows, columns=["user", "item"])))
    expected = trained.recommend([0, 1], k=2)
    assert isinstance(expected, pd.DataFrame)
    for users, kind in (
        (pd.Series([0, 1]), pd.DataFrame),
        (pl.Series([0, 1]), pl.DataFrame),
        (pa.chunked_array([[0, 1]]), pa.Table),
    ):
        frame = trained.recommend(users, k=2)
        assert isinstance(frame, kind)
        items = frame["item_id"].to_pylist() if kind is pa.Table else list(frame["item_id"])
        assert items == list(expected["item_id"])
    assert isinstance(trained.similar_items(pl.Series([0])), pl.DataFrame)
    assert isinstance(trained.recommend_from_items([0]), pd.DataFrame)


@pytest.mark.parametrize("kind", [str, int, lambda n: uuid.UUID(int=n + 7)], ids=["str", "int", "uuid"])
def test_ids_come_out_as_they_went_in(kind: Any, tmp_path: Path, make: Any, checkerboard: Any) -> None:
    rows = [(kind(user), kind(100 + item)) for user, item in checkerboard]
    model = make().fit(tl.read(rows))
    model.save(tmp_path / "model")
    items = {item for _, item in rows}
    for asked in (model, tl.load(tmp_path / "model")):
        frame = asked.recommend([kind(4), kind(11)], k=3)
        assert frame["user_id"].to_list() == [kind(4)] * 3 + [kind(11)] * 3
        assert set(frame["item_id"].to_list()) <= items
        assert asked.score(kind(4), frame["item_id"].to_list()[:3]).tolist() == frame["score"].to_list()[:3]
        near = asked.similar_items(kind(100), k=2)
        assert near["item_id"].to_list() == [kind(100)] * 2
        assert set(near["similar_item_id"].to_list()) <= items


def test_an_unknown_user_is_an_error_that_names_it(world: Any, make: Any) -> None:
    model = make().fit(world)
    with pytest.raises(UnknownIdError, match=r"777.*60 users.*on_unknown"):
        model.recommend([1, 777])


def test_unknown_users_are_skipped_or_get_the_most_popular(world: Any, make: Any) -> None:
    model = make().fit(world)
    known = as_bytes(model.recommend([1, 2], k=3))
    assert as_bytes(model.recommend([777, 1, 888, 2], k=3, on_unknown="skip")) == known
    frame = model.recommend([777, 1, 888, 2], k=3, on_unknown="popular")
    assert frame["user_id"].to_list() == [777] * 3 + [1] * 3 + [888] * 3 + [2] * 3
    assert as_bytes(frame.filter(pl.col("user_id").is_in([1, 2]))) == known
    shares = world.popularity() / world.n_users
    best = np.argsort(-shares, kind="stable")[:3]
    stranger = frame.filter(pl.col("user_id") == 888)
    assert stranger["item_id"].to_list() == best.tolist()
    assert stranger["score"].to_numpy() == pytest.approx(shares[best])


def test_strangers_too_get_only_what_is_allowed(world: Any, make: Any) -> None:
    model = make().fit(world)
    frame = model.recommend("nobody", k=40, items=[4, 5, 6], exclude=[5], on_unknown="popular")
    assert set(frame["item_id"]) == {4, 6}
    assert frame["user_id"].to_list() == ["nobody"] * 2


def test_unknown_items_are_an_error_or_left_out(world: Any, make: Any) -> None:
    model = make().fit(world)
    unseen = model.recommend(1, k=2)["item_id"].to_list()
    with pytest.raises(UnknownIdError, match=r"999.*40 items"):
        model.recommend(1, items=[*unseen, 999])
    assert model.recommend(1, items=[*unseen, 999], on_unknown="skip")["item_id"].to_list() == unseen
    assert 999 not in model.recommend(1, k=40, exclude=[999])["item_id"].to_list()
    for ask in (model.similar_items, model.recommend_from_items):
        with pytest.raises(UnknownIdError, match="999"):
            ask([3, 999])
    near = model.similar_items([3, 999], k=2, on_unknown="skip")
    assert near["item_id"].to_list() == [3, 3]
    popular = model.similar_items([3, 999], k=2, on_unknown="popular")
    assert popular["item_id"].to_list() == [3, 3, 999, 999]
    assert as_bytes(model.recommend_from_items([3, 999], k=4, on_unknown="skip")) == as_bytes(
        model.recommend_from_items([3], k=4)
    )


def test_a_wrong_question_is_an_error_that_says_what_is_right(world: Any, make: Any) -> None:
    model = make().fit(world)
    for k in (0, -3, 2.0, "5", True):
        with pytest.raises(ParameterError, match=r"k is .*whole number from 1 up"):
            model.recommend(1, k=k)
    with pytest.raises(ParameterError, match=r'on_unknown is .none.; it is "raise", "popular" or "skip"'):
        model.recommend(1, on_unknown="none")
    with pytest.raises(ParameterError, match="n_jobs"):
        model.recommend(1, n_jobs=0)


def test_titles_come_along_when_asked_for(make: Any, checkerboard: Any) -> None:
    log = tl.read(checkerboard).with_titles({0: "zero", 2: "two"})
    model = make().fit(log)
    frame = model.recommend(0, k=16, titles=True)
    titles = dict(zip(frame["item_id"], frame["title"], strict=True))
    assert titles[2] == "two"
    assert titles[5] == "5"
    assert "title" not in model.recommend(0).columns


# --- strangers, likeness, scores ------------------------------------------------------------------


def test_a_history_gets_a_list_without_what_is_in_it(world: Any, make: Any) -> None:
    model = make().fit(world)
    history = world.seen(8).to_list()
    frame = model.recommend_from_items(history, k=40)
    assert frame.columns == ["item_id", "score", "rank"]
    assert set(frame["item_id"]) == set(range(40)) - set(history)
    assert set(model.recommend_from_items(history, k=40, exclude_seen=False)["item_id"]) == set(range(40))
    assert model.recommend_from_items(history, k=40, among=[1, 2, 3], exclude_seen=False).height == 3
    assert as_bytes(model.recommend_from_items(history * 2, k=5)) == as_bytes(frame.head(5))


def test_a_training_users_history_gets_that_users_list(name: str, world: Any, make: Any) -> None:
    if name not in BY_HISTORY:
        pytest.skip(f"{name} has factors of its own for each user")
    model = make().fit(world)
    for user in range(0, 60, 11):
        mine = model.recommend(user, k=15).drop("user_id")
        assert as_bytes(model.recommend_from_items(world.seen(user), k=15)) == as_bytes(mine)


def test_on_the_checkerboard_a_strangers_colour_is_seen(name: str, make: Any, checkerboard: Any) -> None:
    if name in NOT_PERSONAL:
        pytest.skip(f"{name} knows nothing of colours")
    model = make().fit(tl.read(checkerboard))
    assert set(model.recommend_from_items([1, 3], k=6)["item_id"]) == {5, 7, 9, 11, 13, 15}
    assert set(model.similar_items(1, k=7)["similar_item_id"]) == {3, 5, 7, 9, 11, 13, 15}


def test_a_history_without_a_known_item_gets_nothing_or_the_most_popular(world: Any, make: Any) -> None:
    model = make().fit(world)
    assert len(model.recommend_from_items([999], on_unknown="skip")) == 0
    best = np.argsort(-world.popularity(), kind="stable")[:4]
    assert model.recommend_from_items([], k=4, on_unknown="popular")["item_id"].to_list() == best.tolist()


def test_an_item_is_never_among_those_like_it(name: str, world: Any, make: Any) -> None:
    frame = make().fit(world).similar_items(list(range(40)), k=40)
    assert frame.columns == ["item_id", "similar_item_id", "score", "rank"]
    assert (frame["item_id"] != frame["similar_item_id"]).all()
    if name != "ItemKNN":  # which lists only items that share a user, see test_item_knn.py
        assert frame.group_by("item_id").len()["len"].to_list() == [39] * 40
    assert frame.select(pl.col("score").diff().over("item_id")).to_series().fill_null(0).max() <= 0


def test_a_score_is_what_the_list_shows_bit_by_bit(world: Any, make: Any) -> None:
    model = make().fit(world)
    frame = model.recommend(list(range(60)), k=40, exclude_seen=False)
    scores = model.score(frame["user_id"], frame["item_id"])
    assert scores.dtype == np.float32
    assert scores.tobytes() == frame["score"].to_numpy().tobytes()


def test_one_user_or_one_item_goes_with_all_of_the_other(world: Any, make: Any) -> None:
    model = make().fit(world)
    assert_array_equal(model.score(3, [5, 6, 7]), model.score([3, 3, 3], [5, 6, 7]))
    assert_array_equal(model.score([1, 2], 5), model.score([1, 2], [5, 5]))
    assert model.score(1, 5).shape == (1,)
    with pytest.raises(ParameterError, match="3 users and 2 items"):
        model.score([1, 2, 3], [4, 5])
    with pytest.raises(UnknownIdError, match="999"):
        model.score(1, 999)
