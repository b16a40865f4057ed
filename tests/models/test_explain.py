"""Explanations: what each interaction of a user contributes to the score of an item."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import truelike as tl
from truelike.errors import ParameterError, UnknownIdError
from truelike.models import explain as explanations
from truelike.models.explain import explain
from truelike.models.fold_in import histories_of

COLUMNS = ["item_id", "because_item_id", "contribution", "share", "rank", "method"]
SCHEMA = {
    "item_id": pl.Int64, "because_item_id": pl.Int64, "contribution": pl.Float32, "share": pl.Float32,
    "rank": pl.Int32, "method": pl.String,
}  # fmt: skip
EXACT = ("ItemPop", "ItemKNN", "EASE", "EDLAE", "IALS", "Blend")
EXPLAINED = (
    *EXACT, "BPR", "NBPO", "SoftmaxMF", "ExactBPO", "ExactNBPO", "FM", "ACF", "LightGCN", "AutoRecommender",
)  # fmt: skip


@pytest.fixture(params=EXPLAINED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def history_of(model: Any, user: int) -> Any:
    matrix = model.train_.matrix
    return matrix.indices[matrix.indptr[user] : matrix.indptr[user + 1]]


def row_of(model: Any, history: Any) -> Any:
    """A history in which each interaction counts 1."""
    return histories_of([history], model.train_.n_items)


def brute_force(model: Any, history: Any, items: Any) -> Any:
    """What the scores for a new user lose without each interaction, one history at a time."""

    def scores(rows: Any) -> Any:
        return model.scorer.score_histories(histories_of([rows], model.train_.n_items))[0]

    full = scores(history).astype(float)
    lost = np.stack([full - scores(np.delete(history, place)) for place in range(len(history))])
    return lost[:, items].T


def score_range(model: Any, history: Any) -> float:
    return float(np.ptp(model.scorer.score_histories(histories_of([history], model.train_.n_items))))


# --- the frame ------------------------------------------------------------------------------------


def test_an_explanation_lists_the_interactions_of_the_user_by_contribution(model: Any, world: Any) -> None:
    frame = model.explain(7, [1, 30], k=40)
    assert dict(frame.schema) == SCHEMA
    seen = world.seen(7).to_list()
    assert frame["item_id"].to_list() == [1] * len(seen) + [30] * len(seen)
    for item in (1, 30):
        own = frame.filter(pl.col("item_id") == item)
        assert sorted(own["because_item_id"]) == sorted(seen)
        assert own["contribution"].is_sorted(descending=True)
        assert own["rank"].to_list() == list(range(1, len(seen) + 1))
        total = own["contribution"].abs().sum()
        assert_allclose(own["share"].abs().sum(), 1.0 if total else 0.0, atol=1e-5)
        assert_allclose(own["share"] * total, own["contribution"], atol=1e-5 * (total + 1e-9))
    assert frame["method"].n_unique() == 1


def test_k_cuts_the_list_and_changes_nothing_else(model: Any) -> None:
    long = model.explain(7, [1, 30], k=40)
    assert model.explain(7, [1, 30], k=2).rows() == long.filter(pl.col("rank") <= 2).rows()
    assert (
        model.explain(7, 1, k=40)["because_item_id"].to_list()
        == long["because_item_id"][: len(long) // 2].to_list()
    )
    assert model.explain(7, 1).height == min(10, len(long) // 2)
    for k in (0, -1, 1.5, True, "3"):
        with pytest.raises(ParameterError, match="k is"):
            model.explain(7, 1, k=k)


def test_the_scores_that_are_explained_are_those_of_the_model(model: Any, world: Any) -> None:
    history, items = history_of(model, 7), np.array([30, 1, 5], dtype=np.int32)
    stored = explain(model.scorer, row_of(model, history), items, 7)
    assert_array_equal(stored.scores, model.score(7, items))
    new = explain(model.scorer, row_of(model, history), items)
    frame = model.recommend_from_items(world.seen(7), k=40, exclude_seen=False)
    expected = dict(zip(frame["item_id"], frame["score"], strict=True))
    assert_allclose(new.scores, [expected[int(item)] for item in items], rtol=1e-5, atol=1e-5)
    for found in (stored, new):
        assert found.values.shape == (3, len(history))
        assert found.values.dtype == found.scores.dtype == np.float32


def test_a_new_user_gets_the_explanation_of_the_history(model: Any, world: Any) -> None:
    seen = world.seen(7).to_list()
    frame = model.explain_from_items(seen, [1, 30], k=40)
    assert dict(frame.schema) == SCHEMA
    assert frame.equals(model.explain_from_items([*reversed(seen), seen[0]], [1, 30], k=40))
    found = explain(model.scorer, row_of(model, history_of(model, 7)), np.array([1, 30], dtype=np.int32))
    by_item = dict(zip(frame["because_item_id"][: len(seen)], frame["contribution"][: len(seen)], strict=True))
    assert_array_equal([by_item[int(item)] for item in history_of(model, 7)], found.values[0])


def test_the_method_is_exact_where_the_score_is_a_sum(name: str, model: Any) -> None:
    expected = "exact" if name in EXACT else "leave_one_out"
    if name == "AutoRecommender":
        expected = explain(
            model.model_.scorer, row_of(model, history_of(model, 7)), np.array([1], dtype=np.int32)
        ).method
        assert model.explain(7, [1, 30]).equals(model.model_.explain(7, [1, 30]))
    assert set(model.explain(7, 1)["method"]) == {expected}


@pytest.mark.parametrize("name", [name for name in EXPLAINED if name not in EXACT and name != "AutoRecommender"])
@pytest.mark.parametrize("user", [7, 12])
def test_leave_one_out_is_what_the_score_loses_without_the_interaction(model: Any, user: int) -> None:
    history, items = history_of(model, user), np.arange(40, dtype=np.int32)
    expected = brute_force(model, history, items)
    assert np.abs(expected).max() > 0
    assert_allclose(
        explain(model.scorer, row_of(model, history), items).values,
        expected,
        atol=1e-3 * score_range(model, history),
    )


def test_one_interaction_explains_what_a_user_without_interactions_does_not_have(model: Any, name: str) -> None:
    items = np.arange(40, dtype=np.int32)
    found = explain(model.scorer, row_of(model, np.array([5], dtype=np.int32)), items)
    assert np.isfinite(found.values).all()
    if name not in ("ItemPop", "AutoRecommender"):
        assert np.abs(found.values).max() > 0
    assert model.explain_from_items(5, 1).height == 1


@pytest.mark.parametrize("name", ["EASE", "IALS", "ExactBPO"])
def test_without_interactions_the_frame_is_empty(make: Any, model: Any, name: str) -> None:
    assert dict(model.explain_from_items([], [1, 2]).schema) == SCHEMA
    assert dict(model.explain(7, []).schema) == SCHEMA
    assert model.explain_from_items([999], [1, 2], on_unknown="skip").height == 0
    observed = np.random.default_rng(0).random((30, 20)) < 0.3
    observed[4] = False
    fitted = make().fit(tl.read(sparse.csr_array(observed.astype(np.float32))))
    frame = fitted.explain(4, [1, 2])
    assert dict(frame.schema) == SCHEMA
    assert frame.height == 0
    nothing = row_of(fitted, np.zeros(0, dtype=np.int32))
    assert_array_equal(explain(fitted.scorer, nothing, np.array([1, 2]), 4).scores, fitted.score(4, [1, 2]))
    assert explain(fitted.scorer, nothing, np.array([1, 2])).scores.shape == (2,)


# --- ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["EASE", "ExactBPO"])
def test_unknown_ids_are_named(model: Any) -> None:
    with pytest.raises(UnknownIdError, match="user 888"):
        model.explain(888, 1)
    with pytest.raises(UnknownIdError, match="item 999"):
        model.explain(7, [1, 999])
    with pytest.raises(UnknownIdError, match="item 999"):
        model.explain_from_items([1, 999], 2)
    with pytest.raises(UnknownIdError, match="item 999"):
        model.explain_from_items([1], 999, on_unknown="skip")
    skipped = model.explain_from_items([1, 999, 3], 2, on_unknown="skip")
    assert skipped.equals(model.explain_from_items([1, 3], 2))
    with pytest.raises(ParameterError, match="one user"):
        model.explain([1, 2], 3)
    with pytest.raises(ParameterError, match="one user"):
        model.explain_from_items({"ann": [1]}, 3)
    for wrong in ("popular", "ignore"):
        with pytest.raises(ParameterError, match="on_unknown"):
            model.explain_from_items([1], 3, on_unknown=wrong)


@pytest.mark.parametrize("name", ["EASE", "ExactBPO"])
@pytest.mark.parametrize("kind", ["str", "uuid"])
def test_ids_come_out_as_they_went_in(kind: str, make: Any, checkerboard: Any) -> None:
    as_id: Callable[[int], Any] = {"str": str, "uuid": lambda n: uuid.UUID(int=n)}[kind]  # type: ignore[dict-item]
    model = make().fit(tl.read([(as_id(user), as_id(100 + item)) for user, item in checkerboard]))
    frame = model.explain(as_id(0), as_id(102), k=3)
    assert frame["item_id"].to_list() == [as_id(102)] * 3
    assert set(frame["because_item_id"]) < {as_id(100 + item) for item in range(0, 16, 2)} - {as_id(102)}
    assert model.explain_from_items([], as_id(102)).columns == COLUMNS


@pytest.mark.parametrize("name", ["EASE"])
def test_frames_come_in_the_library_of_the_question_or_of_the_training_data(make: Any, checkerboard: Any) -> None:
    model = make().fit(tl.read(pd.DataFrame(checkerboard, columns=["user", "item"])))
    frame = model.explain(0, [2, 4])
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == COLUMNS
    assert isinstance(model.explain_from_items([0], 2), pd.DataFrame)
    assert isinstance(model.explain(0, pl.Series([2])), pl.DataFrame)
    assert isinstance(model.explain(0, pa.chunked_array([[2]])), pa.Table)


def test_titles_are_added_when_asked_for() -> None:
    rows = [("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")]
    model = tl.EASE(regularization=1.0).fit(tl.read(rows))
    with pytest.raises(ParameterError, match="no titles"):
        model.explain("eve", "milk", titles=True)
    model.set_titles({"tea": "Green tea", "milk": "Whole milk"})
    frame = model.explain("eve", "milk", titles=True)
    assert frame.columns == [*COLUMNS, "title", "because_title"]
    assert frame.select("title", "because_title").rows() == [("Whole milk", "Green tea")]
    assert model.explain_from_items("tea", "milk", titles=True).equals(frame)


# --- against other computations -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["EASE", "EDLAE", "ItemKNN"])
@pytest.mark.parametrize("neighbors", [None, 5])
def test_a_sum_is_of_the_weights_of_the_interactions(
    make: Any, name: str, world: Any, neighbors: int | None
) -> None:
    model = make(neighbors=neighbors).fit(world)
    table = model.similarity_.T if name == "ItemKNN" else model.weights_
    weights = table.toarray() if sparse.issparse(table) else table
    history, items = history_of(model, 9), np.array([3, 0, 39], dtype=np.int32)
    found = explain(model.scorer, row_of(model, history), items, 9)
    assert_array_equal(found.values, weights[history][:, items].T)
    assert_allclose(found.values.sum(axis=1), model.score(9, items), atol=1e-6)


def test_item_pop_has_no_contributions(world: Any) -> None:
    frame = tl.ItemPop().fit(world).explain(9, 3)
    assert set(frame["contribution"]) == set(frame["share"]) == {0.0}


@pytest.mark.parametrize("weighting", ["none", "linear"])
@pytest.mark.parametrize("recency", ["none", "user"])
def test_ials_is_the_terms_of_the_exact_solution(weighting: Any, recency: Any) -> None:
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((50, 30)) < 0.3)
    rows = [(int(u), int(i), int(rng.integers(1, 9)), int(rng.integers(0, 99))) for u, i in pairs]
    data = tl.read(rows)
    model = tl.IALS(factors=6, solver="cholesky", epochs=5, weighting=weighting, recency=recency).fit(data)
    from truelike.engines.weights import interaction_weights

    counts = interaction_weights(data, weighting, recency, 0.5)
    V, user = model.item_factors_.astype(float), 8
    mine = slice(*data.matrix.indptr[user : user + 2])
    history = data.matrix.indices[mine]
    c = np.ones(len(history)) if counts is None else counts[mine].astype(float)
    for given, weights in ((user, c), (None, c), (None, np.ones(len(history)))):
        ridge = model.regularization_ * (len(history) + model.unobserved_weight_ * len(V))
        A = model.unobserved_weight_ * V.T @ V + (V[history].T * weights) @ V[history] + ridge * np.eye(6)
        expected = V @ np.linalg.inv(A) @ (V[history] * weights[:, None]).T
        row = row_of(model, history)
        row.data[:] = weights
        found = explain(model.scorer, row, np.arange(30, dtype=np.int32), given)
        assert_allclose(found.values, expected, atol=1e-6)
        if given is None:
            assert_allclose(found.values.sum(axis=1), found.scores, atol=1e-6)


def test_a_blend_of_sums_is_a_sum(world: Any) -> None:
    model = tl.Blend(first="EASE:regularization=10", second="ItemKNN:neighbors=20", weight=0.3).fit(world)
    history, items = history_of(model, 9), np.arange(40, dtype=np.int32)
    found = explain(model.scorer, row_of(model, history), items, 9)
    parts = [explain(part.scorer, row_of(model, history), items, 9) for part in (model.first_, model.second_)]
    expected = sum(
        weight * part.values / part.scores.std() for weight, part in zip((0.7, 0.3), parts, strict=True)
    )
    assert found.method == "exact"
    assert_allclose(found.values, expected, atol=1e-5)
    base = -sum(w * p.scores.mean() / p.scores.std() for w, p in zip((0.7, 0.3), parts, strict=True))
    assert_allclose(found.values.sum(axis=1) + base, found.scores, atol=1e-5)


def test_a_blend_with_another_model_leaves_interactions_out(world: Any) -> None:
    model = tl.Blend(first="ExactBPO:factors=8:epochs=5", second="EASE").fit(world, progress=False)
    assert set(model.explain(9, 3)["method"]) == {"leave_one_out"}


@pytest.mark.parametrize("name", ["BPR", "NBPO", "ExactBPO", "SoftmaxMF"])
def test_an_explanation_does_not_depend_on_what_else_is_asked_for(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanations, "MOST_LEFT_OUT", 3)
    history, items = history_of(model, 7), np.array([1, 30, 17], dtype=np.int32)
    together = explain(model.scorer, row_of(model, history), items).values
    alone = np.concatenate([explain(model.scorer, row_of(model, history), item[None]).values for item in items])
    assert_allclose(together, alone, atol=2e-5 * score_range(model, history))


@pytest.mark.parametrize("name", ["NBPO", "ExactBPO"])
def test_only_the_most_similar_interactions_are_left_out(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    history, items = history_of(model, 7), np.array([1, 30], dtype=np.int32)
    full = explain(model.scorer, row_of(model, history), items).values
    monkeypatch.setattr(explanations, "MOST_LEFT_OUT", 3)
    found = explain(model.scorer, row_of(model, history), items).values
    similarity = model.scorer.similarities(items)[:, history]
    for row in range(2):
        kept = np.argsort(-similarity[row])[:3]
        assert_allclose(found[row, kept], full[row, kept], atol=1e-4)
        assert np.count_nonzero(found[row]) == 3


@pytest.mark.parametrize("name", ["IALS", "NBPO", "ExactNBPO", "AutoRecommender"])
def test_threads_may_ask_at_the_same_time(make: Any, world: Any) -> None:
    model = make().fit(world)
    asked = [
        (row_of(model, history_of(model, user)), np.array([1, 30], dtype=np.int32), user) for user in range(1, 13)
    ]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda each: explain(model.scorer, *each).values, asked))
    for found, each in zip(together, asked, strict=True):
        assert_allclose(found, explain(model.scorer, *each).values, rtol=1e-4, atol=1e-6)


# --- models of one's own, files, the automatic choice ---------------------------------------------


@dataclass(kw_only=True, eq=False, repr=False)
class Pairs(tl.Recommender):
    """The square root of the users in common, added up and squared: not a sum."""

    def _fit(self, train: Any, options: Any) -> Any:
        x = (train.matrix.toarray() > 0).astype(np.float32)
        return {"common_": np.sqrt(x.T @ x)}

    def _make_scorer(self) -> Any:
        return PairScorer(self.train_, self.common_)


class PairScorer(tl.Scorer):
    def __init__(self, train: Any, common: Any) -> None:
        super().__init__(train)
        self.common = common

    def score_users(self, users: Any) -> Any:
        return self.score_histories(self.train.matrix[users])

    def score_histories(self, histories: Any) -> Any:
        return ((histories.toarray() > 0).astype(np.float32) @ self.common) ** 2

    def similarities(self, items: Any) -> Any:
        return self.common[items].copy()


def test_a_model_of_ones_own_is_explained_without_more_code(world: Any) -> None:
    model = Pairs().fit(world)
    history, items = history_of(model, 7), np.array([1, 30], dtype=np.int32)
    found = explain(model.scorer, row_of(model, history), items, 7)
    assert_allclose(found.values, brute_force(model, history, items), rtol=1e-5, atol=1e-4)
    assert set(model.explain(7, 1)["method"]) == {"leave_one_out"}
    assert model.explain_from_items([5], 1).height == 1


@pytest.mark.parametrize("name", ["IALS", "ExactNBPO", "NBPO"])
def test_what_is_kept_for_new_users_follows_the_learned_parameters(make: Any, world: Any) -> None:
    model = make(epochs=2).fit(world, progress=False)
    model.recommend_from_items([1, 2, 3])
    model.partial_fit([(0, 39), (99, 99)], progress=False)
    loaded = model.with_learned(model.train_, model.learned)
    assert model.recommend_from_items([1, 2, 3]).equals(loaded.recommend_from_items([1, 2, 3]))
