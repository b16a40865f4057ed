"""Impressions in every model that takes them, against worlds whose likes are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose

import truelike as tl
from truelike.errors import ParameterError, ParameterWarning

WORLD = tl.synthetic.World(n_users=400, n_items=200, impressions_per_user=120, exposure_skew=1.8, seed=1)
MODELS = {
    "NBPO": tl.NBPO(factors=8, epochs=40, learning_rate=0.05),
    "ExactNBPO": tl.ExactNBPO(factors=8, regularization=3.0),
    "ImpressionMF": tl.ImpressionMF(steps=200, burn_in=80),
    "BPR": tl.BPR(factors=8, epochs=40),
    "IALS": tl.IALS(factors=16),
}


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    data, shown = WORLD.dataset(), WORLD.impressions()
    return {name: tl.clone(model).fit(data, impressions=shown, progress=False) for name, model in MODELS.items()}


def truth_of(model: Any) -> dict[str, float]:
    found = tl.evaluate(model, truth=WORLD.truth(), ks=(20,)).truth
    assert found is not None
    return {name: float(value.mean()) for name, value in found.values.items()} | found.totals


@pytest.mark.parametrize("name", MODELS)
def test_impressions_help_to_rank_true_likes(name: str, fitted: dict[str, Any]) -> None:
    without = tl.clone(MODELS[name]).fit(WORLD.dataset(), progress=False)
    assert truth_of(fitted[name])["truth_ndcg@20"] > truth_of(without)["truth_ndcg@20"] + 0.02


@pytest.mark.parametrize("name", ["NBPO", "ExactNBPO", "ImpressionMF"])
def test_with_impressions_the_posterior_is_calibrated(name: str, fitted: dict[str, Any]) -> None:
    found = truth_of(fitted[name])
    assert found["hidden_pooled_auc"] > 0.6
    assert found["hidden_ece"] < 0.5 * found["hidden_share"]  # always "disliked" is off by the share of likes
    frame = fitted[name].like_probability([3, 4], [5, 6])
    assert frame.columns == ["user_id", "item_id", "probability", "basis"]
    assert set(frame["basis"]) == {"impressions"}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_impressions_is_saved_whole(name: str, fitted: dict[str, Any], tmp_path: Path) -> None:
    model = fitted[name]
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.recommend([1, 2, 3]).equals(model.recommend([1, 2, 3]))
    if hasattr(model, "hidden_likes"):
        assert again.hidden_likes([1, 2, 3]).equals(model.hidden_likes([1, 2, 3]))
        assert again.like_probability(1, [0, 1, 2]).equals(model.like_probability(1, [0, 1, 2]))
    history = WORLD.dataset().seen(1)
    assert again.recommend_from_items(history, k=5).equals(model.recommend_from_items(history, k=5))


@pytest.mark.parametrize("name", ["NBPO", "BPR", "IALS", "ImpressionMF"])
def test_the_number_of_threads_does_not_change_the_bits(name: str, fitted: dict[str, Any]) -> None:
    one = tl.clone(MODELS[name], n_jobs=1).fit(WORLD.dataset(), impressions=WORLD.impressions(), progress=False)
    for table in ("users", "items"):
        assert getattr(one.tables_, table).tobytes() == getattr(fitted[name].tables_, table).tobytes()


@pytest.mark.parametrize("name", ["NBPO", "BPR", "IALS"])
def test_impressions_go_along_when_new_users_and_items_come(
    name: str, fitted: dict[str, Any], tmp_path: Path
) -> None:
    fitted[name].save(tmp_path / "model")
    model = tl.load(tmp_path / "model")
    model.partial_fit(tl.read([(-5, 3), (-4, 1_000), (0, 1_000), (-4, 2)]), epochs=1, progress=False)
    assert len(model.recommend(-5, k=3)) == 3
    assert 1_000 in set(model.train_.items.values)


def test_what_was_shown_and_not_taken_is_no_hidden_like(fitted: dict[str, Any]) -> None:
    shown = WORLD.impressions()
    for name in ("NBPO", "ExactNBPO", "ImpressionMF"):
        listed = fitted[name].hidden_likes(list(range(20)), k=10)
        pairs = zip(listed["user_id"], listed["item_id"], strict=True)
        assert not any(shown.matrix[user, item] for user, item in pairs)


def test_ials_with_impressions_solves_its_objective() -> None:
    """The rows of users are those of the dense ridge regression, at its own items."""
    data, shown = WORLD.dataset(), WORLD.impressions()
    model = tl.IALS(factors=6, solver="cholesky", epochs=3, shown_weight=0.7).fit(data, impressions=shown)
    engine_items = model.item_factors_.astype(float)
    observed, seen = data.matrix.toarray() > 0, (shown.matrix.toarray() > 0) | (data.matrix.toarray() > 0)
    weights = model._weights(data)
    other = tl.IALS(factors=6, solver="cg", cg_steps=30, relaxation=1.0, epochs=3, shown_weight=0.7).fit(
        data, impressions=shown
    )
    assert_allclose(other.item_factors_, model.item_factors_, atol=2e-3)
    # one more half epoch of the users, by hand
    from truelike.training.als.engine import AlternatingEngine, Solver
    from truelike.training.impressions import shown_pairs

    tables = model.tables_.copy()
    pairs = shown_pairs(shown, data, 0.0)
    engine = AlternatingEngine(data, tables, weights, solver=Solver("cholesky", 3), n_jobs=1, shown=pairs.csr())
    engine._solve(engine.sides[0])
    for user in (0, 17, 399):
        ridge = weights.ridge(observed[user].sum(), data.n_items)
        matrix = (
            engine_items[observed[user]].T @ engine_items[observed[user]]
            + 0.7 * engine_items[seen[user]].T @ engine_items[seen[user]]
            + weights.unobserved * engine_items.T @ engine_items
            + ridge * np.eye(6)
        )
        expected = np.linalg.solve(matrix, engine_items[observed[user]].sum(axis=0))
        assert_allclose(tables.user_factors[user], expected, atol=1e-4)


def test_a_share_as_validation_is_refused_with_impressions() -> None:
    for model in (tl.NBPO(), tl.IALS(), tl.ExactNBPO()):
        with pytest.raises(ParameterError, match="held-out interaction looks like a dislike"):
            model.fit(WORLD.dataset(), impressions=WORLD.impressions(), validation=0.1)


@pytest.mark.parametrize("exposure", ["none", "popularity^0.5", "structured", "item", "learned"])
def test_exposure_without_impressions_says_what_it_rests_on(exposure: str) -> None:
    model = tl.ExactNBPO(factors=8, exposure=exposure, epochs=5).fit(WORLD.dataset(), progress=False)
    [basis] = set(model.like_probability(1, [2, 3])["basis"])
    assert basis == "interactions alone: not identified" if exposure in ("item", "learned") else "assumed" in basis


def test_structured_exposure_finds_true_likes_better_than_learned_flips() -> None:
    world = tl.synthetic.World(n_users=1_200, n_items=600, impressions_per_user=200, exposure_skew=1.8, seed=1)
    found = {}
    for exposure in ("learned", "structured"):
        model = tl.ExactNBPO(factors=16, exposure=exposure, regularization=3.0).fit(
            world.dataset(), progress=False
        )
        scores = tl.evaluate(model, truth=world.truth(), ks=(20,)).truth
        assert scores is not None
        found[exposure] = scores.totals
    assert found["structured"]["hidden_pooled_auc"] > found["learned"]["hidden_pooled_auc"] + 0.03
    assert found["structured"]["hidden_ece"] < found["learned"]["hidden_ece"] - 0.01


@pytest.mark.parametrize("objective", ["Rel-MF", "MF-DU", "UBPR", "UPL"])
def test_unbiased_objectives_train_save_and_fold_in(objective: str, tmp_path: Path) -> None:
    model = tl.SampledMF(objective=objective, factors=8, epochs=5).fit(WORLD.dataset(), progress=False)
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.recommend([1, 2]).equals(model.recommend([1, 2]))
    assert len(again.recommend_from_items([1, 2, 3], k=5)) == 5
    assert len(again.explain(1, again.recommend(1, k=1)["item_id"][0])) > 0


@pytest.mark.parametrize("model", [tl.ExactNBPO(factors=4, epochs=5), tl.NBPO(factors=4, epochs=5)])
def test_an_item_that_nobody_saw_is_no_better_than_the_usual_one(model: Any) -> None:
    """A new item of `partial_fit` was taken by the one who came with it; nothing is known of others."""
    data, shown = WORLD.dataset(), WORLD.impressions()
    fitted = tl.clone(model).fit(data, impressions=shown, progress=False)
    fitted.partial_fit([(0, 9_999)], epochs=1, progress=False)
    users = list(range(1, 300))
    new = fitted.like_probability(users, 9_999)["probability"].to_numpy()
    assert 0.02 < new.mean() < 0.3, new.mean()


@pytest.mark.parametrize("model", [tl.ExactNBPO(factors=4, epochs=1), tl.NBPO(factors=4, epochs=1)])
def test_exposure_beside_impressions_is_warned_of(model: Any) -> None:
    with pytest.warns(ParameterWarning, match="exposure is 'structured', which is not used: the impressions say"):
        tl.clone(model, exposure="structured").fit(
            WORLD.dataset(), impressions=WORLD.impressions(), progress=False
        )


def test_no_interaction_counts_more_than_ten_times_another() -> None:
    model = tl.SampledMF(objective="UBPR", factors=4, epochs=1).fit(WORLD.dataset(), progress=False)
    assert model.known_flips_.propensity_block(np.arange(400)).min() == pytest.approx(0.1)


def test_impression_mf_tells_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="truelike"):
        tl.ImpressionMF(steps=30, burn_in=10, calibrate=False).fit(
            WORLD.dataset(), impressions=WORLD.impressions()
        )
    assert "ImpressionMF: step 30 of 30" in caplog.text


@pytest.mark.parametrize("taste", [0.0, 0.8])
def test_impression_mf_learns_how_much_exposure_follows_tastes(taste: float) -> None:
    """Where it does, what was not shown is liked less than what was, and labels alone do not tell it."""
    world = tl.synthetic.World(
        n_users=500, n_items=250, impressions_per_user=90, exposure_skew=0.9, exposure_taste=taste, seed=2
    )
    found = {}
    for learn in (True, False):
        model = tl.ImpressionMF(steps=300, burn_in=120, taste_in_exposure=learn)
        model.fit(world.dataset(), impressions=world.impressions(), progress=False)
        truth = tl.evaluate(model, truth=world.truth(), ks=(20,)).truth
        assert truth is not None
        found[learn] = (model.taste_in_exposure_, truth.totals["hidden_ece"], truth.totals["hidden_pooled_auc"])
    assert found[False][0] == 0
    if taste:
        assert 0.5 < found[True][0] < 1.5
        assert found[True][1] < found[False][1] / 2
        assert found[True][2] > found[False][2] + 0.02
    else:
        assert found[True][0] < 0.15
        assert found[True][2] == pytest.approx(found[False][2], abs=0.02)


STEPS: dict[str, Any] = {"steps": 300, "burn_in": 120}
RECOMMENDED = tl.synthetic.World(
    n_users=500, n_items=250, impressions_per_user=80, exposure_skew=0.9, exposure_taste=0.8, seed=2
)


def test_strong_links_of_tastes_and_exposure_are_found() -> None:
    """From an exposure without tastes, training does not get there: held-out pairs tell where to start."""
    world = tl.synthetic.World(n_users=500, n_items=250, impressions_per_user=80, exposure_taste=1.5, seed=2)
    data, shown = world.dataset(), world.impressions()
    model = tl.ImpressionMF(**STEPS).fit(data, impressions=shown, progress=False)
    assert model.taste_in_exposure_ > 1
    stuck = tl.ImpressionMF(**STEPS, calibrate=False).fit(data, impressions=shown, progress=False)
    assert stuck.taste_in_exposure_ < 0.5


def test_exposure_by_other_tastes_is_not_taken_for_likes() -> None:
    """What is shown follows the tastes of another world."""
    other = tl.synthetic.World(n_users=500, n_items=250, impressions_per_user=80, exposure_taste=1.0, seed=9)
    shown = other.impressions()
    users, items = shown._user_of_entry, shown._csr.indices
    liked = RECOMMENDED.likes(users, items)
    data = tl.Dataset.from_pairs(shown.users, shown.items, users[liked], items[liked])
    model = tl.ImpressionMF(**STEPS).fit(data, impressions=shown, progress=False)
    assert model.taste_in_exposure_ < 0.3


def test_a_split_learns_from_what_was_shown_as_all_data_do() -> None:
    split = tl.splits.by_user(RECOMMENDED.dataset(), validation=0.1, test=0.1, seed=0)
    model = tl.ImpressionMF(**STEPS).fit(
        split, impressions=split.impressions(RECOMMENDED.impressions()), progress=False
    )
    assert 0.5 < model.taste_in_exposure_ < 1.5


def test_given_propensities_have_no_taste_in_exposure() -> None:
    pairs = [each.ravel() for each in np.indices((500, 250))]
    likely = np.maximum(1 - RECOMMENDED.flip_probability(*pairs), 1e-6)
    given = pl.DataFrame({"user_id": pairs[0], "item_id": pairs[1], "propensity": likely})
    model = tl.ImpressionMF(steps=30, burn_in=10).fit(RECOMMENDED.dataset(), impressions=given, progress=False)
    assert model.taste_in_exposure_ == 0


@pytest.mark.filterwarnings("ignore:.*are not among the impressions")
def test_interactions_that_are_not_among_the_impressions_do_not_tell_of_exposure() -> None:
    """They are known because they were taken, so that exposure would seem to follow tastes."""
    world = tl.synthetic.World(n_users=500, n_items=250, impressions_per_user=80, seed=2)
    shown = world.impressions()
    few = shown.select(np.random.default_rng(0).random(shown.n_interactions) < 0.2)
    model = tl.ImpressionMF(**STEPS).fit(world.dataset(), impressions=few, progress=False)
    assert model.taste_in_exposure_ < 0.15


def test_where_everything_was_shown_nothing_is_known_of_exposure() -> None:
    data = WORLD.dataset()
    everything = [each.ravel() for each in np.indices((400, 200))]
    shown = pl.DataFrame({"user_id": everything[0], "item_id": everything[1]})
    model = tl.ImpressionMF(steps=20, burn_in=5).fit(data, impressions=shown, progress=False)
    assert model.taste_in_exposure_ == 0


def test_impressions_of_a_file_beside_a_split_are_checked(tmp_path: Path) -> None:
    split = tl.splits.by_user(WORLD.dataset(), validation=0.1, test=0.1, seed=0)
    shown = WORLD.impressions()
    raw = pl.DataFrame({"user_id": shown._user_of_entry, "item_id": shown._csr.indices})
    raw.write_csv(tmp_path / "raw.csv")
    with pytest.raises(ParameterError, match="held-out interactions are among the impressions"):
        tl.NBPO(epochs=1).fit(split, impressions=tmp_path / "raw.csv", progress=False)
    split.impressions(shown).write_csv(tmp_path / "corrected.csv")
    rows = str(tmp_path / "corrected.csv")
    model = tl.ImpressionMF(steps=20, burn_in=5).fit(split, impressions=rows, progress=False)
    assert model.known_flips_.all_shown


@pytest.mark.parametrize("objective", ["Rel-MF", "MF-DU"])
def test_given_propensities_are_clipped_where_they_are_divided_by(objective: str) -> None:
    shown = WORLD.impressions()
    rare = pl.DataFrame(
        {
            "user_id": shown._user_of_entry,
            "item_id": shown._csr.indices,
            "propensity": 1e-4 + 0.5 * (shown._csr.indices % 2),
        }
    )
    model = tl.SampledMF(objective=objective, factors=4, epochs=2).fit(
        WORLD.dataset(), impressions=rare, progress=False
    )
    users, items = shown._user_of_entry, shown._csr.indices
    assert model.flip_probability(users, items).max() == pytest.approx(0.9, abs=1e-4)


def test_where_nearly_everything_was_shown_training_stays_finite() -> None:
    """Then hardly a pair was not shown, and the biases of the exposure have no finite best value."""
    for users, items, shown in ((120, 60, 400), (40, 30, 300), (200, 15, 40)):
        world = tl.synthetic.World(n_users=users, n_items=items, impressions_per_user=shown, exposure_skew=0.3)
        model = tl.ImpressionMF().fit(world.dataset(), impressions=world.impressions(), progress=False)
        assert 0 <= model.taste_in_exposure_ < 4
        assert np.abs(model.user_factors_).max() < 50
