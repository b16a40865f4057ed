"""A model of several kinds of feedback counts each with its weight, and lists leave out the target alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose

import truelike as tl
from truelike.errors import DataError, DataWarning, ParameterError

USERS, ITEMS = 60, 40
QUICK = "IALS:factors=8:regularization=0.02:unobserved_weight=0.2"


def log_of(seed: int = 0) -> pl.DataFrame:
    """Users buy, put into the cart, and dislike items of four tastes; carts are repeated."""
    rng = np.random.default_rng(seed)
    same = np.arange(USERS)[:, None] % 4 == np.arange(ITEMS)[None, :] % 4
    chances = {"buy": (0.3, 0.04), "cart": (0.4, 0.05), "dislike": (0.02, 0.2)}
    rows = []
    for event, (near, far) in chances.items():
        for user, item in np.argwhere(rng.random((USERS, ITEMS)) < np.where(same, near, far)):
            rows += [(int(user), int(item), event)] * (1 + 2 * (event == "cart" and (user + item) % 3 == 0))
    return pl.DataFrame(rows, schema=["user", "item", "event"], orient="row")


@pytest.fixture(scope="module")
def data() -> Any:
    return tl.read(log_of(), kind="event", kinds={"buy": 1, "cart": 0.5, "dislike": -1}, target="buy")


def ones(csr: Any) -> Any:
    return (csr.toarray() != 0).astype(float)


def test_the_model_is_trained_on_the_sum_of_the_weights(data: Any) -> None:
    model = tl.WeightedKinds(model=QUICK, weights={"cart": 0.3}).fit(data, progress=False)
    carts = np.log1p(data.kinds["cart"].csr.toarray())
    expected = ones(data.csr) + 0.3 * carts / carts[carts > 0].mean()
    assert_allclose(model.model_.train_.matrix.toarray(), expected, rtol=1e-6)
    alone = tl.IALS(factors=8, regularization=0.02, unobserved_weight=0.2, weighting="linear")
    alone.fit(model.model_.train_, progress=False)
    users = np.arange(USERS, dtype=np.int32)
    assert model.scorer.score_users(users).tobytes() == alone.scorer.score_users(users).tobytes()


def test_the_weighting_that_is_given_counts_repeated_interactions() -> None:
    rows = [(u, (u + n) % 9, "buy") for u in range(30) for n in range(4) for _ in range(1 + n)]
    rows += [(u, (u + 5) % 9, "cart") for u in range(30)]
    log = pl.DataFrame(rows, schema=["user", "item", "event"], orient="row")
    data = tl.read(log, kind="event", kinds={"buy": 1, "cart": 1}, target="buy")
    model = tl.WeightedKinds(model=QUICK + ":weighting=log", weights={"cart": 2.0}).fit(data, progress=False)
    counts = np.log1p(data.csr.toarray())
    expected = counts / counts[counts > 0].mean() + 2.0 * ones(data.kinds["cart"].csr)
    assert_allclose(model.model_.train_.matrix.toarray(), expected, rtol=1e-6)


def test_a_negative_kind_is_taken_from_scores_that_are_sums_over_items(data: Any) -> None:
    model = tl.WeightedKinds(model="ItemKNN:neighbors=20", weights={"dislike": -0.4}).fit(data, progress=False)
    alone = tl.ItemKNN(neighbors=20).fit(data.with_parts(kinds={}))
    similarity = alone.similarity_.toarray().T
    expected = (ones(data.csr) - 0.4 * ones(data.kinds["dislike"].csr)) @ similarity
    assert_allclose(model.scorer.score_users(np.arange(USERS, dtype=np.int32)), expected, atol=1e-5)
    assert model.scorer.vectors is None


def test_a_negative_kind_moves_the_vectors_of_its_users_alone(data: Any) -> None:
    model = tl.WeightedKinds(model=QUICK, weights={"dislike": -0.4}).fit(data, progress=False)
    before, after = model.model_.scorer.vectors, model.scorer.vectors
    dislikes = ones(data.kinds["dislike"].csr)

    def sums(pairs: Any) -> Any:
        return pairs @ before.items / np.sqrt(np.maximum(pairs.sum(axis=1), 1))[:, None]

    known = sums(ones(data.csr))
    square = known.T @ known
    matrix = np.linalg.solve(square + 1e-4 * np.trace(square) / 8 * np.eye(8), known.T @ before.users)
    assert_allclose(after.users, before.users - 0.4 * sums(dislikes) @ matrix, atol=1e-4)
    same = dislikes.sum(axis=1) == 0
    assert (after.users[same] == before.users[same]).all()
    users, items = np.array([0, 3], dtype=np.int32), np.array([1, 2], dtype=np.int32)
    scores = model.scorer.score_users(users)
    assert_allclose(model.scorer.score_pairs(users, items), scores[[0, 1], items], rtol=1e-5)
    assert model.score(0, int(data.items[1])) == pytest.approx(float(scores[0, 1]), rel=1e-5)


@pytest.mark.parametrize("name", [QUICK, "ItemKNN:neighbors=20"])
def test_dislikes_count_against_similar_items(data: Any, name: str) -> None:
    user = int(np.argmax(np.diff(data.kinds["dislike"].csr.indptr)))
    disliked = data.kinds["dislike"].csr[[user]].indices
    alone, against = (
        tl.WeightedKinds(model=name, weights=weights).fit(data, progress=False)
        for weights in ({}, {"dislike": -1.0})
    )
    similar = np.flatnonzero(np.isin(np.arange(ITEMS) % 4, disliked % 4))
    row = np.array([user], dtype=np.int32)
    change = (against.scorer.score_users(row) - alone.scorer.score_users(row))[0]
    assert change[similar].mean() < np.delete(change, similar).mean()


def test_lists_leave_out_the_target_alone(data: Any) -> None:
    model = tl.WeightedKinds(model=QUICK, weights={"cart": 1.0}).fit(data, progress=False)
    lists = model.recommend(k=ITEMS)
    for user in range(0, USERS, 7):
        listed = set(lists.filter(pl.col("user_id") == user)["item_id"])
        bought = set(data.seen(user))
        disliked = set(data.to_frame("dislike").filter(pl.col("user_id") == user)["item_id"])
        assert listed == set(data.items) - bought - disliked
        carts = set(data.kinds["cart"].csr[[user]].indices.tolist()) - bought - disliked
        assert carts <= listed


def test_without_weights_those_of_the_data_count(data: Any) -> None:
    model = tl.WeightedKinds(model="ItemKNN").fit(data, progress=False)
    carts = data.kinds["cart"].csr.data
    assert model.weights_ == pytest.approx({"cart": carts.mean(), "dislike": -1.0})


def test_without_a_kind_that_counts_it_is_the_model_alone(data: Any) -> None:
    model = tl.WeightedKinds(model="EASE", weights={"cart": 0.0}).fit(data, progress=False)
    alone = tl.EASE().fit(data)
    assert model.recommend(k=5).equals(alone.recommend(k=5))
    assert model.explain(0, model.recommend(0, k=2)["item_id"])["method"].unique().to_list() == ["exact"]
    assert (model.weights_, model.kinds_) == ({}, {})


def test_contributions_of_a_user_of_whom_more_is_known_are_what_is_lost(data: Any) -> None:
    model = tl.WeightedKinds(model="EASE", weights={"cart": 0.5}).fit(data, progress=False)
    listed = model.recommend(0, k=2)["item_id"]
    assert model.explain(0, listed)["method"].unique().to_list() == ["leave_one_out"]
    assert model.explain_from_items([1, 5], listed)["method"].unique().to_list() == ["exact"]


@pytest.mark.parametrize("name", [QUICK, "EASE"])
def test_a_loaded_model_answers_and_continues_as_the_one_that_was_saved(
    data: Any, name: str, tmp_path: Path
) -> None:
    model = tl.WeightedKinds(model=name, weights={"cart": np.float32(0.3), "dislike": -0.2})
    model.fit(data, progress=False)
    model.set_titles({item: f"item {item}" for item in data.items})
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.recommend(k=5, titles=True).equals(model.recommend(k=5, titles=True))
    assert again.model_.train_.n_interactions == model.model_.train_.n_interactions > data.n_interactions
    more = tl.read(log_of(1).head(30), kind="event", kinds={"buy": 1, "cart": 0.5, "dislike": -1}, target="buy")
    for each in (model, again):
        each.partial_fit(more, progress=False)
    assert again.recommend(k=5).equals(model.recommend(k=5))


@pytest.mark.parametrize("saved", [False, True])
def test_a_night_of_kinds_counts_once_and_the_next_one_beside_it(saved: bool, tmp_path: Path) -> None:
    def night(day: int, *pairs: tuple[str, str, str]) -> Any:
        rows = [(*pair, day) for pair in pairs]
        frame = pl.DataFrame(rows, schema=["user", "item", "event", "time"], orient="row")
        return tl.read(frame, kind="event", kinds={"buy": 1, "cart": 0.5}, target="buy")

    log = [("ann", "tea", "buy"), ("bob", "rum", "buy"), ("ann", "rum", "cart"), ("bob", "tea", "cart")]
    model = tl.WeightedKinds(model="ItemKNN", weights={"cart": 0.3}).fit(night(1, *log))
    if saved:
        model.save(tmp_path / "model")
        model = tl.load(tmp_path / "model")
    second = night(2, ("ann", "gin", "buy"), ("ann", "gin", "cart"))
    model.partial_fit(second)
    with pytest.warns(DataWarning, match="they are the same, and left out"):
        model.partial_fit(second)
    model.partial_fit(night(3, ("bob", "gin", "buy"), ("bob", "ale", "cart")))
    carts = model.kinds_["cart"].csr
    assert (carts.nnz, carts.data.tolist()) == (4, [0.5] * 4)


def test_a_kind_that_the_data_lacks_is_an_error(data: Any) -> None:
    with pytest.raises(DataError, match="weights has 'crat'; the data has the kinds 'cart', 'dislike'"):
        tl.WeightedKinds(weights={"crat": 0.5}).fit(data)
    with pytest.raises(DataError, match="weights has 'cart'; the data has no kinds"):
        tl.WeightedKinds(weights={"cart": 0.5}).fit(data.with_parts(kinds={}))


@pytest.mark.parametrize(
    "weights", [{"cart": "much"}, {"cart": float("nan")}, {3: 1.0}, "cart", ["cart"], {"a": True}]
)
def test_weights_that_are_none_are_an_error(weights: Any) -> None:
    with pytest.raises(ParameterError, match="weights is"):
        tl.WeightedKinds(weights=weights)


@pytest.mark.parametrize("name", ["Blend", "WeightedKinds", "AutoRecommender", "FM", "Nothing", "", None])
def test_what_cannot_be_trained_on_kinds_is_an_error(name: Any) -> None:
    with pytest.raises(ParameterError, match="model is"):
        tl.WeightedKinds(model=name)
