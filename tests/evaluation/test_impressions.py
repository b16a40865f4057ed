"""Scores on held-out impressions: which pairs count, what is measured, and what is an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose

import truelike as tl
from truelike.errors import DataError, DataWarning, ParameterError
from truelike.evaluation.calibration import auc
from truelike.evaluation.protocol import likes_of

TRAIN = [("ann", "tea"), ("bob", "tea"), ("bob", "milk"), ("eve", "rum"), ("eve", "tea"), ("joe", "gin")]


@pytest.fixture(scope="module")
def parts() -> Any:
    world = tl.synthetic.World(n_users=400, n_items=120, impressions_per_user=60, seed=2)
    data = tl.read(world.dataset(), impressions=world.impressions())
    return tl.splits.random(data, validation=0, test=0.2, seed=3)


@pytest.fixture(scope="module")
def model(parts: Any) -> Any:
    return tl.ImpressionMF(factors=8, steps=60).fit(parts.train, progress=False)


def evaluated(model: Any, parts: Any, **options: Any) -> Any:
    return tl.evaluate(model, parts.test, impressions=True, **options)


def test_the_scores_are_those_of_the_shown_pairs(model: Any, parts: Any) -> None:
    result = evaluated(model, parts)
    shown = parts.test.to_frame("shown")
    taken = parts.test.to_frame().with_columns(pl.lit(1).alias("taken"))
    table = shown.join(taken, on=["user_id", "item_id"], how="left").with_columns(
        pl.col("taken").fill_null(0).cast(pl.Boolean)
    )
    p = model.like_probability(table["user_id"], table["item_id"])["probability"].to_numpy().astype(np.float64)
    label = table["taken"].to_numpy()
    assert_allclose(result["shown_share"], label.mean())
    assert_allclose(result["shown_pooled_auc"], auc(p, label))
    assert_allclose(result["shown_log_loss"], -np.where(label, np.log(p), np.log1p(-p)).mean(), rtol=1e-3)
    each = {
        u: auc(p[(table["user_id"] == u).to_numpy()], label[(table["user_id"] == u).to_numpy()])
        for u in range(400)
    }
    expected = {u: value for u, value in each.items() if not np.isnan(value)}
    assert result.users.to_list() == list(expected)
    assert_allclose(result.values["shown_auc"], list(expected.values()))
    bins = result.impressions.reliability()
    assert bins["count"].sum() == result.impressions.n_pairs == shown.height
    assert_allclose((bins["liked"] * bins["count"]).sum(), label.sum())
    error = ((bins["predicted"] - bins["liked"]).abs() * bins["count"]).sum() / shown.height
    assert_allclose(result["shown_ece"], error)
    assert result["shown_auc"] > 0.6
    assert "shown_auc" in repr(result)
    assert "shown_ece" in result._repr_html_()


def test_a_model_without_probabilities_has_the_auc_alone(parts: Any) -> None:
    for each in (tl.ItemPop(), tl.ItemKNN(), tl.IALS(factors=8), tl.BPR(factors=8, epochs=1)):
        fitted = each.fit(parts.train)
        result = evaluated(fitted, parts)
        assert sorted(result.means()) == ["shown_auc", "shown_pooled_auc", "shown_share"]
        assert result.impressions.reliability().is_empty()
        assert likes_of(fitted) is None


def test_a_method_of_the_model_gives_its_probabilities(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = tl.ItemPop().fit(parts.train)
    flat = np.float32(0.25)
    likes = SimpleNamespace(of_pairs=lambda users, items: np.full(len(users), flat))
    monkeypatch.setattr(type(fitted), "likes", likes, raising=False)
    result = evaluated(fitted, parts)
    assert result["shown_auc"] == result["shown_pooled_auc"] == 0.5
    assert_allclose(result["shown_ece"], abs(result["shown_share"] - 0.25), atol=1e-4)


def test_two_models_are_compared_on_the_shown_pairs(model: Any, parts: Any) -> None:
    others = evaluated(tl.ItemPop().fit(parts.train), parts)
    table = tl.compare_means([evaluated(model, parts), others], "shown_auc")
    assert table["difference"].item() > 0


def test_truth_may_be_scored_beside(model: Any, parts: Any) -> None:
    world = tl.synthetic.World(n_users=400, n_items=120, impressions_per_user=60, seed=2)
    result = evaluated(model, parts, truth=world.truth())
    assert {"shown_auc", "truth_auc", "hidden_ece"} < set(result.means())


def test_what_cannot_be_scored_is_counted_in_warnings() -> None:
    fitted = tl.ItemPop().fit(tl.read(TRAIN))
    taken = tl.read([("ann", "milk"), ("eve", "gin"), ("bob", "rum")])
    shown = tl.read(
        [("ann", "milk"), ("ann", "rum"), ("eve", "gin"), ("eve", "milk"), ("zoe", "tea"), ("ann", "tea")]
    )
    everyone = taken.users.union(shown.users), taken.items.union(shown.items)
    with pytest.warns(DataWarning) as caught:
        result = tl.evaluate(fitted, tl.read(taken.recode(*everyone)[0], impressions=shown), impressions=True)
    messages = [str(each.message) for each in caught]
    assert messages[0].startswith(
        "1 of 6 held-out impressions have a user or an item that the model does not know"
    )
    assert messages[1].startswith("1 of 6 held-out impressions are interactions of the training data")
    assert messages[2].startswith("1 of 3 held-out interactions are not among the held-out impressions")
    assert result.impressions.n_pairs == 4
    assert result["shown_share"] == 0.5


def test_impressions_of_others_are_an_error() -> None:
    fitted = tl.ItemPop().fit(tl.read(TRAIN))
    with (
        pytest.warns(DataWarning),
        pytest.raises(DataError, match="none of the 1 held-out impressions can be scored"),
    ):
        tl.evaluate(fitted, tl.read([("zoe", "cola")], impressions=[("zoe", "cola")]), impressions=True)
    with pytest.raises(DataError, match=r"the test data has no impressions. Read them"):
        tl.evaluate(fitted, tl.read([("ann", "milk")]), impressions=True)


def test_options_of_lists_are_refused(model: Any, parts: Any) -> None:
    with pytest.raises(ParameterError, match="with impressions no lists are computed: leave propensity out"):
        evaluated(model, parts, propensity=0.5)
    with pytest.raises(ParameterError, match="impressions need a test set"):
        tl.evaluate(model, truth=parts.train, impressions=True)
