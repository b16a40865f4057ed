"""The metrics follow their formulas and agree with ranx, an independent implementation."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import truelike as tl
from truelike.errors import ParameterError
from truelike.evaluation import metrics as formulas

# ranx's "ndcg" is Järvelin's: gain rel / log2(rank + 1), ideal over min(|R|, k); "ndcg_burges" has another gain
RANX = {
    "precision": "precision",
    "recall": "recall",
    "f1": "f1",
    "ndcg": "ndcg",
    "map": "average_precision",
    "mrr": "reciprocal_rank",
    "hit_rate": "hit_rate",
}


class Table(tl.Scorer):
    """Given scores."""

    def __init__(self, train: Any, scores: Any) -> None:
        super().__init__(train)
        self.scores = np.array(scores, dtype=np.float32)

    def score_users(self, users: Any) -> Any:
        return self.scores[users]

    def score_histories(self, histories: Any) -> Any:
        raise NotImplementedError

    def similarities(self, items: Any) -> Any:
        raise NotImplementedError


class FixedScores:
    """The least that `tl.evaluate` takes: a `Ranker` with given scores."""

    name = "FixedScores"

    def __init__(self, train_: Any, scores: Any) -> None:
        self.train_, self.given = train_, scores

    @property
    def scorer(self) -> Any:
        return Table(self.train_, self.given)


def dataset(dense: Any) -> Any:
    return tl.read(sparse.csr_array(np.asarray(dense)))


def ranx_value(metric: str, listed: list[int], relevant: list[int], k: int) -> float:
    name = RANX[metric]
    function = getattr(importlib.import_module(f"ranx.metrics.{name}"), f"_{name}")
    qrels = np.array([[item, 1.0] for item in relevant])
    run = np.array([[item, float(-place)] for place, item in enumerate(listed)]).reshape(-1, 2)
    extra = (True,) if metric == "ndcg" else ()
    return float(function(qrels, run, k, 1, *extra))


@pytest.fixture(scope="module")
def world() -> tuple[Any, Any, Any]:
    """Training and test interactions and scores of 40 users and 25 items, none of them equal."""
    rng = np.random.default_rng(5)
    train = rng.random((40, 25)) < 0.2
    test = (rng.random((40, 25)) < 0.15) & ~train
    test[[0, 7]] = False
    return train, test, rng.permuted(np.tile(np.arange(25), (40, 1)), axis=1)


@pytest.mark.slow  # ranx
@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaWarning")
@pytest.mark.parametrize("metric", RANX)
def test_evaluate_gives_what_ranx_gives_for_each_user(metric: str, world: Any) -> None:
    train, test, scores = world
    ks = (1, 2, 5, 10, 40)  # 40 exceeds the catalogue: ranx also divides precision by k, not by the list length
    result = tl.evaluate(FixedScores(dataset(train), scores), dataset(test), ks=ks, metrics=[metric])
    users = result.users.to_list()
    assert users == np.flatnonzero(test.any(axis=1)).tolist()
    for k in ks:
        expected = []
        for user in users:
            order = np.argsort(-scores[user], kind="stable")
            listed = [int(item) for item in order if not train[user, item]]
            expected.append(ranx_value(metric, listed, np.flatnonzero(test[user]).tolist(), k))
        assert_allclose(result.values[f"{metric}@{k}"], expected, rtol=0, atol=1e-12)


def test_the_metrics_of_a_hand_computed_list() -> None:
    """Hits at ranks 1 and 3 of 4, three relevant items."""
    hits, relevant = np.array([[1.0, 0.0, 1.0, 0.0]]), np.array([3.0])
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    expected = {
        "precision": 2 / 4,
        "recall": 2 / 3,
        "capped_recall": 2 / 3,
        "f1": 2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3),
        "ndcg": (1 + 1 / 2) / ideal,
        "map": (1 / 1 + 2 / 3) / 3,
        "mrr": 1.0,
        "hit_rate": 1.0,
    }
    found = {name: float(metric(hits, relevant, 4)[0]) for name, metric in formulas.METRICS.items()}
    assert found == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("k", [1, 2, 5, 10, 40])
def test_capped_recall_is_that_of_mult_vae_computed_with_sets(world: Any, k: int) -> None:
    train, test, scores = world
    result = tl.evaluate(FixedScores(dataset(train), scores), dataset(test), ks=k, metrics="capped_recall")
    expected = []
    for user in np.flatnonzero(test.any(axis=1)):
        candidates = sorted(
            np.flatnonzero(~train[user]), key=lambda item: (-scores[user][item], item_place(train)[item])
        )
        relevant = set(np.flatnonzero(test[user]))
        expected.append(len(relevant & set(candidates[:k])) / min(k, len(relevant)))
    assert_allclose(result.values[f"capped_recall@{k}"], expected, rtol=0, atol=1e-15)
    assert len(set(test.sum(axis=1))) > 3, "some users have more than k relevant items, some fewer"


def item_place(train: Any) -> Any:
    """The order of items with equal scores."""
    return tl.ItemPop().fit(dataset(train)).scorer.ties


def test_the_ideal_of_ndcg_is_over_no_more_than_k_items() -> None:
    assert formulas.ndcg(np.array([[1.0, 1.0]]), np.array([9.0]), 2)[0] == pytest.approx(1.0, abs=1e-15)


def test_missing_places_of_a_list_shorter_than_k_count_as_misses() -> None:
    hits, relevant = np.array([[1.0, 1.0]]), np.array([2.0])
    assert formulas.precision(hits, relevant, 8)[0] == 2 / 8
    assert formulas.f1(hits, relevant, 8)[0] == pytest.approx(2 * 0.25 / 1.25)
    assert formulas.ndcg(hits, relevant, 8)[0] == pytest.approx(1.0)
    assert formulas.recall(hits, relevant, 8)[0] == 1.0


def test_of_items_with_equal_scores_the_first_is_ranked_first() -> None:
    train = [[1, 0, 0, 0], [1, 1, 0, 0]]
    scores = np.ones((2, 4))
    first = tl.evaluate(FixedScores(dataset(train), scores), dataset([[0, 1, 0, 0], [0, 0, 0, 0]]), ks=(1,))
    last = tl.evaluate(FixedScores(dataset(train), scores), dataset([[0, 0, 0, 1], [0, 0, 0, 0]]), ks=(1,))
    assert (first["hit_rate@1"], last["hit_rate@1"]) == (1.0, 0.0)


def test_coverage_is_the_share_of_the_catalogue_that_is_recommended() -> None:
    best = np.array([[0, 1, 4], [1, 0, -1]], dtype=np.int32)
    assert [formulas.coverage(best, 10, k) for k in (1, 2, 3)] == [0.2, 0.2, 0.3]


def test_a_value_of_items_is_averaged_over_the_filled_places() -> None:
    best = np.array([[0, 2], [1, -1], [-1, -1]], dtype=np.int32)
    assert formulas.mean_of_listed(best, np.array([0.5, 0.25, 0.125]), 2).tolist() == [0.3125, 0.25, 0.0]


def test_popularity_is_that_of_training_with_half_an_interaction_for_an_item_without_any() -> None:
    train = dataset([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]])
    model = FixedScores(train, [[0, 0, 1, 3]] * 4)
    result = tl.evaluate(model, dataset([[0, 0, 1, 0]] + [[0, 0, 0, 0]] * 3), ks=(1, 2))
    assert result.values["popularity@1"].tolist() == [0.5 / 4]
    assert result.values["novelty@1"].tolist() == [3.0]
    assert result.values["popularity@2"].tolist() == [(0.5 / 4 + 1 / 4) / 2]
    assert result.values["novelty@2"].tolist() == [(3.0 + 2.0) / 2]
    assert (result["coverage@1"], result["coverage@2"]) == (0.25, 0.5)


@pytest.mark.parametrize(
    "value", ["ndcg", "ndcg@", "@20", "ndcg@0", "ndcg@-5", "ndcg@2.5", "auc@20", "ndcg@²", "coverage@20", None, 20]
)
def test_a_value_without_a_metric_and_a_list_length_is_not_a_measure(value: Any) -> None:
    assert not formulas.is_metric_at_k(value)
    with pytest.raises(ParameterError, match=r"metric is .* at a list length"):
        formulas.parse_measure(value)
    assert formulas.parse_measure("hit_rate@20") == ("hit_rate", 20)
