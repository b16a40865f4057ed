"""ItemPop counts users, and nothing else."""

from __future__ import annotations

import numpy as np

import truelike as tl

ROWS = [("ann", "tea"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea"), ("eve", "rum"), ("joe", "rum")]


def test_the_score_of_an_item_is_the_number_of_its_users() -> None:
    model = tl.ItemPop().fit(tl.read(ROWS))
    assert dict(zip(model.train_.items.values, model.popularity_, strict=True)) == {
        "milk": 1,
        "rum": 2,
        "tea": 3,
    }
    assert model.score("ann", ["tea", "rum", "milk"]).tolist() == [3.0, 2.0, 1.0]


def test_a_user_who_comes_back_for_the_same_item_counts_once() -> None:
    model = tl.ItemPop().fit(tl.read([*ROWS, *[("bob", "milk")] * 9]))
    assert model.recommend("joe", k=3)["item_id"].to_list() == ["tea", "milk"]
    assert model.recommend("ann", k=3)["item_id"].to_list() == ["rum", "milk"]


def test_everybody_gets_the_same_list_but_for_what_they_have() -> None:
    model = tl.ItemPop().fit(tl.read(ROWS))
    frame = model.recommend(["ann", "bob", "eve", "joe"], k=3, exclude_seen=False)
    assert frame["item_id"].to_list() == ["tea", "rum", "milk"] * 4


def test_items_as_popular_as_each_other_stand_in_the_order_of_their_ids() -> None:
    model = tl.ItemPop().fit(tl.read([(0, item) for item in "dcba"] + [(1, "d")]))
    assert model.recommend(1, k=3)["item_id"].to_list() == ["a", "b", "c"]


def test_whatever_a_strangers_history_and_whatever_the_item_the_answer_is_the_most_popular() -> None:
    model = tl.ItemPop().fit(tl.read(ROWS))
    assert model.recommend_from_items(["milk"], k=2)["item_id"].to_list() == ["tea", "rum"]
    assert model.similar_items(["milk", "tea"], k=1)["similar_item_id"].to_list() == ["tea", "rum"]


def test_an_item_without_a_vote_comes_last_with_a_score_of_zero() -> None:
    log = tl.read(ROWS)
    model = tl.ItemPop().fit(log.select(log.items.values.gather(log.matrix.indices).to_numpy() != "rum"))
    frame = model.recommend("joe", k=3)
    assert frame["item_id"].to_list() == ["tea", "milk", "rum"]
    assert np.array_equal(frame["score"], [3.0, 1.0, 0.0])
