"""One suite for every recommender: what a caller may rely on when asking a fitted model."""

from __future__ import annotations

import json
import uuid
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import truelike as tl
from truelike.errors import DataWarning, ParameterError, UnknownIdError

NOT_PERSONAL = {"ItemPop"}  # the same list for every user
BY_HISTORY = ("ItemPop", "ItemKNN", "EASE")  # no table of users: the history decides the list
# the other models refuse a user who interacted with every item: there is no negative to sample
WITHOUT_SAMPLING = ("ItemPop", "ItemKNN", "EASE", "IALS", "ExactNBPO")


def as_bytes(frame: pl.DataFrame) -> tuple[Any, ...]:
    return frame.drop("score").rows(), frame["score"].to_numpy().tobytes()


# --- lists ----------------------------------------------------------------------------------------


def test_the_checkerboard_is_completed(name: str, make: Any, checkerboard: Any) -> None:
    model = make().fit(tl.read(checkerboard))
    frame = model.recommend(k=1)
    first = dict(zip(frame["user_id"], frame["item_id"], strict=True))
    if name in NOT_PERSONAL:
        assert len(set(first.values())) < 8
        return
    assert first == {user: (user + 2) % 16 for user in range(16)}
    assert set(model.recommend_from_items([1, 3], k=6)["item_id"]) == {5, 7, 9, 11, 13, 15}
    assert set(model.similar_items(1, k=7)["similar_item_id"]) == {3, 5, 7, 9, 11, 13, 15}


def test_a_list_is_ordered_by_score_and_ranked_from_1(model: Any) -> None:
    frame = model.recommend([3, 1], k=7)
    assert frame.columns == ["user_id", "item_id", "score", "rank"]
    assert frame["user_id"].to_list() == [3] * 7 + [1] * 7
    assert frame["rank"].to_list() == [*range(1, 8)] * 2
    for user in (3, 1):
        own = frame.filter(pl.col("user_id") == user)
        assert own["score"].is_sorted(descending=True)
        assert own["item_id"].n_unique() == 7
        assert np.isfinite(own["score"].to_numpy()).all()


def test_equal_scores_are_ordered_by_popularity_and_then_by_a_fixed_draw(world: Any, model: Any) -> None:
    frame = model.recommend(k=40, exclude_seen=False)
    items = frame["item_id"].to_numpy()
    popularity, ties = pl.Series(world.popularity()[items]), pl.Series(model.scorer.ties[items])
    frame = frame.with_columns(popularity.alias("popularity"), ties.alias("ties"))
    ordered = frame.sort("user_id", pl.col("score").neg(), pl.col("popularity").neg(), "ties")
    assert frame.sort("user_id", "rank")["item_id"].to_list() == ordered["item_id"].to_list()


def test_seen_items_are_excluded_unless_asked_for(world: Any, model: Any) -> None:
    for user in range(0, 60, 7):
        assert set(model.recommend(user, k=40)["item_id"]) == set(range(40)) - set(world.seen(user))
        assert set(model.recommend(user, k=40, exclude_seen=False)["item_id"]) == set(range(40))


def test_candidates_and_exclude_restrict_every_method_that_returns_items(model: Any) -> None:
    everything = model.recommend(5, k=40)["item_id"].to_list()
    candidates, excluded = everything[::2], everything[:6]
    kept = [item for item in candidates if item not in excluded]
    assert model.recommend(5, k=40, candidates=candidates)["item_id"].to_list() == candidates
    assert model.recommend(5, k=40, exclude=excluded)["item_id"].to_list() == everything[6:]
    assert model.recommend(5, k=40, candidates=candidates, exclude=excluded)["item_id"].to_list() == kept
    assert model.recommend(5, k=40, candidates=everything[3])["item_id"].to_list() == [everything[3]]
    assert len(model.recommend(5, k=40, candidates=[])) == 0
    asked = [
        model.recommend_from_items([0, 1], k=40, candidates=candidates, exclude=excluded)["item_id"],
        model.similar_items(0, k=40, candidates=candidates, exclude=excluded)["similar_item_id"],
    ]
    if hasattr(model, "hidden_likes"):
        asked.append(model.hidden_likes(5, k=40, candidates=candidates, exclude=excluded)["item_id"])
    for items in asked:
        assert set(items) <= set(kept)
        assert len(items)


@pytest.mark.parametrize("name", WITHOUT_SAMPLING)
def test_fewer_items_come_back_if_fewer_are_left(make: Any) -> None:
    rows = [("all", item) for item in "abcd"] + [("some", "a"), ("some", "b"), ("one", "c")]
    model = make().fit(tl.read(rows))
    assert model.recommend(["all", "some", "one"], k=1_000)["user_id"].to_list() == ["some"] * 2 + ["one"] * 3
    empty = model.recommend("all")
    assert empty.height == 0
    assert empty.columns == ["user_id", "item_id", "score", "rank"]


def test_a_long_list_begins_with_the_short_one(model: Any) -> None:
    long = model.recommend([2, 4], k=20).filter(pl.col("rank") <= 5)
    assert as_bytes(model.recommend([2, 4], k=5)) == as_bytes(long)


# --- ids ------------------------------------------------------------------------------------------


def test_users_come_as_one_id_a_list_an_array_a_series_or_not_at_all(model: Any) -> None:
    one = model.recommend(9, k=3)
    assert as_bytes(one) == as_bytes(model.recommend([9], k=3)) == as_bytes(model.recommend(np.int64(9), k=3))
    assert as_bytes(model.recommend([9, 9], k=3)) == as_bytes(pl.concat([one, one]))
    assert model.recommend([]).schema == one.schema
    expected = as_bytes(model.recommend([1, 2], k=3))
    for users in ((1, 2), np.array([1, 2]), pl.Series([1, 2]), iter([1, 2]), ["1", "2"]):
        assert as_bytes(model.recommend(users, k=3)) == expected
    everybody = as_bytes(model.recommend(list(range(60)), k=2))
    assert as_bytes(model.recommend(k=2)) == everybody
    assert as_bytes(model.recommend(model.train_.users, k=2)) == everybody


def test_frames_come_back_in_the_library_of_the_question_or_of_the_training_data(
    make: Any, checkerboard: Any
) -> None:
    model = make().fit(tl.read(pd.DataFrame(checkerboard, columns=["user", "item"])))
    expected = model.recommend([0, 1], k=2)
    assert isinstance(expected, pd.DataFrame)
    for users, kind in (
        (pd.Series([0, 1]), pd.DataFrame),
        (pl.Series([0, 1]), pl.DataFrame),
        (pa.chunked_array([[0, 1]]), pa.Table),
    ):
        frame = model.recommend(users, k=2)
        assert isinstance(frame, kind)
        items = frame["item_id"].to_pylist() if kind is pa.Table else list(frame["item_id"])
        assert items == list(expected["item_id"])
    assert isinstance(model.similar_items(pl.Series([0])), pl.DataFrame)
    assert isinstance(model.recommend_from_items([0]), pd.DataFrame)


@pytest.mark.parametrize("kind", ["str", "int", "uuid"])
def test_ids_come_out_as_they_went_in(kind: str, make: Any, checkerboard: Any) -> None:
    as_id = {"str": str, "int": int, "uuid": lambda n: uuid.UUID(int=n)}[kind]
    data = tl.read([(as_id(user), as_id(100 + item)) for user, item in checkerboard])
    frame = make().fit(data).recommend([as_id(0), as_id(3)], k=2)
    assert frame["user_id"].to_list() == [as_id(0)] * 2 + [as_id(3)] * 2
    assert set(frame["item_id"]) <= {as_id(100 + item) for item in range(16)}


def test_an_unknown_user_is_an_error_popular_items_or_skipped(world: Any, model: Any) -> None:
    with pytest.raises(UnknownIdError, match=r"888.*60 users"):
        model.recommend([1, 888])
    assert model.recommend([1, 888], k=3, on_unknown="skip")["user_id"].to_list() == [1] * 3
    frame = model.recommend([1, 888], k=3, on_unknown="popular")
    assert frame["user_id"].to_list() == [1] * 3 + [888] * 3
    shares = world.popularity() / world.n_users
    best = np.lexsort((model.scorer.ties, -shares))[:3]
    new = frame.filter(pl.col("user_id") == 888)
    assert new["item_id"].to_list() == best.tolist()
    assert_allclose(new["score"], shares[best], rtol=1e-6)
    restricted = model.recommend("nobody", k=40, candidates=[4, 5, 6], exclude=[5], on_unknown="popular")
    assert set(restricted["item_id"]) == {4, 6}
    assert restricted["user_id"].to_list() == ["nobody"] * 2


def test_unknown_candidates_and_excluded_items_are_skipped_and_counted(model: Any) -> None:
    unseen = model.recommend(1, k=2)["item_id"].to_list()
    with pytest.warns(DataWarning, match="2 of 4 candidates are not in the training data"):
        frame = model.recommend(1, candidates=[*unseen, 999, "x-ray"])
    assert frame["item_id"].to_list() == unseen
    with pytest.warns(DataWarning, match="1 of 2 excluded items are not in the training data"):
        frame = model.recommend(1, k=40, exclude=[999, unseen[0]])
    assert frame.height == model.recommend(1, k=40).height - 1


def test_unknown_items_of_a_question_are_an_error_or_left_out(model: Any) -> None:
    for ask in (model.similar_items, model.recommend_from_items):
        with pytest.raises(UnknownIdError, match="999"):
            ask([3, 999])
    assert model.similar_items([3, 999], k=2, on_unknown="skip")["item_id"].to_list() == [3, 3]
    popular = model.similar_items([3, 999], k=2, on_unknown="popular")
    assert popular["item_id"].to_list() == [3, 3, 999, 999]
    known = model.recommend_from_items([3], k=4)
    assert as_bytes(model.recommend_from_items([3, 999], k=4, on_unknown="skip")) == as_bytes(known)


def test_a_wrong_question_is_an_error_that_says_what_is_right(model: Any) -> None:
    for k in (0, -3, 2.0, "5", True):
        with pytest.raises(ParameterError, match=r"k is .*; it must be a whole number, at least 1"):
            model.recommend(1, k=k)
    with pytest.raises(
        ParameterError, match=r'on_unknown is .none.; .* be "raise", "popular", "trending" or "skip"'
    ):
        model.recommend(1, on_unknown="none")
    with pytest.raises(ParameterError, match="n_jobs"):
        model.recommend(1, n_jobs=0)
    with pytest.raises(ParameterError, match=r"no titles.*set_titles"):
        model.recommend(1, titles=True)


def test_titles_come_along_when_asked_for(make: Any, checkerboard: Any) -> None:
    model = make().fit(tl.read(checkerboard)).set_titles({0: "zero", 2: "two"})
    frame = model.recommend(0, k=16, titles=True)
    titles = dict(zip(frame["item_id"], frame["title"], strict=True))
    assert titles[2] == "two"
    assert titles[5] == "5"
    assert "title" not in model.recommend(0).columns


# --- new users, similarity, scores ----------------------------------------------------------------


def test_a_history_gets_a_list_without_its_own_items(world: Any, model: Any) -> None:
    history = world.seen(8).to_list()
    frame = model.recommend_from_items(history, k=40)
    assert frame.columns == ["item_id", "score", "rank"]
    assert set(frame["item_id"]) == set(range(40)) - set(history)
    assert set(model.recommend_from_items(history, k=40, exclude_seen=False)["item_id"]) == set(range(40))
    assert as_bytes(model.recommend_from_items(history * 2, k=5)) == as_bytes(frame.head(5))


def test_many_histories_get_the_lists_that_each_gets_alone(world: Any, model: Any) -> None:
    histories = {"a": world.seen(8).to_list(), "b": [1, 2], "c": [3]}
    frame = model.recommend_from_items(histories, k=5)
    assert frame.columns == ["user_id", "item_id", "score", "rank"]
    for user, history in histories.items():
        alone = model.recommend_from_items(history, k=5)
        assert as_bytes(frame.filter(pl.col("user_id") == user).drop("user_id")) == as_bytes(alone)
    rows = tl.read([(user, item) for user, history in histories.items() for item in history])
    assert as_bytes(model.recommend_from_items(rows, k=5)) == as_bytes(frame)


@pytest.mark.parametrize("name", BY_HISTORY)
def test_the_history_of_a_training_user_gets_that_users_list(world: Any, model: Any) -> None:
    for user in range(0, 60, 11):
        own = model.recommend(user, k=15).drop("user_id")
        assert as_bytes(model.recommend_from_items(world.seen(user), k=15)) == as_bytes(own)


def test_a_history_without_a_known_item_gets_nothing_or_popular_items(world: Any, model: Any) -> None:
    assert len(model.recommend_from_items([999], on_unknown="skip")) == 0
    best = np.lexsort((model.scorer.ties, -world.popularity()))[:4]
    assert model.recommend_from_items([], k=4, on_unknown="popular")["item_id"].to_list() == best.tolist()
    frame = model.recommend_from_items({"a": [999], "b": [1]}, k=4, on_unknown="popular")
    assert frame.filter(pl.col("user_id") == "a")["item_id"].to_list() == best.tolist()


def test_an_item_is_not_similar_to_itself(name: str, model: Any) -> None:
    frame = model.similar_items(list(range(40)), k=40)
    assert frame.columns == ["item_id", "similar_item_id", "score", "rank"]
    assert (frame["item_id"] != frame["similar_item_id"]).all()
    if name != "ItemKNN":  # lists only items that share a user, see test_item_knn.py
        assert frame.group_by("item_id").len()["len"].to_list() == [39] * 40
    assert frame.select(pl.col("score").diff().over("item_id")).to_series().fill_null(0).max() <= 0


def test_a_score_is_the_score_of_the_list_bit_by_bit(model: Any) -> None:
    frame = model.recommend(k=40, exclude_seen=False)
    scores = model.score(frame["user_id"], frame["item_id"])
    assert scores.dtype == np.float32
    assert scores.tobytes() == frame["score"].to_numpy().tobytes()


def test_one_user_or_one_item_is_paired_with_all_of_the_other(model: Any) -> None:
    assert_array_equal(model.score(3, [5, 6, 7]), model.score([3, 3, 3], [5, 6, 7]))
    assert_array_equal(model.score([1, 2], 5), model.score([1, 2], [5, 5]))
    with pytest.raises(ParameterError, match="3 users and 2 items"):
        model.score([1, 2, 3], [4, 5])
    with pytest.raises(UnknownIdError, match="999"):
        model.score(1, 999)


def test_vectors_give_the_scores_by_dot_products(model: Any) -> None:
    if not hasattr(model, "item_vectors"):
        assert model.scorer.vectors is None
        return
    users, items = model.user_vectors(), model.item_vectors()
    scores = np.array(users["vector"].to_list()) @ np.array(items["vector"].to_list()).T
    if "bias" in items.columns:
        scores += items["bias"].to_numpy()
    assert_array_equal(users["user_id"], model.train_.users.values)
    expected = model.score(np.repeat(np.arange(60), 40), np.tile(np.arange(40), 60)).reshape(60, 40)
    assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", ["dot", "cosine"])
def test_exported_vectors_rank_as_the_model(model: Any, tmp_path: Any, metric: Any) -> None:
    if not hasattr(model, "item_vectors"):
        assert not hasattr(model, "export_vectors")
        return
    model.export_vectors(tmp_path / "items.parquet", metric=metric)
    model.export_vectors(tmp_path / "users.parquet", what="users", metric=metric)
    items, users = (pl.read_parquet(tmp_path / f"{what}.parquet") for what in ("items", "users"))
    assert items.columns == ["item_id", "vector"]
    assert users.columns == ["user_id", "vector"]
    assert items.schema["vector"] == users.schema["vector"] == pl.Array(pl.Float32, items["vector"].dtype.shape)
    V, U = items["vector"].to_numpy().astype(np.float64), users["vector"].to_numpy().astype(np.float64)
    scores = model.score(np.repeat(np.arange(60), 40), np.tile(np.arange(40), 60)).reshape(60, 40)
    products = U @ V.T
    if metric == "cosine":
        assert_allclose(np.linalg.norm(V, axis=1), 1, atol=1e-6)
        assert_allclose(np.linalg.norm(U, axis=1), 1, atol=1e-6)
        about = json.loads(pl.read_parquet_metadata(tmp_path / "items.parquet")["truelike"])
        plain = np.column_stack([np.stack(model.user_vectors()["vector"].to_numpy()), np.full(60, about["bias"])])
        products *= about["length"] * np.linalg.norm(plain, axis=1)[:, None]
    assert_allclose(products, scores, rtol=1e-4, atol=1e-4)
    best = np.sort(products, axis=1)[:, ::-1][:, :10]
    found = model.recommend(k=10, exclude_seen=False)["score"].to_numpy().reshape(60, 10)
    assert_allclose(best, found, rtol=1e-4, atol=1e-4)


def test_a_list_depends_neither_on_threads_nor_on_who_else_is_asked(model: Any) -> None:
    everybody, similar = model.recommend(k=9), model.similar_items(list(range(40)), k=9)
    for n_jobs in (1, 2, 3, None):
        assert model.recommend(k=9, n_jobs=n_jobs).equals(everybody)
        assert model.similar_items(list(range(40)), k=9, n_jobs=n_jobs).equals(similar)
    for item in range(7):
        assert as_bytes(similar.filter(pl.col("item_id") == item)) == as_bytes(model.similar_items(item, k=9))
    for users in ([17], [58, 3, 17]):
        alone = model.recommend(users, k=9)
        for user in users:
            assert alone.filter(pl.col("user_id") == user).equals(everybody.filter(pl.col("user_id") == user))
