"""Users whom a model has not seen, evaluated from their histories."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import truelike as tl
from truelike.errors import DataError, DataWarning, ParameterError
from truelike.evaluation import measure

TRAIN = [("ann", "tea"), ("bob", "tea"), ("bob", "milk"), ("eve", "rum"), ("eve", "tea"), ("joe", "gin")]
KS = (3, 10)
METRICS = ["ndcg", "recall", "capped_recall", "mrr"]


@pytest.fixture(scope="module")
def split() -> tl.NewUserSplit:
    data = tl.synthetic.World(n_users=300, n_items=80, seed=2).dataset()
    return tl.splits.new_users(data, validation=40, test=60, history=0.6)


def by_hand(scores: Any, history: Any, relevant: Any, k: int) -> dict[str, float]:
    """The metrics of one user, from the formulas."""
    scores = np.where(history, -np.inf, scores)
    hits = relevant[np.argsort(-scores)[:k]].astype(float)
    n = int(relevant.sum())
    gains = 1 / np.log2(np.arange(2, k + 2))
    return {
        f"ndcg@{k}": float(hits @ gains / gains[: min(k, n)].sum()),
        f"recall@{k}": hits.sum() / n,
        f"capped_recall@{k}": hits.sum() / min(k, n),
        f"mrr@{k}": float(1 / (1 + np.argmax(hits))) if hits.any() else 0.0,
    }


def test_ease_equals_a_solution_by_numpy(split: tl.NewUserSplit) -> None:
    model = tl.EASE(regularization=30.0).fit(split.train)
    found = tl.evaluate_new_users(model, split, ks=KS, metrics=METRICS)
    X = (split.train.matrix.toarray() > 0).astype(np.float64)
    P = np.linalg.inv(X.T @ X + 30.0 * np.eye(X.shape[1]))
    B = -P / np.diag(P)
    np.fill_diagonal(B, 0)
    H, T = ((part.matrix.toarray() > 0) for part in (split.test.history, split.test.targets))
    expected = [
        {name: value for k in KS for name, value in by_hand(row, h, t, k).items()}
        for row, h, t in zip(H @ B, H, T, strict=True)
    ]
    assert found.users.to_list() == list(split.test.history.users)
    assert set(found.values) == set(expected[0])
    for name, values in found.values.items():
        assert_allclose(values, [each[name] for each in expected], atol=1e-12)


MODELS = {
    "ItemPop": tl.ItemPop(),  # whose scores have ties
    "ItemKNN": tl.ItemKNN(neighbors=5),
    "EDLAE": tl.EDLAE(),
    "IALS": tl.IALS(factors=8, epochs=2),
    "NBPO": tl.NBPO(factors=8, epochs=2),
    "SoftmaxMF": tl.SoftmaxMF(factors=8, epochs=2),
    "Blend": tl.Blend(first="ItemKNN", second="EASE"),
}


@pytest.mark.filterwarnings("ignore::truelike.errors.TrainingWarning")
@pytest.mark.parametrize("name", MODELS)
def test_the_lists_are_those_of_recommend_from_items(split: tl.NewUserSplit, name: str) -> None:
    model = MODELS[name].fit(split.train, progress=False)
    found = tl.evaluate_new_users(model, split.test, ks=KS, metrics=METRICS, n_jobs=2)
    lists = model.recommend_from_items(split.test.history, k=10)
    expected = tl.evaluate_lists(lists, split.test.targets, train=split.test.history, ks=KS, metrics=METRICS)
    assert found.users.to_list() == expected.users.to_list()
    for measured, values in expected.values.items():
        assert_array_equal(found.values[measured], values)


def test_threads_and_chunks_do_not_change_a_bit(split: tl.NewUserSplit, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tl.SoftmaxMF(factors=8, epochs=2).fit(split.train, progress=False)
    expected = tl.evaluate_new_users(model, split.validation, n_jobs=1)
    monkeypatch.setattr(measure, "USERS_AT_ONCE", 7)
    for n_jobs in (1, 2, 8):
        found = tl.evaluate_new_users(model, split.validation, n_jobs=n_jobs)
        assert found.totals == expected.totals
        for name, values in found.values.items():
            assert_array_equal(values, expected.values[name])


def test_a_result_is_one_like_others(split: tl.NewUserSplit) -> None:
    models = [tl.ItemPop().fit(split.train), tl.ItemKNN().fit(split.train)]

    def first(hits: Any, relevant: Any, k: int) -> Any:
        return hits[:, 0]

    results = [
        tl.evaluate_new_users(model, split, ks=5, metrics=["ndcg", "popularity", "coverage", first], name=name)
        for model, name in zip(models, ("A", "B"), strict=True)
    ]
    compared = tl.compare_means(results, "ndcg@5")
    assert compared["difference"].item() == pytest.approx(results[0]["ndcg@5"] - results[1]["ndcg@5"])
    assert (results[0].model, results[0].left_out) == ("A", ("history",))
    assert set(results[0].intervals()["left_out"]) == {"history"}
    assert results[0]["first@5"] == results[0].per_user()["first@5"].mean()
    lists = models[0].recommend_from_items(split.test.history, k=5)
    shares = dict(zip(split.train.items, split.train.popularity() / split.train.n_users, strict=True))
    assert_allclose(results[0]["popularity@5"], np.mean([shares[item] for item in lists["item_id"]]))
    assert results[0]["coverage@5"] == lists["item_id"].n_unique() / split.train.n_items


def test_items_of_the_history_are_neither_listed_nor_relevant() -> None:
    model = tl.ItemPop().fit(tl.read(TRAIN))
    new = tl.NewUsers([("zoe", "tea"), ("kim", "gin")], [("zoe", "tea"), ("zoe", "rum"), ("kim", "gin")])
    found = tl.evaluate_new_users(model, new, ks=3, metrics=["recall", "precision"])
    assert found.users.to_list() == ["zoe"], "kim has no new item to find"
    assert (found["recall@3"], found["precision@3"]) == (1.0, pytest.approx(1 / 3))


def test_unknown_items_and_users_without_a_history_are_left_out_and_counted() -> None:
    model = tl.EASE(regularization=1.0).fit(tl.read(TRAIN))
    history = [("zoe", "tea"), ("zoe", "ale"), ("kim", "ale"), ("pat", "ale")]
    targets = [("zoe", "milk"), ("kim", "milk"), ("lee", "rum"), ("pat", "ale")]
    with pytest.warns(DataWarning) as warned:
        found = tl.evaluate_new_users(model, tl.NewUsers(history, targets), ks=2)
    assert [str(each.message).partition(";")[0] for each in warned] == [
        "3 of 4 rows of the histories and 1 of 4 targets have an item that is not in the training data",
        "2 of 3 new users are left out: no item of their history is in the training data",
    ]
    assert found.users.to_list() == ["zoe"]
    with (
        pytest.warns(DataWarning, match="are left out"),
        pytest.raises(DataError, match="no user of the held-out"),
    ):
        tl.evaluate_new_users(model, tl.NewUsers(history[2:], targets[1:]))


def test_users_whom_the_model_was_trained_on_are_reported(split: tl.NewUserSplit) -> None:
    whole = tl.synthetic.World(n_users=300, n_items=80, seed=2).dataset()
    with pytest.warns(DataWarning, match="60 of 60 new users are in the training data of ItemKNN"):
        tl.evaluate_new_users(tl.ItemKNN().fit(whole), split)


def test_weights_and_the_library_of_the_history_do_not_matter(split: tl.NewUserSplit) -> None:
    model = tl.IALS(factors=8, epochs=2).fit(split.train, progress=False)
    history = split.test.history.to_frame().with_columns(pl.lit(3.0).alias("weight"))
    weighted = tl.NewUsers(tl.read(history.to_pandas(), weight="weight"), split.test.targets)
    assert weighted.history.has_weights
    expected = tl.evaluate_new_users(model, split.test)
    assert tl.evaluate_new_users(model, weighted).means() == expected.means()


def test_what_is_no_model_or_no_new_users_is_an_error(split: tl.NewUserSplit) -> None:
    model = tl.ItemPop().fit(split.train)
    with pytest.raises(DataError, match="evaluate_new_users takes new users, not Dataset: pass a part of"):
        tl.evaluate_new_users(model, split.train)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"not NewUsers: tl.evaluate_new_users\(model, split\)"):
        tl.evaluate(model, split.test)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="evaluate_new_users takes a fitted model, not the class ItemPop"):
        tl.evaluate_new_users(tl.ItemPop, split)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="metrics is 'auc'"):
        tl.evaluate_new_users(model, split, metrics="auc")

    class Ranker:
        name, train_, scorer = "Mine", split.train, types.SimpleNamespace(ties=model.scorer.ties)

    with pytest.raises(ParameterError, match=r"Mine cannot score new users: its scorer has no score_histories"):
        tl.evaluate_new_users(Ranker(), split)  # type: ignore[arg-type]
