"""ExactMF and its presets: parameters, new users, impressions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import rankdata

import truelike as tl
from truelike import objectives
from truelike.errors import DataError, NotFittedError, ParameterError, StorageError
from truelike.models.fold_in import fold_in_all
from truelike.objectives import BPO, NBPO, Listwise, NBPOo, Softmax, shift_mc

QUICK: dict[str, Any] = {"factors": 8, "epochs": 30, "batch_size": 64, "learning_rate": 0.05}


# --- parameters -----------------------------------------------------------------------------------


def test_parameters_of_the_sampled_engine_are_unknown() -> None:
    for name in ("negatives", "n_negatives", "order", "positive_weight", "l2_schedule", "l2_rows", "recipe"):
        with pytest.raises(ParameterError, match=f"SoftmaxMF has no parameter '{name}'"):
            tl.SoftmaxMF(**{name: 3})


def test_an_objective_goes_with_its_engine() -> None:
    for objective in ("BPR", objectives.BPR, "NBPR"):
        with pytest.raises(ParameterError, match=r"objective is .*BPO, NBPO, NBPO-s, NBPO-o, softmax, Rel-MF, MF"):
            tl.ExactMF(objective=objective)
    with pytest.raises(ParameterError, match=r"SoftmaxMF: objective is 'BPO'.*ExactMF takes any"):
        tl.SoftmaxMF(objective="BPO")
    with pytest.raises(ParameterError, match=r"unobserved_weight is 0\.5; the listwise objective softmax"):
        tl.ExactMF(objective="softmax", unobserved_weight=0.5)


def test_presets_have_their_own_defaults() -> None:
    assert tl.ExactMF().objective == tl.SoftmaxMF().objective == "softmax"
    assert tl.ExactBPO().unobserved_weight == 1.0


# --- new users ------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [BPO, NBPO, NBPOo, shift_mc(0.3), Softmax], ids=lambda o: o.name)
@pytest.mark.parametrize("prior", [0.3, 3.0])
def test_at_the_folded_row_the_step_of_training_is_zero(objective: Any, prior: float) -> None:
    rng = np.random.default_rng(0)
    V, b = rng.normal(size=(60, 6)).astype(np.float32), rng.normal(size=60).astype(np.float32)
    history, g = np.array([3, 7, 20], dtype=np.int32), rng.normal(size=60)
    row = fold_in_all(V, b, history, objective, g, unobserved_weight=0.4, regularization=prior)
    observed = np.isin(np.arange(60), history)
    r = V.astype(float) @ row + b
    if issubclass(objective, Listwise):
        step = objective.steps(r, observed.astype(float))
    else:
        step = np.where(observed, objective.positive(r, g)[0], 0.4 * objective.negative(r, g)[0])
    assert_allclose(V.T @ step - prior * row, 0, atol=2e-3)


@pytest.fixture(scope="module")
def world() -> Any:
    return tl.synthetic.World(n_users=400, n_items=200, impressions_per_user=150, seed=1)


@pytest.mark.parametrize("name", ["SoftmaxMF", "ExactBPO"])
def test_the_folded_row_of_a_training_user_ranks_as_the_trained_one(name: str, world: Any) -> None:
    data = world.dataset()
    model = getattr(tl, name)(**QUICK | {"epochs": 60}).fit(data)
    shared = []
    for user in range(20):
        known = model.recommend(user, k=20)["item_id"].to_list()
        folded = model.recommend_from_items(data.seen(user), k=20)["item_id"].to_list()
        shared.append(len(set(known) & set(folded)) / 20)
    assert np.mean(shared) > 0.7


# --- impressions ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def informed(world: Any) -> Any:
    return tl.ExactNBPO(**QUICK, regularization=2.0).fit(world.dataset(), impressions=world.impressions())


def auc(scores: Any, truth: Any) -> float:
    ranks, n = rankdata(scores), truth.sum()
    return float((ranks[truth].sum() - n * (n + 1) / 2) / (n * (~truth).sum()))


def test_with_impressions_the_posterior_finds_hidden_likes_and_is_a_probability(informed: Any, world: Any) -> None:
    data = world.dataset()
    users = np.arange(world.n_users, dtype=np.int32)
    unobserved = data.matrix.toarray() == 0
    truth = (world.true_likes().matrix.toarray() > 0)[unobserved]
    known = informed._hidden_like_block(users)[unobserved]
    free = tl.ExactNBPO(**QUICK, regularization=2.0).fit(data)
    assert auc(known, truth) > auc(free._hidden_like_block(users)[unobserved], truth) + 0.05
    assert abs(known.mean() - truth.mean()) < 0.02
    shown = world.impressions().matrix.toarray()[unobserved] > 0
    assert known[shown].max() < 1e-6, "shown, looked at and not observed: a dislike"


def test_hidden_likes_say_what_they_rest_on(informed: Any, world: Any, tmp_path: Path) -> None:
    frame = informed.hidden_likes([0, 1], k=5)
    assert set(frame["flips_from"]) == {"impressions"}
    assert (frame["flip_probability"] > 0.99).all(), "what was never shown"
    informed.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.hidden_likes([0, 1], k=5).equals(frame)
    assert again.recommend_from_items([1, 2]).equals(informed.recommend_from_items([1, 2]))


def test_the_more_often_shown_the_less_likely_hidden(world: Any) -> None:
    model = tl.ExactNBPO(**QUICK | {"epochs": 1}, miss_rate=0.5).fit(
        world.dataset(), impressions=world.impressions()
    )
    shown = world.impressions().matrix.tocoo()
    flips = model.flip_probability(shown.row[:200], shown.col[:200])
    assert_allclose(flips, 0.5 ** shown.data[:200], rtol=1e-4, atol=1e-7)


def test_impressions_come_as_a_frame_as_counts_and_as_propensities(world: Any) -> None:
    data, shown = world.dataset(), world.impressions().matrix.tocoo()
    pairs = {"user_id": shown.row, "item_id": shown.col}
    quick = {**QUICK, "epochs": 1}
    rows = pl.DataFrame(pairs).select(pl.all().repeat_by(pl.Series(shown.data.astype(int)))).explode(pl.all())
    likely = pl.DataFrame({**pairs, "propensity": np.full(shown.nnz, 0.25)})
    for table, expected in ((rows, 0.0), (likely, 0.75), (likely.to_pandas(), 0.75)):
        model = tl.ExactNBPO(**quick).fit(data, impressions=table)
        assert_allclose(model.flip_probability(shown.row[0], shown.col[0]), expected, atol=1e-6)
    counted = tl.ExactNBPO(**quick, miss_rate=0.5).fit(data, impressions=rows)
    twice = np.flatnonzero(shown.data == 2)[0]
    assert_allclose(counted.flip_probability(shown.row[twice], shown.col[twice]), 0.25, rtol=1e-4)


def test_a_fit_without_impressions_forgets_those_of_the_one_before(world: Any) -> None:
    quick = {**QUICK, "epochs": 1}
    model = tl.ExactNBPO(**quick).fit(world.dataset(), impressions=world.impressions())
    assert set(model.fit(world.dataset()).hidden_likes(0)["flips_from"]) == {"interactions"}
    same = tl.ExactNBPO(**quick).fit(world.dataset())
    assert same.user_flips_.tobytes() == model.user_flips_.tobytes()


def test_impressions_that_cannot_be_used_are_an_error(world: Any) -> None:
    data = world.dataset()
    for model in (tl.SoftmaxMF(), tl.ItemKNN(), tl.ExactBPO()):
        with pytest.raises(ParameterError, match=r"does not use impressions.*NBPO"):
            model.fit(data, impressions=world.impressions())
    with pytest.raises(DataError, match="none of the 2 impressions"):
        tl.ExactNBPO().fit(data, impressions=pl.DataFrame({"user_id": [10**6, 10**6 + 1], "item_id": [1, 2]}))
    with pytest.raises(DataError, match=r"1 propensities are outside \(0, 1\], e.g. 1.5"):
        tl.ExactNBPO().fit(
            data, impressions=pl.DataFrame({"user_id": [1, 2], "item_id": [1, 2], "propensity": [1.5, 1]})
        )


def stop_after(epochs: int) -> Any:
    def stop(state: Any) -> None:
        state.stop = state.epoch + 1 == epochs

    return stop


def test_a_run_of_another_number_of_epochs_cannot_be_resumed(world: Any, tmp_path: Path) -> None:
    """The learning rates of its epochs were others."""
    tl.SoftmaxMF(**{**QUICK, "epochs": 5}).fit(world.dataset(), checkpoint=tmp_path / "c")
    with pytest.raises(StorageError, match="other"):
        tl.SoftmaxMF(**{**QUICK, "epochs": 8}).fit(world.dataset(), checkpoint=tmp_path / "c", resume=True)
    fixed = {**QUICK, "decay": 0.9}
    tl.SoftmaxMF(**{**fixed, "epochs": 5}).fit(world.dataset(), checkpoint=tmp_path / "d")
    resumed = tl.SoftmaxMF(**{**fixed, "epochs": 8}).fit(world.dataset(), checkpoint=tmp_path / "d", resume=True)
    whole = tl.SoftmaxMF(**{**fixed, "epochs": 8}).fit(world.dataset())
    assert resumed.user_factors_.tobytes() == whole.user_factors_.tobytes()


def test_a_stopped_run_goes_on_to_the_same_bits(world: Any, tmp_path: Path) -> None:
    data = world.dataset()
    whole = tl.SoftmaxMF(**{**QUICK, "epochs": 8}).fit(data)
    tl.SoftmaxMF(**{**QUICK, "epochs": 8}).fit(data, callbacks=[stop_after(5)], checkpoint=tmp_path / "c")
    resumed = tl.SoftmaxMF(**{**QUICK, "epochs": 8}).fit(data, checkpoint=tmp_path / "c", resume=True)
    for name, table in whole.tables_.arrays().items():
        assert resumed.tables_.arrays()[name].tobytes() == table.tobytes(), name


def test_partial_fit_keeps_the_biases_of_known_items(world: Any) -> None:
    model = tl.SoftmaxMF(**QUICK).fit(world.dataset())
    before = model.item_bias_.copy()
    model.partial_fit(tl.read([(0, 500), (1000, 3)]), epochs=1)
    assert model.item_bias_.shape == (world.n_items + 1,)
    assert_allclose(model.item_bias_[: world.n_items], before, atol=0.3)
    assert len(model.recommend(1000, k=3)) == 3


# --- objectives of one's own, and partial_fit ---------------------------------------------------------


def test_the_softmax_as_a_class_is_the_softmax_by_its_name(world: Any, tmp_path: Path) -> None:
    model = tl.ExactMF(objective=Softmax, **{**QUICK, "epochs": 1}).fit(world.dataset())
    model.save(tmp_path / "model")
    assert tl.load(tmp_path / "model").objective == "softmax"


def test_impressions_go_along_when_new_users_and_items_come(world: Any) -> None:
    model = tl.ExactNBPO(**{**QUICK, "epochs": 2}).fit(world.dataset(), impressions=world.impressions())
    pairs = world.impressions().matrix.tocoo()
    before = model.flip_probability(pairs.row[:50], pairs.col[:50])
    model.partial_fit(tl.read([(-5, 3), (-4, 1_000), (0, 1_000), (-4, 2)]), epochs=1)
    assert model.known_flips_.shape == model.train_.matrix.shape
    assert_allclose(model.flip_probability(pairs.row[:50], pairs.col[:50]), before)
    assert model.flip_probability(-5, 7) > 0.999


def test_a_new_user_of_partial_fit_ranks_by_their_interactions(world: Any) -> None:
    data = world.dataset()
    old = data.select(data.user_of_entry >= 40)
    newcomers = data.select(data.user_of_entry < 40)
    model = tl.SoftmaxMF(**QUICK).fit(tl.read(old.to_frame()))
    model.partial_fit(tl.read(newcomers.to_frame()), epochs=1)
    shared = []
    for user in np.unique(newcomers.user_of_entry):
        listed = model.recommend(user, k=10)["item_id"].to_list()
        folded = model.recommend_from_items(data.seen(user), k=10)["item_id"].to_list()
        shared.append(len(set(listed) & set(folded)) / 10)
    assert np.mean(shared) > 0.8


def test_a_checkpoint_of_other_impressions_is_refused(world: Any, tmp_path: Path) -> None:
    quick, data, shown = {**QUICK, "epochs": 2}, world.dataset(), world.impressions()
    tl.ExactNBPO(**quick).fit(data, impressions=shown, checkpoint=tmp_path / "c")
    never = np.flatnonzero(shown.matrix[[0]].toarray()[0] == 0)[:1].astype(np.int32)
    more = shown.merge(tl.Dataset.from_pairs(shown.users, shown.items, np.zeros(1, np.int32), never))
    for other in (more, None):
        with pytest.raises(StorageError, match="other data"):
            tl.ExactNBPO(**quick).fit(data, impressions=other, checkpoint=tmp_path / "c", resume=True)


def test_a_file_with_propensities_is_read_as_a_frame_is(world: Any, tmp_path: Path) -> None:
    shown = world.impressions().matrix.tocoo()
    likely = pl.DataFrame({"user_id": shown.row, "item_id": shown.col, "propensity": np.full(shown.nnz, 0.25)})
    likely.write_csv(tmp_path / "shown.csv")
    model = tl.ExactNBPO(**{**QUICK, "epochs": 1}).fit(world.dataset(), impressions=tmp_path / "shown.csv")
    assert_allclose(model.flip_probability(shown.row[0], shown.col[0]), 0.75, atol=1e-6)
    with pytest.raises(DataError, match="listed before"):
        tl.ExactNBPO().fit(world.dataset(), impressions=pl.concat([likely, likely]))


@pytest.mark.parametrize("kind", [tl.SampledMF, tl.ExactMF])
def test_an_objective_of_two_functions_is_enough(kind: Any, world: Any, tmp_path: Path) -> None:
    class Mine(objectives.Pointwise):
        name = "Mine"

        @staticmethod
        def positive(r: Any, g: Any) -> Any:
            return objectives.sigmoid(-r), 0 * g

        @staticmethod
        def negative(r: Any, g: Any) -> Any:
            return -0.5 * objectives.sigmoid(r), 0 * g

    model = kind(objective=Mine, factors=4, epochs=2).fit(world.dataset())
    assert model.history_["loss"].is_nan().all()
    assert len(model.recommend(0, k=3)) == 3
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.recommend(0).equals(model.recommend(0))
    with pytest.raises(ParameterError, match=r"'Mine' is a class of your own.*objective="):
        again.recommend_from_items([1])
    whole = tl.load(tmp_path / "model", objective=Mine)
    assert whole.recommend_from_items([1]).equals(model.recommend_from_items([1]))


def test_a_model_that_is_not_fitted_says_so_when_asked_for_hidden_likes() -> None:
    with pytest.raises(NotFittedError):
        tl.NBPO().hidden_likes("a")


@pytest.mark.parametrize("item_bias", [True, False])
def test_exposure_by_item_is_one_number_per_item_and_survives_saving(item_bias: bool, tmp_path: Path) -> None:
    data = tl.synthetic.World(n_users=100, n_items=60).dataset()
    model = tl.ExactNBPO(factors=4, epochs=2, exposure="item", item_bias=item_bias).fit(data)
    flips = model.flip_probability([1, 2, 3], [7, 7, 7])
    assert len(set(flips.tolist())) == 1
    model.save(tmp_path / "model")
    assert_array_equal(tl.load(tmp_path / "model").flip_probability([1, 2, 3], [7, 7, 7]), flips)
