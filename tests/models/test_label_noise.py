"""Probabilities of likes: ids in and out, their evidence, and that they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose

import truelike as tl
from truelike.errors import ParameterError, UnknownIdError
from truelike.models.label_noise import NOTES

WORLD = tl.synthetic.World(n_users=200, n_items=100, impressions_per_user=70, seed=0)
QUICK: dict[str, Any] = {"factors": 6, "epochs": 4}
ALONE = "interactions"
INFORMED = tl.ImpressionMF(steps=40, burn_in=10, samples=4)


def named(frame: Any) -> Any:
    """Pairs with ids that are texts."""
    return frame.select(
        pl.format("u{}", "user_id").alias("user_id"),
        pl.format("i{}", "item_id").alias("item_id"),
        *frame.columns[2:],
    )


@pytest.fixture(scope="module")
def data() -> Any:
    return tl.read(named(WORLD.dataset().to_frame().select("user_id", "item_id")))


@pytest.fixture(scope="module")
def shown(data: Any) -> Any:
    found = tl.read(named(WORLD.impressions().to_frame().select("user_id", "item_id")))
    return found.recode(data.users, data.items)[0]


@pytest.fixture(scope="module")
def informed(data: Any, shown: Any) -> Any:
    return tl.clone(INFORMED).fit(tl.read(data, impressions=shown), progress=False)


# --- ids ------------------------------------------------------------------------------------------


def test_ids_go_in_and_come_out(informed: Any) -> None:
    found = informed.like_probability(["u7", "u2", "u7"], ["i3", "i4", "i5"])
    assert found.columns == ["user_id", "item_id", "probability", "evidence"]
    assert found["user_id"].to_list() == ["u7", "u2", "u7"]
    assert found["item_id"].to_list() == ["i3", "i4", "i5"]
    assert found["probability"].dtype == pl.Float32
    assert found["probability"].is_between(0, 1).all()


def test_one_user_goes_with_many_items_and_the_other_way_round(informed: Any) -> None:
    items = ["i3", "i4", "i5"]
    found = informed.like_probability("u7", items)
    assert found.equals(informed.like_probability(["u7"] * 3, items))
    assert informed.like_probability(["u7", "u2"], "i3")["item_id"].to_list() == ["i3", "i3"]
    assert informed.like_probability("u7", "i3").height == 1
    with pytest.raises(ParameterError, match="like_probability takes pairs: 3 users and 2 items"):
        informed.like_probability(["u1", "u2", "u3"], ["i1", "i2"])


def test_an_unknown_id_is_an_error_that_names_it(informed: Any) -> None:
    with pytest.raises(UnknownIdError, match="'nobody'"):
        informed.like_probability(["u7", "nobody"], "i3")
    with pytest.raises(UnknownIdError, match="'nothing'"):
        informed.like_probability("u7", ["nothing"])


def test_the_frame_is_of_the_library_that_asks(informed: Any) -> None:
    assert isinstance(informed.like_probability(pd.Series(["u7"]), "i3"), pd.DataFrame)
    assert isinstance(informed.like_probability("u7", "i3"), pl.DataFrame)


def test_hidden_likes_use_the_same_probability(informed: Any) -> None:
    """For an item that was never shown, no interaction says nothing, so the posterior is p(like)."""
    hidden = informed.hidden_likes(["u7", "u9"], k=30).filter(pl.col("flip_probability") > 0.999)
    assert hidden.height
    likely = informed.like_probability(hidden["user_id"], hidden["item_id"])["probability"]
    assert_allclose(hidden["posterior"].to_numpy(), likely.to_numpy(), rtol=1e-3)
    assert hidden["evidence"].unique().to_list() == ["impressions"]


# --- evidence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [tl.NBPO(**QUICK), tl.ExactNBPO(**QUICK)], ids=repr)
def test_interactions_alone_are_no_evidence_for_probabilities(model: Any, data: Any) -> None:
    model.fit(data, progress=False)
    assert model.like_probability("u7", ["i3", "i4"])["evidence"].to_list() == [ALONE] * 2
    assert set(model.hidden_likes("u7", k=3)["evidence"]) == {ALONE}
    assert not model.likes.is_identified
    assert "not probabilities" in model.likes.note


def test_propensities_are_evidence_of_their_own(data: Any, shown: Any) -> None:
    table = shown.to_frame().select("user_id", "item_id", pl.lit(0.6).alias("propensity"))
    model = tl.clone(INFORMED).fit(tl.read(data, impressions=table), progress=False)
    assert model.like_probability("u7", "i3")["evidence"].item() == "propensities"
    assert "how likely a like of each item would have been observed" in model.likes.note


def test_the_sentences_say_when_a_number_is_no_probability(informed: Any) -> None:
    assert f"calibrated on {informed.calibration_.pairs:,} held-out impressions" in informed.likes.note
    assert "not probabilities" in NOTES[ALONE]
    assert "not probabilities" not in NOTES["assumed: user activity and item visibility"]


# --- storage --------------------------------------------------------------------------------------


def test_a_fit_without_impressions_forgets_those_of_the_one_before(data: Any, shown: Any) -> None:
    model = tl.clone(INFORMED).fit(tl.read(data, impressions=shown), progress=False)
    assert model.calibration_ is not None
    model.fit(data, progress=False)
    assert model.calibration_ is None
    found = model.like_probability("u7", ["i3"])
    assert found["evidence"].item() == ALONE


@pytest.mark.parametrize("samples", [1, 3, 4, 8])
def test_a_saved_mean_over_samples_is_the_same(samples: int, data: Any, shown: Any, tmp_path: Path) -> None:
    """Rows are wider than their factors, so that the number of factors must be saved."""
    model = tl.ImpressionMF(factors=4, steps=20, burn_in=8, samples=samples)
    model.fit(tl.read(data, impressions=shown), progress=False).save(tmp_path / "model")
    items = list(data.items)
    again: Any = tl.load(tmp_path / "model")
    assert again.like_probability("u7", items).equals(model.like_probability("u7", items))
    codes = np.zeros(len(items), dtype=np.int32), np.arange(len(items), dtype=np.int32)
    first = model.like_probability(data.users[0], items)["probability"].to_numpy()
    assert_allclose(again.likes.of_pairs(*codes, np.zeros(len(items), np.float32)), first, rtol=1e-4)
