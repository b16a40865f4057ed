"""SampledListMF: cosines and dot products, objectives and samplers of one's own, new users, errors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize

import truelike as tl
from truelike.engines.score_functions import Cosine, Dot
from truelike.errors import DataError, ParameterError
from truelike.models.list_fold_in import ListFoldIn
from truelike.negatives import Negatives, Popularity
from truelike.objectives import BPR, Listwise, NBPOo, Softmax, sigmoid

QUICK: dict[str, Any] = {"factors": 8, "epochs": 10, "batch_size": 300, "n_negatives": 20, "learning_rate": 0.3}


class SLatK(Listwise):
    """A list's softmax, weighted by how likely its positive is among the best."""

    name = "SL@K"
    surrogate = "the weight of a list is not differentiated"

    @staticmethod
    def _weight(r: Any, observed: Any) -> Any:
        margin = (observed * r).sum(-1) - ((1 - observed) * r).sum(-1) / (1 - observed).sum(-1)
        return sigmoid(margin)[..., None]

    @classmethod
    def steps(cls, r: Any, observed: Any) -> Any:  # type: ignore[override]
        return cls._weight(r, observed) * Softmax.steps(r, observed)

    @classmethod
    def likelihood(cls, r: Any, observed: Any) -> Any:  # type: ignore[override]
        return cls._weight(r, observed)[..., 0] * Softmax.likelihood(r, observed)


@dataclass(frozen=True)
class Tail(Negatives):
    """Items of half the mean popularity more often."""

    power: float = 0.5

    def weights(self, popularity: Any) -> Any:
        return 1 / (1 + popularity) ** self.power


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.splits.by_user(tl.synthetic.World(n_users=300, n_items=120).dataset(), seed=0)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_it_learns_the_tastes(world: Any, similarity: Any) -> None:
    lists = tl.SampledListMF(similarity=similarity, **{**QUICK, "epochs": 30}).fit(world).recommend(k=3)
    assert (lists["user_id"] % 4 == lists["item_id"] % 4).mean() > 0.6  # by chance: 0.16


def test_a_cosine_score_is_the_cosine_over_the_temperature(split: Any, tmp_path: Path) -> None:
    model = tl.SampledListMF(similarity="cosine", temperature=0.1, **QUICK).fit(split.train)
    model.save(tmp_path / "model")
    for each in (model, tl.load(tmp_path / "model")):
        U, V = (table.astype(np.float64) for table in (each.user_factors_, each.item_factors_))
        lengths = np.linalg.norm(U, axis=1)[:, None] * np.linalg.norm(V, axis=1)
        assert_allclose(
            each.scorer.score_users(np.arange(50, dtype=np.int32)), (U @ V.T / lengths * 10)[:50], atol=1e-4
        )
    more = model.partial_fit([(9_999, item) for item in split.train.items.values[:4].to_list()], epochs=2)
    assert_allclose(np.linalg.norm(more.user_factors_, axis=1), 10**0.5, rtol=1e-5)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_the_history_of_a_user_is_folded_in_near_the_users_row(split: Any, similarity: Any) -> None:
    model = tl.SampledListMF(similarity=similarity, **{**QUICK, "epochs": 30}).fit(split.train)
    users = np.argsort(-split.train.interactions_per_user())[:40].astype(np.int32)
    folded = model.scorer.history_vectors(split.train.csr[users])
    own = model.user_factors_[users]
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (own, folded)]
    assert np.median((unit[0] * unit[1]).sum(axis=1)) > 0.9
    if similarity == "cosine":
        assert_allclose(np.linalg.norm(folded, axis=1), 0.2**-0.5, rtol=1e-5)


@pytest.mark.parametrize("score", [Dot(), Cosine(0.2)])
@pytest.mark.parametrize("corrected", [True, False])
def test_the_folded_row_is_the_best_of_the_expected_likelihood(score: Any, corrected: bool) -> None:
    rng = np.random.default_rng(0)
    V = score.rows(rng.normal(0, 0.7, (50, 6))).astype(np.float32)
    popularity, history, n = rng.integers(1, 40, 50), np.array([3, 8, 20, 21, 44], dtype=np.int32), 2_000
    q = Popularity().probabilities(popularity, history)
    fold_in = ListFoldIn(
        V, None, Softmax, score, lambda _: q, n_negatives=n, corrected=corrected, l2=0.5 * (score == Dot()), seed=0
    )
    others = np.flatnonzero(q)
    shift = np.zeros(len(others)) if corrected else np.log(n * q[others])  # of the sum over all unobserved items

    def loss(raw: Any) -> float:
        row = score.rows(raw)
        rest = np.logaddexp.reduce(V[others] @ row + shift)
        r = V[history] @ row
        return float(np.logaddexp(r, rest).sum() - r.sum() + fold_in.l2 / 2 * row @ row)

    best = score.rows(optimize.minimize(loss, V[history].mean(axis=0).astype(float), tol=1e-10).x)
    assert_allclose(fold_in.row(history), best, atol=0.05 * np.linalg.norm(best))


def test_a_user_with_all_items_is_refused_in_training_and_answered_as_a_new_user(split: Any) -> None:
    rows = [("all", item) for item in "abcd"] + [("some", "a"), ("other", "b")]
    with pytest.raises(DataError, match="user 'all' interacted with all 4 items"):
        tl.SampledListMF(**QUICK).fit(tl.read(rows))
    model = tl.SampledListMF(**QUICK).fit(split.train)
    assert model.recommend_from_items(split.train.items.values, k=3, exclude_seen=False).height == 3


def test_an_objective_and_a_sampler_of_ones_own(split: Any, tmp_path: Path) -> None:
    own: dict[str, Any] = {"objective": SLatK, "negatives": Tail(0.3)}
    model = tl.SampledListMF(similarity="cosine", corrected=False, **own, **QUICK).fit(split)
    assert model.history_["loss"][-1] < model.history_["loss"][0]
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model", **own)
    assert again.recommend(k=5).equals(model.recommend(k=5))
    with pytest.raises(ParameterError, match="class of your own"):
        tl.load(tmp_path / "model").recommend_from_items(split.train.items.values[:2])


@pytest.mark.slow
def test_it_is_tuned_and_compared(split: Any) -> None:
    given = {**QUICK, "similarity": "cosine", "objective": SLatK, "corrected": False}
    found = tl.tune(
        tl.SampledListMF, split, n_trials=2, search_space={"temperature": [0.1, 0.5]}, n_workers=1, **given
    )
    assert found.parameters["temperature"] in (0.1, 0.5)
    variants = [
        "SampledListMF:epochs=2:factors=8",
        "SampledListMF:similarity=cosine:epochs=2:factors=8",
        "ItemPop",
    ]
    assert tl.compare(split, variants, n_trials=1, seeds=1, n_workers=1).table.height == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objective": "BPR"}, "objective is 'BPR'; it must be softmax, or a Listwise class"),
        ({"objective": BPR}, "or a Listwise class"),
        ({"objective": NBPOo}, "or a Listwise class"),
        ({"temperature": 0}, "temperature is 0; it must be a number, at least"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"n_negatives": -3}, "n_negatives is -3; it must be a whole number, at least 1"),
        ({"n_negatives": 0}, "n_negatives is 0"),
        ({"similarity": "euclid"}, "similarity is 'euclid'; it must be 'dot' or 'cosine'"),
        ({"negatives": "hard:4"}, "corrected is True, and negatives='hard:4' chooses .* Use corrected=False"),
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        tl.SampledListMF(**wrong)


def test_hard_negatives_are_the_best_scored_and_not_corrected(split: Any) -> None:
    model = tl.SampledListMF(negatives="hard:3", corrected=False, **QUICK).fit(split)
    assert model.recommend(k=3).height == 3 * split.train.n_users
