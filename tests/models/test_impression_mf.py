"""ImpressionMF against worlds whose likes are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.errors import ParameterError

WORLD = tl.synthetic.World(n_users=400, n_items=200, impressions_per_user=120, exposure_skew=1.8, seed=1)
MODEL = tl.ImpressionMF(steps=200, burn_in=80)
DATA = tl.read(WORLD.dataset(), impressions=WORLD.impressions())


@pytest.fixture(scope="module")
def fitted() -> Any:
    return tl.clone(MODEL).fit(DATA, progress=False)


def truth_of(model: Any) -> dict[str, float]:
    found = tl.evaluate(model, truth=WORLD.truth(), ks=(20,)).truth
    assert found is not None
    return {name: float(value.mean()) for name, value in found.values.items()} | found.totals


@pytest.mark.slow
def test_impressions_help_to_rank_true_likes(fitted: Any) -> None:
    without = tl.clone(MODEL).fit(WORLD.dataset(), progress=False)
    assert truth_of(fitted)["truth_ndcg@20"] > truth_of(without)["truth_ndcg@20"] + 0.02


def test_with_impressions_the_posterior_is_calibrated(fitted: Any) -> None:
    found = truth_of(fitted)
    assert found["hidden_pooled_auc"] > 0.6
    assert found["hidden_ece"] < 0.5 * found["hidden_share"]  # always "disliked" is off by the share of likes
    frame = fitted.like_probability([3, 4], [5, 6])
    assert frame.columns == ["user_id", "item_id", "probability", "evidence"]
    assert set(frame["evidence"]) == {"impressions"}


def test_a_model_with_impressions_is_saved_whole(fitted: Any, tmp_path: Path) -> None:
    model = fitted
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.recommend([1, 2, 3]).equals(model.recommend([1, 2, 3]))
    assert (again.steps_, again.exposure_z_) == (model.steps_, model.exposure_z_)
    assert again.hidden_likes([1, 2, 3]).equals(model.hidden_likes([1, 2, 3]))
    assert again.like_probability(1, [0, 1, 2]).equals(model.like_probability(1, [0, 1, 2]))
    assert repr(again.calibration_) == repr(model.calibration_)
    assert again.likes.note == model.likes.note
    history = WORLD.dataset().seen(1)
    assert again.recommend_from_items(history, k=5).equals(model.recommend_from_items(history, k=5))


def test_the_number_of_threads_does_not_change_the_bits(fitted: Any) -> None:
    one = tl.clone(MODEL, n_jobs=1).fit(DATA, progress=False)
    for table in ("users", "items"):
        assert getattr(one.tables_, table).tobytes() == getattr(fitted.tables_, table).tobytes()


def test_what_was_shown_and_not_taken_is_no_hidden_like(fitted: Any) -> None:
    shown = WORLD.impressions()
    listed = fitted.hidden_likes(list(range(20)), k=10)
    pairs = zip(listed["user_id"], listed["item_id"], strict=True)
    assert not any(shown.matrix[user, item] for user, item in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("taste", [0.0, 0.8])
def test_impression_mf_learns_how_much_exposure_follows_tastes(taste: float) -> None:
    """Where it does, what was not shown is liked less than what was, and labels alone do not tell it."""
    world = tl.synthetic.World(
        n_users=500, n_items=250, impressions_per_user=90, exposure_skew=0.9, exposure_taste=taste, seed=2
    )
    found = {}
    for learn in (True, False):
        model = tl.ImpressionMF(steps=300, burn_in=120, taste_in_exposure=learn)
        model.fit(tl.read(world.dataset(), impressions=world.impressions()), progress=False)
        truth = tl.evaluate(model, truth=world.truth(), ks=(20,)).truth
        assert truth is not None
        found[learn] = (model.taste_in_exposure_, truth.totals["hidden_ece"], truth.totals["hidden_pooled_auc"])
    assert found[False][0] == 0
    if taste:
        assert 0.5 < found[True][0] < 1.5
        assert found[True][1] < found[False][1] / 2
        assert found[True][2] > found[False][2] + 0.02
    else:  # it costs nothing, and changes nothing
        assert found[True] == found[False]


STEPS: dict[str, Any] = {"steps": 300, "burn_in": 120}
RECOMMENDED = tl.synthetic.World(
    n_users=500, n_items=250, impressions_per_user=80, exposure_skew=0.9, exposure_taste=0.8, seed=2
)


@pytest.mark.slow
def test_strong_links_of_tastes_and_exposure_are_found() -> None:
    """From an exposure without tastes, training does not get there: a test on held-out pairs tells where to start."""
    world = tl.synthetic.World(n_users=1_500, n_items=250, impressions_per_user=80, exposure_taste=1.5, seed=2)
    data, shown = world.dataset(), world.impressions()
    model = tl.ImpressionMF(**STEPS).fit(tl.read(data, impressions=shown), progress=False)
    assert model.taste_in_exposure_ > 1
    assert model.exposure_z_ > 3
    untested = tl.ImpressionMF(**STEPS, calibrate=False).fit(tl.read(data, impressions=shown), progress=False)
    assert (untested.taste_in_exposure_, untested.exposure_z_) == (0, None)


@pytest.mark.parametrize(("pairs", "steps"), [(10, 300), (4_000_000, 300), (400_000_000, 150)])
def test_there_are_more_steps_where_they_are_cheap(pairs: int, steps: int) -> None:
    assert tl.ImpressionMF()._steps(pairs) == steps
    assert tl.ImpressionMF(steps=7)._steps(pairs) == 7


@pytest.mark.slow
def test_exposure_by_other_tastes_is_not_taken_for_likes() -> None:
    """What is shown follows the tastes of another world."""
    other = tl.synthetic.World(n_users=500, n_items=250, impressions_per_user=80, exposure_taste=1.0, seed=9)
    shown = other.impressions()
    users, items = shown.entry_users, shown.csr.indices
    liked = RECOMMENDED.likes(users, items)
    data = tl.Dataset.from_pairs(shown.users, shown.items, users[liked], items[liked])
    model = tl.ImpressionMF(**STEPS).fit(tl.read(data, impressions=shown), progress=False)
    assert model.taste_in_exposure_ < 0.3


@pytest.mark.slow
def test_a_split_learns_from_what_was_shown_as_all_data_do() -> None:
    data = tl.read(RECOMMENDED.dataset(), impressions=RECOMMENDED.impressions())
    split = tl.splits.by_user(data, validation=0.1, test=0.1, seed=0)
    model = tl.ImpressionMF(**STEPS).fit(split, progress=False)
    assert 0.5 < model.taste_in_exposure_ < 1.5


def test_given_propensities_have_no_taste_in_exposure() -> None:
    pairs = [each.ravel() for each in np.indices((500, 250))]
    likely = np.maximum(1 - RECOMMENDED.flip_probability(*pairs), 1e-6)
    given = pl.DataFrame({"user_id": pairs[0], "item_id": pairs[1], "propensity": likely})
    model = tl.ImpressionMF(steps=30, burn_in=10).fit(
        tl.read(RECOMMENDED.dataset(), impressions=given), progress=False
    )
    assert model.taste_in_exposure_ == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*are not among the impressions")
def test_interactions_that_are_not_among_the_impressions_do_not_tell_of_exposure() -> None:
    """They are known because they were taken, so that exposure would seem to follow tastes."""
    world = tl.synthetic.World(n_users=500, n_items=250, impressions_per_user=80, seed=2)
    shown = world.impressions()
    few = shown.select(np.random.default_rng(0).random(shown.n_interactions) < 0.2)
    model = tl.ImpressionMF(**STEPS).fit(tl.read(world.dataset(), impressions=few), progress=False)
    assert model.taste_in_exposure_ < 0.15


def test_where_everything_was_shown_nothing_is_known_of_exposure() -> None:
    data = WORLD.dataset()
    everything = [each.ravel() for each in np.indices((400, 200))]
    shown = pl.DataFrame({"user_id": everything[0], "item_id": everything[1]})
    model = tl.ImpressionMF(steps=20, burn_in=5).fit(tl.read(data, impressions=shown), progress=False)
    assert model.taste_in_exposure_ == 0


@pytest.mark.slow
def test_where_nearly_everything_was_shown_training_stays_finite() -> None:
    """Then hardly a pair was not shown, and the biases of the exposure have no finite best value."""
    for users, items, shown in ((120, 60, 400), (40, 30, 300), (200, 15, 40)):
        world = tl.synthetic.World(n_users=users, n_items=items, impressions_per_user=shown, exposure_skew=0.3)
        model = tl.ImpressionMF().fit(tl.read(world.dataset(), impressions=world.impressions()), progress=False)
        assert 0 <= model.taste_in_exposure_ < 4
        assert np.abs(model.user_factors_).max() < 50


def test_the_steps_are_reported(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    model = tl.ImpressionMF(steps=10, burn_in=2, factors=4, calibrate=False)
    with caplog.at_level("INFO", logger="truelike"):
        assert tl.clone(model).fit(DATA).steps_ == 10
    assert "ImpressionMF: step 10 of 10" in caplog.text
    assert f"10 steps over {WORLD.impressions().n_interactions:,} shown pairs, 4 factors" in caplog.text
    with pytest.raises(ParameterError, match="not trained in epochs"):
        model.fit(DATA, checkpoint=tmp_path / "c")


def test_the_more_often_shown_the_less_likely_hidden() -> None:
    shown = WORLD.impressions()
    model = tl.ImpressionMF(steps=10, miss_rate=0.5, calibrate=False)
    model.fit(tl.read(WORLD.dataset(), impressions=shown), progress=False)
    pairs = shown.matrix.tocoo()
    flips = model.flip_probability(pairs.row[:200], pairs.col[:200])
    np.testing.assert_allclose(flips, 0.5 ** pairs.data[:200], rtol=1e-4, atol=1e-7)
    assert model.miss_rate_ == 0.5


def test_users_and_items_that_were_not_shown_are_taken_for_average_ones() -> None:
    rng = np.random.default_rng(0)
    users, items = np.repeat(np.arange(200), 40), np.concatenate([rng.permutation(80)[:40] for _ in range(200)])
    tastes, qualities = rng.normal(size=(200, 2)), rng.normal(size=(80, 2))
    taken = rng.random(len(users)) < 1 / (1 + np.exp(2 - (tastes[users] * qualities[items]).sum(axis=1)))
    ages, prices = pl.DataFrame({"user": range(201), "age": 1}), pl.DataFrame({"item": range(81), "price": 1})
    # every user was shown as many items, which tells nothing of what activity means
    data = tl.read((users[taken], items[taken]), impressions=(users, items), users=ages, items=prices)
    model = tl.ImpressionMF(steps=100).fit(data, progress=False)
    for pairs in ((200, list(range(80))), (list(range(200)), [80] * 200)):
        assert model.like_probability(*pairs)["probability"].mean() == pytest.approx(taken.mean(), abs=0.05)
