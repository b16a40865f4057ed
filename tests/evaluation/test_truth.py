"""Scores against true labels: which pairs count, and synthetic worlds with a known answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import truelike as tl
from truelike.errors import DataError, UnknownMeasureError
from truelike.evaluation import truth as scoring
from truelike.evaluation.calibration import auc
from truelike.evaluation.truth import score_blocks

WORLD: dict[str, Any] = {"n_users": 300, "n_items": 150, "impressions_per_user": 100, "seed": 3}


@pytest.fixture(scope="module")
def world() -> Any:
    return tl.synthetic.World(**WORLD)


@pytest.fixture(scope="module")
def knn(world: Any) -> Any:
    return tl.ItemKNN().fit(world.dataset())


@pytest.fixture(scope="module")
def nbpo(world: Any) -> Any:
    return tl.NBPO(factors=8, flip_factors=4, epochs=3).fit(world.dataset())


def likely(world: Any) -> Any:
    """Return p(truly liked) of all items for some users."""
    items = np.arange(world.n_items)

    def block(users: Any) -> Any:
        return np.stack([world.like_probability(np.full(world.n_items, user), items) for user in users])

    return block


def posterior(world: Any) -> Any:
    """Return the true p(truly liked | not observed): items that were shown without an interaction are disliked."""
    shown = world.impressions().matrix.toarray() > 0
    return lambda users: np.where(shown[users], 0.0, likely(world)(users))


# --- synthetic worlds with a known answer ----------------------------------------------------------


def test_the_true_posterior_is_calibrated_and_better_than_a_learned_one(world: Any, nbpo: Any) -> None:
    best = score_blocks(world.dataset(), world.truth(), likely(world), posterior(world))
    assert best.totals["hidden_ece"] < 0.01
    assert best.totals["hidden_pooled_auc"] > 0.85
    learned = tl.evaluate(nbpo, truth=world.truth())
    assert learned["truth_auc"] < best.values["truth_auc"].mean()
    assert learned["hidden_pooled_auc"] < best.totals["hidden_pooled_auc"]
    assert learned["hidden_log_loss"] > best.totals["hidden_log_loss"]
    table = best.reliability()
    assert_allclose(table["predicted"], table["liked"], atol=0.05)
    assert table["count"].sum() == world.n_users * world.n_items - world.dataset().n_interactions


# --- which pairs count ----------------------------------------------------------------------------


def test_only_unobserved_pairs_count(knn: Any, world: Any) -> None:
    found = tl.evaluate(knn, truth=world.truth(), ks=(5, 20))
    observed, liked = world.dataset().matrix.toarray() > 0, world.true_likes().matrix.toarray() > 0
    scores = knn.scorer.score_users(np.arange(world.n_users, dtype=np.int32))
    for n, user in enumerate(found.users):
        unseen = ~observed[user]
        assert_allclose(found.values["truth_auc"][n], auc(scores[user][unseen], liked[user][unseen]))
    assert_allclose(found["hidden_share"], (liked & ~observed).sum() / (~observed).sum())
    assert not any(name.startswith("hidden_auc") for name in found.means())
    assert len(found.truth.reliability()) == 0


def test_if_all_pairs_have_a_label_truth_ndcg_is_the_ndcg_of_the_hidden_likes(knn: Any, world: Any) -> None:
    by_truth = tl.evaluate(knn, truth=world.truth(), ks=(5, 20))
    as_test = tl.evaluate(knn, world.true_likes(), ks=(5, 20))
    assert by_truth.users.to_list() == as_test.users.to_list()
    for k in (5, 20):
        assert_array_equal(by_truth.values[f"truth_ndcg@{k}"], as_test.values[f"ndcg@{k}"])


def test_only_pairs_with_a_label_count() -> None:
    model = tl.ItemPop().fit(tl.read([("ann", "tea"), ("bob", "tea"), ("bob", "rum"), ("eve", "gin")]))
    asked = [("ann", "rum", 5), ("ann", "gin", 1), ("ann", "tea", 1), ("bob", "gin", 5), ("joe", "tea", 5)]
    truth = tl.Truth.of_ratings(asked, min_rating=4, user=0, item=1, rating=2)
    found = tl.evaluate(model, truth=truth, ks=(1,))
    assert found.users.to_list() == ["ann"], "bob has no labelled dislike, and joe is unknown"
    assert found["truth_auc"] == 0.5, "rum and gin are equally popular"
    assert found["truth_ndcg@1"] == 0.0, "of equal scores the first item, gin, is ranked first"
    assert_allclose(found["hidden_share"], 2 / 3, err_msg="ann and tea is an observed pair: it does not count")


def test_users_and_items_outside_the_truth_have_no_label() -> None:
    model = tl.ItemPop().fit(
        tl.read([("ann", "tea"), ("joe", "tea"), ("eve", "gin"), ("bob", "tea"), ("eve", "rum")])
    )
    found = tl.evaluate(model, truth=tl.read([("ann", "gin"), ("bob", "rum")]), ks=(2,))
    assert found.users.to_list() == ["ann", "bob"]
    assert found["hidden_share"] == 0.5, "only ann and bob with gin and rum have a label"


def test_a_truth_without_both_likes_and_dislikes_is_an_error(knn: Any, world: Any) -> None:
    with pytest.raises(DataError, match="both a like and a dislike"):
        tl.evaluate(knn, truth=tl.Truth(world.dataset(), world.dataset()))
    with pytest.raises(DataError, match="both a like and a dislike"):
        tl.evaluate(knn, truth=tl.read([("ann", "tea"), ("bob", "rum")]))
    with pytest.raises(DataError, match="evaluate takes a Dataset"):
        tl.evaluate(knn)
    with pytest.raises(DataError, match="Truth takes a Dataset"):
        tl.evaluate(knn, truth=[("ann", "tea")])


# --- how the scores are shown ------------------------------------------------------------------------------


def test_a_test_set_and_a_truth_give_the_measures_of_both(world: Any) -> None:
    split = tl.splits.by_user(world.dataset(), seed=0)
    model = tl.NBPO(factors=8, flip_factors=4, epochs=2).fit(split.train)
    both = tl.evaluate(model, split.test, truth=world.truth(), ks=(5,))
    alone, plain = tl.evaluate(model, truth=world.true_likes(), ks=(5,)), tl.evaluate(model, split.test, ks=(5,))
    assert both.means() == {**plain.means(), **alone.means()}
    assert both.per_user().equals(plain.per_user())
    names = ["metric", "k", "value", "low", "high"]
    rows = {(row[0], row[1]): row[2:] for row in both.intervals().select(names).iter_rows()}
    value, low, high = rows["truth_auc", None]
    assert low < value < high
    assert rows["hidden_ece", None][1:] == (None, None)
    assert both.truth.reliability().columns == ["bin", "predicted", "liked", "count"]
    assert plain.truth is None
    with pytest.raises(UnknownMeasureError, match="hidden_ece"):
        both["hidden_mce"]
    assert len(tl.compare_means([alone, alone], "truth_auc")) == 1


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_the_result_does_not_depend_on_blocks_and_threads(
    nbpo: Any, world: Any, n_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tl.evaluate(nbpo, truth=world.truth())
    monkeypatch.setattr(scoring, "PAIRS_AT_ONCE", 7 * world.n_items)
    again = tl.evaluate(nbpo, truth=world.truth(), n_jobs=n_jobs)
    assert again.means() == whole.means()
    assert again.truth.reliability().equals(whole.truth.reliability())


# --- models with impressions ---------------------------------------------------------------------


def test_held_out_impressions_can_serve_as_truth(world: Any) -> None:
    data, shown = world.dataset(), world.impressions()
    pairs = [part.user_of_entry.astype(np.int64) * part.n_items + part.matrix.indices for part in (data, shown)]
    held_out = [pair % 5 == 0 for pair in pairs]
    unseen = tl.Truth(data.select(held_out[0]), shown.select(held_out[1]))
    model = tl.ImpressionMF(factors=8, steps=30).fit(
        tl.read(data.select(~held_out[0]), impressions=shown.select(~held_out[1]))
    )
    found = tl.evaluate(model, truth=unseen)
    assert found.truth.reliability()["count"].sum() == held_out[1].sum()
    assert_allclose(found["hidden_share"], held_out[0].sum() / held_out[1].sum())


def test_coat_has_a_truth_and_impressions() -> None:
    if not (tl.datasets.cache_directory() / "coat" / "test.ascii").is_file():
        pytest.skip("coat is not in the cache")
    train, truth, shown = (
        tl.datasets.load("coat").train,
        tl.datasets.coat_truth(),
        tl.datasets.load("coat-impressions"),
    )
    assert (shown.interactions_per_user() == 24).all()
    assert (truth.judged.interactions_per_user() == 16).all()
    assert truth.likes.n_interactions == 860
    assert len(train.matrix.multiply(shown.matrix).data) == train.n_interactions, "every rated item was shown"
    found = tl.evaluate(tl.ItemPop().fit(train), truth=truth)
    assert 0.5 < found["truth_auc"] < 0.7
