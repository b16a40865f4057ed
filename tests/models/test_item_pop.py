"""ItemPop ranks items by their number of users."""

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


def test_new_users_and_similar_items_get_the_most_popular_items() -> None:
    model = tl.ItemPop().fit(tl.read(ROWS))
    assert model.recommend_from_items(["milk"], k=2)["item_id"].to_list() == ["tea", "rum"]
    assert model.similar_items(["milk", "tea"], k=1)["similar_item_id"].to_list() == ["tea", "rum"]


def test_an_item_without_interactions_comes_last_with_score_0() -> None:
    data = tl.read(ROWS)
    model = tl.ItemPop().fit(data.select(data.items.values.gather(data.matrix.indices).to_numpy() != "rum"))
    frame = model.recommend("joe", k=3)
    assert frame["item_id"].to_list() == ["tea", "milk", "rum"]
    assert np.array_equal(frame["score"], [3.0, 1.0, 0.0])
