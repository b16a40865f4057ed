"""Networks are trained, resumed, saved and asked as every model is."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.core.files import write_description
from truelike.errors import (
    DivergedError,
    MissingExtraError,
    ParameterError,
    StorageError,
    TooLargeError,
    TrainingWarning,
)

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")

from truelike.engines.torch import backend  # noqa: E402
from truelike.models.networks import base  # noqa: E402

Quick = Callable[..., dict[str, Any]]
NETWORKS = ["FM", "NeuMF", "ACF", "LightGCN", "DeepRecommender"]
USERS = np.arange(60, dtype=np.int32)
KINDS = pl.DataFrame({"item": np.arange(40), "kind": [f"k{i % 4}" for i in range(40)]})
SAME_TASTE = USERS[:, None] % 4 == np.arange(40)[None, :] % 4  # in `world`


def bits(model: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in model.networks_.arrays().items()}


@pytest.mark.parametrize(
    ("preference", "flips"),
    [("NeuMF", "MF"), ("MF", "NeuMF"), ("LightGCN", "ACF"), ("ACF", "LightGCN"), ("FM", "FM"), ("MF", None)],
)
def test_any_two_networks_can_be_combined(trained: Any, preference: str, flips: str | None) -> None:
    model = trained("DeepRecommender", preference=preference, flips=flips, objective="NBPO")
    scores = model.scorer.score_users(USERS)
    assert scores[SAME_TASTE].mean() > scores[~SAME_TASTE].mean() + 0.3
    assert hasattr(model, "hidden_likes") == (flips is not None)
    if flips is not None:
        assert model.flip_probability([0, 1], [2, 3]).shape == (2,)
        assert model.hidden_likes(3, k=5)["evidence"].unique().to_list() == ["interactions"]


@pytest.mark.parametrize("objective", ["BPO", "BPR", "NBPO", "NBPO-s", "NBPO-o", "ShiftMC", "NBPR"])
def test_every_objective_trains_a_network(world: Any, quick: Quick, objective: str) -> None:
    model = tl.NeuMF(**quick(objective=objective, epochs=8)).fit(world)
    losses = model.history_["loss"].to_numpy()
    assert losses[-1] < losses[0]
    assert hasattr(model, "hidden_likes") == objective.startswith("NBPO")


@pytest.mark.parametrize(
    ("given", "interactions", "expected"), [(None, 10_000, 5_000), (None, 250_000, 6_250), (77, 250_000, 77)]
)
def test_lightgcn_takes_forty_batches_an_epoch_at_most(
    given: int | None, interactions: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "NetworkEngine", lambda *given, **how: given[4])
    assert (
        tl.LightGCN(batch_size=given, regularization=1.0, n_jobs=1)
        ._engine(SimpleNamespace(n_interactions=interactions), None)
        .batch_size
        == expected
    )


def test_acf_uses_and_saves_item_features(world: Any, quick: Quick, tmp_path: Path) -> None:
    model = tl.ACF(**quick(epochs=3)).fit(tl.read(world, items=KINDS))
    assert model.networks_.preference.components is not None
    model.save(tmp_path / "model")
    assert tl.load(tmp_path / "model").recommend().equals(model.recommend())


@pytest.mark.parametrize("name", ["FM", "NeuMF", "ACF", "LightGCN"])
def test_a_user_with_one_interaction_can_be_trained_and_gets_recommendations(name: str, quick: Quick) -> None:
    rows = [("one", "a"), *((f"u{u}", item) for u in range(9) for item in "abcd" if item != "abcd"[u % 4])]
    model = getattr(tl, name)(**quick(epochs=3)).fit(tl.read(rows))
    assert model.recommend("one", k=3).height == 3


# --- regularization -------------------------------------------------------------------------------


def test_a_regularization_that_shrinks_the_network_to_zero_is_a_warning(world: Any, quick: Quick) -> None:
    with pytest.warns(
        TrainingWarning,
        match=r"standard deviation of the scores is only .* regularization=2000 .* Try regularization=500",
    ):
        tl.DeepRecommender(**quick(objective="BPR", regularization=2000.0)).fit(world)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tl.DeepRecommender(**quick(objective="BPR", regularization=1.0)).fit(world)


@pytest.mark.filterwarnings("ignore::truelike.errors.TrainingWarning")
@pytest.mark.parametrize(("interactions", "share"), [(30, 1.0), (5, 0.25)], ids=["dense", "sparse"])
@pytest.mark.parametrize(("objective", "strength"), [("BPO", 15.0), ("NBPO", 8.0)])
def test_the_default_regularization_depends_on_flips_and_sparsity(
    objective: str, strength: float, interactions: int, share: float
) -> None:
    data = tl.read([(u, (u + i) % 60) for u in range(60) for i in range(interactions)])
    few = {"factors": 4, "epochs": 2, "learning_rate": 0.05, "objective": objective}
    default = tl.DeepRecommender(**few).fit(data)
    given = tl.DeepRecommender(regularization=strength * share, **few).fit(data)
    assert default.regularization is None
    assert bits(default) == bits(given)


@pytest.mark.parametrize(("name", "epochs"), [("NeuMF", 8), ("DeepRecommender", 20)])
def test_the_default_regularization_learns_from_small_data(name: str, epochs: int) -> None:
    """The strength that suits large data would shrink the scores to zero."""
    data = tl.synthetic.World(n_users=300, n_items=150).dataset()
    split = tl.splits.by_user(data, validation=0, test=0.2, seed=0)
    popular = tl.evaluate(tl.ItemPop().fit(split.train), split.test)["ndcg@20"]
    model = getattr(tl, name)(epochs=epochs, learning_rate=0.02, n_jobs=1).fit(split.train)
    assert tl.evaluate(model, split.test)["ndcg@20"] > popular


# --- bits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_the_number_of_threads_does_not_change_the_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = tl.synthetic.World(n_users=200, n_items=150, seed=3)
    data = tl.read(world.dataset(), items=world.item_features() if name in ("FM", "ACF") else None)
    parameters = {"factors": 64, "batch_size": 1_500, "epochs": 1, "objective": "NBPO"}
    monkeypatch.setattr(base, "SMALL_BATCH", 0)  # use threads for every batch

    def fitted(n_jobs: int) -> Any:
        return bits(getattr(tl, name)(**parameters, n_jobs=n_jobs).fit(data))

    one = fitted(1)
    assert all(fitted(n_jobs) == one for n_jobs in (2, 2, 3))


def test_training_does_not_change_the_random_state_or_the_threads_of_pytorch(world: Any, quick: Quick) -> None:
    torch.manual_seed(5)
    torch.set_num_threads(2)
    expected = torch.random.get_rng_state()
    tl.FM(n_jobs=1, **quick(epochs=2)).fit(tl.read(world, items=KINDS)).recommend(0)
    assert torch.equal(torch.random.get_rng_state(), expected)
    assert torch.get_num_threads() == 2


def test_a_copy_of_a_fitted_model_is_independent(world: Any, other_world: Any, quick: Quick) -> None:
    model = tl.LightGCN(**quick(epochs=2)).fit(world)
    before = model.recommend(0)
    copy.deepcopy(model).fit(other_world)
    assert model.recommend(0).equals(before)


# --- listwise objectives --------------------------------------------------------------------------


class TwoTowers(torch.nn.Module):
    """Cosines at a temperature of 0.2."""

    broadcasts = True

    def __init__(self, inputs: tl.Inputs) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(inputs.n_users, inputs.factors)
        self.items = torch.nn.Embedding(inputs.n_items, inputs.factors)

    def forward(self, users: Any, items: Any) -> Any:
        return torch.cosine_similarity(self.users(users), self.items(items), dim=-1) / 0.2

    def vectors(self) -> Any:
        U, V = (torch.nn.functional.normalize(each.weight) for each in (self.users, self.items))
        return U / 0.2, V, None


@pytest.mark.parametrize("negatives", ["uniform", "popularity"])
def test_two_towers_learn_by_lists_of_more_than_fifty_negatives(
    world: Any, quick: Quick, negatives: str, tmp_path: Path
) -> None:
    how = quick(objective="softmax", negatives=negatives, n_negatives=60, regularization=0.0)
    model = tl.DeepRecommender(preference=TwoTowers, **how).fit(world)
    assert model.history_["loss"][-1] < model.history_["loss"][0]
    lists = model.recommend(k=3)
    assert (lists["user_id"] % 4 == lists["item_id"] % 4).mean() > 0.5  # by chance: 0.16
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model", preference=TwoTowers)
    assert again.recommend_from_items([1, 5], k=5).equals(model.recommend_from_items([1, 5], k=5))


# --- errors ---------------------------------------------------------------------------------------


def test_a_learning_rate_that_diverges_is_an_error(world: Any, quick: Quick) -> None:
    with pytest.raises(DivergedError, match=r"learning_rate"):
        tl.NeuMF(**quick(learning_rate=1e6)).fit(world)


def test_candidates_that_do_not_fit_into_memory_are_refused(world: Any, quick: Quick) -> None:
    with pytest.raises(TooLargeError, match=r"positives and negatives would take .* GB"):
        tl.NeuMF(**quick(negatives="hard:1000000000")).fit(world)


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(ParameterError, match="objective is"):
        tl.NeuMF(objective="no such")
    with pytest.raises(ParameterError, match="Use corrected=False"):
        tl.NeuMF(objective="softmax", negatives="hard")
    with pytest.raises(ParameterError, match=r"negatives is 'all'"):
        tl.NeuMF(negatives="all")
    with pytest.raises(ParameterError, match=r"device is 'tpu'; it must be"):
        tl.NeuMF(device="tpu")


def test_the_device_is_used_if_it_is_available(world: Any, quick: Quick) -> None:
    model = tl.NeuMF(device="cpu", **quick(epochs=1)).fit(world)
    assert model.networks_.preference.gmf.users.weight.device.type == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(ParameterError, match="device is 'cuda'"):
            tl.NeuMF(device="cuda").fit(world)


def test_loading_names_what_is_not_available(
    world: Any, quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "model"
    tl.NeuMF(**quick(epochs=1)).fit(world).save(place)
    with pytest.raises(ParameterError, match="NeuMF has no parameter 'preference'"):
        tl.load(place, preference="MF")
    about = (place / "model.json").read_text().replace('"device": "auto"', '"device": "xpu:7"')
    write_description(place / "model.json", json.loads(about))
    with pytest.raises(StorageError, match=r"device is 'xpu:7'.*device='cpu'"):
        tl.load(place)
    assert tl.load(place, device="cpu").recommend(0).height == 10
    monkeypatch.setattr(backend, "installed", False)
    with pytest.raises(MissingExtraError, match="NeuMF needs PyTorch"):
        tl.load(place)


def test_loading_refuses_arrays_of_another_width(world: Any, quick: Quick, tmp_path: Path) -> None:
    tl.NeuMF(**quick(epochs=1)).fit(world).save(tmp_path / "model")
    about = tmp_path / "model" / "model.json"
    write_description(about, json.loads(about.read_text().replace('"factors": 6', '"factors": 7')))
    with pytest.raises(tl.errors.TruelikeError, match=r"has the shape"):
        tl.load(tmp_path / "model")
