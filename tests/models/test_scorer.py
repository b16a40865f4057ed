"""What a fitted model answers in row numbers."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import truelike as tl
from truelike.errors import NotFittedError
from truelike.models import scorer as scorers
from truelike.ranking import factor_ranker

RNG = np.random.default_rng(0)
USERS, ITEMS = (RNG.integers(0, n, 500).astype(np.int32) for n in (60, 40))


def test_a_model_has_a_scorer_after_fit(make: Any, world: Any) -> None:
    model = make()
    assert not hasattr(model, "scorer")
    with pytest.raises(NotFittedError, match="has no scorer yet: call fit"):
        _ = model.scorer
    scorer = model.fit(world, progress=False).scorer
    assert model.scorer is scorer
    assert scorer.train is model.train_
    assert model.set_titles({1: "one"}).scorer is not scorer


def test_scores_of_pairs_have_the_bits_of_the_scores_of_users(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factor_ranker, "PAIRS_AT_ONCE", 100)
    monkeypatch.setattr(scorers, "CELLS_AT_ONCE", 500)
    scorer = model.scorer
    expected = scorer.score_users(np.arange(60, dtype=np.int32))
    assert scorer.score_pairs(USERS, ITEMS).tobytes() == expected[USERS, ITEMS].tobytes()
    assert_array_equal(scorer.score_items(USERS[:0], ITEMS, 7), expected[7, ITEMS])


def test_vectors_of_histories_and_items_give_the_scores(model: Any, world: Any) -> None:
    scorer, histories = model.scorer, world.matrix[:3]
    vectors, unit = scorer.history_vectors(histories), scorer.similarity_vectors
    if vectors is not None:
        assert_array_equal(scorer.vectors.of_vectors(vectors), scorer.score_histories(histories))
    if unit is not None:
        assert_allclose(unit @ unit[[1, 3]].T, scorer.similarities(np.array([1, 3], dtype=np.int32)).T, atol=1e-5)
    assert (unit is not None) == hasattr(model, "user_vectors") or model.name == "NeuMF"


@pytest.mark.parametrize("name", ["NBPO", "ExactNBPO", "IALS", "FM"])
def test_one_pair_of_a_dot_product_does_not_score_all_items(
    model: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    expected = model.score(3, [5, 6])
    likely = model.like_probability(3, 5)["probability"].item() if name.endswith("NBPO") else None
    monkeypatch.setattr(type(model.scorer), "score_users", lambda *_: pytest.fail("all items were scored"))
    monkeypatch.setattr(scorers.DotProduct, "scores", lambda *_: pytest.fail("all items were scored"))
    assert_array_equal(model.score(3, [5, 6]), expected)
    if likely is not None:
        assert model.like_probability(3, 5)["probability"].item() == likely


@pytest.mark.parametrize("name", ["IALS", "EASE", "ExactNBPO"])
def test_a_model_that_is_not_used_any_more_is_freed_at_once(make: Any, world: Any) -> None:
    model = make(**({} if make().name == "EASE" else {"epochs": 1})).fit(world, progress=False)
    model.recommend_from_items([1, 2])
    alive = weakref.ref(model.scorer)
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()


class Forgetful(tl.ItemPop):
    def _make_scorer(self) -> Any:
        return self.nothing


def test_an_error_of_a_scorer_is_not_hidden(world: Any) -> None:
    with pytest.raises(AttributeError, match="nothing"):
        Forgetful().fit(world).recommend(1)
