"""What the suite of RecTools checks, on truelike.

Tables of precision, recall, F-beta, hit rate, MAP, NDCG and MRR by hand, with ranks that are not 1, 2, 3 and
repeated rows; that `filter_viewed`, `items_to_recommend` and item to item lists are right for each model; that a
second fit is a new start, and a dumped model the same; and splits: random, last n, by time.

Where truelike differs, and why:

- NDCG of RecTools is divided by k hits at the top; ours, and its `divide_by_achievable=True`, by as many hits as
  the user can have. With few relevant items its default can not reach 1.
- `MAP(k)` is ours; `MAP(k, divide_by_k=True)` is not. `Precision(k, r_precision=True)` divides by min(k, relevant
  items).
- Repeated rows: its metrics count a row twice (an AP of 3.5 / 3). A Dataset merges rows of the same pair.
- A rank is what was given there. Here a list has ranks 1, 2, 3, and a shorter one ends in misses.
- `EASEModel` multiplies by weights; ours counts a pair once. `recommend` for unknown users is an error in both.
- Its random split may leave users without training rows in the test part; ours drops and counts them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import truelike as tl
from truelike.errors import UnknownIdError

# user: items of the list in order, relevant items
LISTS = {
    1: ([3, 9, 8], [1, 2]),  # no hit
    3: ([1, 10, 2, 11, 3], [1, 2, 3, 4, 5, 6]),
    4: ([1], [1]),
    5: ([1, 2, 3], [1, 2, 3]),
    6: ([7], [1]),
    7: ([8, 1], [1]),
}
EXPECTED = {
    1: {
        "map": [0, 1 / 6, 1, 1 / 3, 0, 0],
        "ndcg": [0, 1, 1, 1, 0, 0],
        "mrr": [0, 1, 1, 1, 0, 0],
        "precision": [0, 1, 1, 1, 0, 0],
        "recall": [0, 1 / 6, 1, 1 / 3, 0, 0],
        "f1": [0, 2 / 7, 1, 1 / 2, 0, 0],
        "hit_rate": [0, 1, 1, 1, 0, 0],
    },
    3: {
        "map": [0, (1 + 2 / 3) / 6, 1, 1, 0, 1 / 2],
        "ndcg": [0, (1 + 1 / 2) / (1.5 + 1 / np.log2(3)), 1, 1, 0, 1 / np.log2(3)],
        "mrr": [0, 1, 1, 1, 0, 1 / 2],
        "precision": [0, 2 / 3, 1 / 3, 1, 0, 1 / 3],
        "recall": [0, 1 / 3, 1, 1, 0, 1],
        "f1": [0, 4 / 9, 1 / 2, 1, 0, 1 / 2],
        "hit_rate": [0, 1, 1, 1, 0, 1],
    },
}


@pytest.mark.parametrize("k", EXPECTED)
def test_metrics_by_hand(k: int, measure: Any) -> None:
    lists, relevant = zip(*LISTS.values(), strict=True)
    ours = measure(lists, relevant, k)
    for metric, expected in EXPECTED[k].items():
        assert_allclose(ours[f"{metric}@{k}"], expected, atol=1e-12, err_msg=metric)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("k", [1, 3, 5, 8])
def test_its_metrics_follow_from_ours(k: int, measure: Any, trials: Any) -> None:
    lists, relevant, _ = trials
    ours = measure(lists, relevant, k)
    expected = {
        "MAP": ours[f"map@{k}"],
        "MAP, divide_by_k": ours[f"map_of_k@{k}"],
        "NDCG": ours[f"ndcg_of_k@{k}"],
        "NDCG, divide_by_achievable": ours[f"ndcg@{k}"],
        "MRR": ours[f"mrr@{k}"],
        "Precision": ours[f"precision@{k}"],
        "Precision, r_precision": ours[f"precision@{k}"] * k / ours[f"possible@{k}"],
        "Recall": ours[f"recall@{k}"],
        "F1Beta": ours[f"f1@{k}"],
        "HitRate": ours[f"hit_rate@{k}"],
    }
    assert expected["NDCG"].max() <= 1
    assert (expected["NDCG"] <= ours[f"ndcg@{k}"] + 1e-12).all()
    peer, pandas = pytest.importorskip("rectools.metrics"), pytest.importorskip("pandas")
    rows = [(user, item, rank) for user, listed in enumerate(lists) for rank, item in enumerate(listed, 1)]
    listed = pandas.DataFrame(rows, columns=["user_id", "item_id", "rank"])
    liked = pandas.DataFrame(
        [(user, item) for user, items in enumerate(relevant) for item in items], columns=["user_id", "item_id"]
    )
    for name, values in expected.items():
        metric, *options = name.split(", ")
        theirs = getattr(peer, metric)(k=k, **dict.fromkeys(options, True)).calc_per_user(listed, liked)
        assert_allclose(theirs.sort_index().to_numpy(), values, atol=1e-9, err_msg=name)


ROWS = [
    (10, 11), (10, 12), (10, 14), (20, 11), (20, 12), (20, 13), (30, 11), (30, 12), (30, 14), (30, 15),
    (40, 11), (40, 15), (40, 17), (50, 16), (50, 17), (60, 12), (60, 13),
]  # fmt: skip


def dense(model: Any) -> Any:
    """B of EASE in float64, by its definition."""
    X = model.train_.csr.toarray().astype(np.float64)
    P = np.linalg.inv(X.T @ X + model.regularization * np.eye(X.shape[1]))
    B = -P / np.diag(P)
    np.fill_diagonal(B, 0)
    return X, B


@pytest.mark.parametrize("regularization", [1.0, 500.0])
def test_lists_of_ease_with_and_without_seen_items_and_among_some(regularization: float, tmp_path: Path) -> None:
    model = tl.EASE(regularization=regularization).fit(tl.read(ROWS))
    X, B = dense(model)
    assert_allclose(model.weights_, B, atol=1e-6)
    items, users = np.array([11, 12, 13, 14, 15, 16, 17]), [10, 20, 30, 40, 50, 60]
    for seen in (False, True):
        for among in (items, np.array([11, 15, 17])):
            found = model.recommend(users, k=2, exclude_seen=not seen, candidates=among.tolist())
            for row, user in enumerate(users):
                scores = np.where(np.isin(items, among) & ~((X[row] > 0) & ~seen), X[row] @ B, -np.inf)
                expected = np.sort(scores[scores > -np.inf])[::-1][:2]
                one = found.filter(found["user_id"] == user)
                assert_allclose(one["score"].to_numpy(), expected, atol=1e-6)
                assert set(one["item_id"]) <= set(among)
                assert one["rank"].to_list() == [1, 2][: len(expected)]
    near = model.similar_items([11, 12], k=2, candidates=[11, 13, 14])
    assert near["item_id"].to_list() == [11, 11, 12, 12]
    assert all(item != other for item, other in near.select("item_id", "similar_item_id").rows())
    with pytest.raises(UnknownIdError):
        model.recommend([10, 70])
    lists = model.recommend(k=3)
    model.save(tmp_path / "model")
    assert tl.load(tmp_path / "model").recommend(k=3).equals(lists)
    assert tl.clone(model).fit(tl.read(ROWS)).recommend(k=3).equals(lists)
    assert model.fit(tl.read(ROWS)).recommend(k=3).equals(lists)  # a second fit is a new start


@pytest.mark.parametrize("by", ["random", "time"])
def test_leaving_one_out_takes_one_row_of_each_user_and_no_other(by: Any) -> None:
    rows = [(user, item, 1, (item * 7 + user * 5) % 31) for user in range(30) for item in range(user % 3, 9, 2)]
    data = tl.read(rows)
    split = tl.splits.leave_one_out(data, by=by)
    for part in (split.validation, split.test):
        assert (part.interactions_per_user() == 1).all()
    assert split.train.n_interactions + 60 == data.n_interactions
    if by == "time":
        last = {user: max((time, item) for one, item, _, time in rows if one == user)[1] for user in range(30)}
        assert dict(split.test.to_frame().select("user_id", "item_id").rows()) == last


def test_repeated_rows_are_one_pair(measure: Any) -> None:
    data = tl.read([(1, 1), (1, 2), (1, 1), (2, 1), (2, 2), (2, 3)])
    assert data.n_interactions == 5
    assert data.has_weights
    ours = measure([[1, 2, 3]], [[1, 2, 1]], 3)
    assert ours["map@3"].tolist() == ours["recall@3"].tolist() == [1.0]
