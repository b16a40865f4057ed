from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.evaluation.breakdown import activity_quarters, by_popularity, popularity_thirds


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100, seed=2).dataset(), seed=0)


def test_each_third_has_a_third_of_the_interactions(split: Any) -> None:
    popularity = split.train.popularity()
    thirds = popularity_thirds(popularity)
    shares = np.bincount(thirds, weights=popularity) / popularity.sum()
    assert shares == pytest.approx([1 / 3] * 3, abs=popularity.max() / popularity.sum())
    assert popularity[thirds == 0].min() >= popularity[thirds == 1].max() >= popularity[thirds == 1].min()
    assert popularity[thirds == 1].min() >= popularity[thirds == 2].max()


def test_recall_by_popularity_is_that_of_the_dense_lists(split: Any) -> None:
    model = tl.ItemKNN().fit(split.train)
    found = by_popularity(model, split.test, 10)
    thirds = popularity_thirds(split.train.popularity())
    relevant = split.test.matrix.toarray() > 0
    users = np.flatnonzero(relevant.any(axis=1)).astype(np.int32)
    listed = np.zeros(relevant.shape, dtype=bool)
    listed[users[:, None], model.scorer.top_k(users, 10).items] = True
    interactions, hits = (np.bincount(thirds, pairs.sum(axis=0)) for pairs in (relevant, relevant & listed))
    assert found["interactions"] == interactions.tolist()
    assert found["recall"] == pytest.approx(hits / interactions)
    assert found["coverage"] == pytest.approx(listed.any(axis=0).mean())


def test_a_third_without_test_interactions_has_no_recall() -> None:
    train = tl.read([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("c", "x"), ("c", "z"), ("d", "x")])
    test = tl.read([("d", "y"), ("a", "x")])  # the second is in training: not relevant
    assert by_popularity(tl.ItemPop().fit(train), test, 1)["recall"].count(None) == 2


@pytest.mark.parametrize("interactions", [[3], [2, 2, 2, 2, 2], [1, 1, 1, 1, 9], list(range(1, 41))])
def test_quarters_are_in_order_and_keep_equally_active_users_together(interactions: list[int]) -> None:
    counts = np.array(interactions)
    names, quarter = activity_quarters(counts)
    assert quarter.max() + 1 == len(names) <= 4
    assert all(len(set(quarter[counts == n])) == 1 for n in counts)
    assert (np.diff(quarter[np.argsort(counts)]) >= 0).all()
    if len(interactions) == 40:
        assert np.bincount(quarter).tolist() == [10, 10, 10, 10]
