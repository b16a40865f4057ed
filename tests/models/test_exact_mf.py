"""ExactMF and its presets: parameters, new users, resumed runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import truelike as tl
from truelike import objectives
from truelike.errors import NotFittedError, ParameterError, StorageError
from truelike.models.fold_in import AllItemsFoldIn
from truelike.objectives import BPO, NBPO, Listwise, NBPOo, Softmax, shift_mc

QUICK: dict[str, Any] = {"factors": 8, "epochs": 30, "batch_size": 64, "learning_rate": 0.05}


# --- parameters -----------------------------------------------------------------------------------


def test_an_objective_goes_with_its_engine() -> None:
    for objective in ("BPR", objectives.BPR, "NBPR"):
        with pytest.raises(ParameterError, match=r"objective is .*BPO, NBPO, NBPO-s, NBPO-o, NBPO-lb, softmax, "):
            tl.ExactMF(objective=objective)
    with pytest.raises(ParameterError, match=r"SoftmaxMF: objective is 'BPO'.*ExactMF takes any"):
        tl.SoftmaxMF(objective="BPO")
    with pytest.raises(ParameterError, match=r"unobserved_weight is 0\.5; the listwise objective softmax"):
        tl.ExactMF(objective="softmax", unobserved_weight=0.5)


# --- new users ------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [BPO, NBPO, NBPOo, shift_mc(0.3), Softmax], ids=lambda o: o.name)
@pytest.mark.parametrize("prior", [0.3, 3.0])
def test_at_the_folded_row_the_step_of_training_is_zero(objective: Any, prior: float) -> None:
    rng = np.random.default_rng(0)
    V, b = rng.normal(size=(60, 6)).astype(np.float32), rng.normal(size=60).astype(np.float32)
    history, g = np.array([3, 7, 20], dtype=np.int32), rng.normal(size=60)
    flips = SimpleNamespace(average_logits=lambda: g)
    row = AllItemsFoldIn(V, b, objective, flips, unobserved_weight=0.4, l2=prior).row(history)
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


def test_a_run_of_another_number_of_epochs_cannot_be_resumed(world: Any, tmp_path: Path) -> None:
    """The learning rates of its epochs were others."""
    tl.SoftmaxMF(**{**QUICK, "epochs": 5}).fit(world.dataset(), checkpoint=tmp_path / "c")
    with pytest.raises(StorageError, match="other"):
        tl.SoftmaxMF(**{**QUICK, "epochs": 8}).fit(world.dataset(), checkpoint=tmp_path / "c", resume=True)


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
