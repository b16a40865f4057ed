"""New users get, from their histories, what a user with the same interactions gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truelike as tl

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")

from truelike.models.fold_in import SampledFoldIn  # noqa: E402

Quick = Callable[..., dict[str, Any]]


def correlations_with_known_users(model: Any, data: Any) -> list[float]:
    """Of the scores of some users, as known users and as new users with the same history."""
    users = np.arange(0, 60, 7, dtype=np.int32)
    known, new = model.scorer.score_users(users), model.scorer.score_histories(data.matrix[users])
    return [float(np.corrcoef(a, b)[0, 1]) for a, b in zip(known, new, strict=True)]


@pytest.mark.parametrize("objective", ["BPR", "NBPO", "softmax"])
@pytest.mark.parametrize("name", ["DeepRecommender", "FM", "NeuMF"])
def test_a_new_user_with_the_history_of_a_user_gets_similar_scores(
    name: str, objective: str, trained: Any, world: Any
) -> None:
    correlations = correlations_with_known_users(trained(name, objective=objective, epochs=40), world)
    assert min(correlations) > 0.75
    assert np.mean(correlations) > 0.9


def test_a_dot_product_is_folded_in_as_in_matrix_factorization(trained: Any, world: Any) -> None:
    model = trained("DeepRecommender", objective="BPO")
    V = model.networks_.preference.vectors()[1].detach().numpy()
    history = np.array([1, 5, 9], dtype=np.int32)
    probabilities = tl.negatives.Uniform().probabilities(world.popularity(), history)
    fold = SampledFoldIn(
        V, None, tl.objectives.BPO, None, lambda _: probabilities, n_negatives=4, weight=4.0, l2=1.0
    )
    row = fold.row(history)
    found = model.recommend_from_items(history, k=40, exclude_seen=False).sort("item_id")["score"].to_numpy()
    np.testing.assert_allclose(found, V @ row, rtol=1e-4, atol=1e-5)


def test_a_new_user_of_lightgcn_is_a_user_whose_own_embedding_is_zero(world: Any, quick: Quick) -> None:
    model = tl.LightGCN(**quick(epochs=5)).fit(world)
    network = model.networks_.preference
    with torch.no_grad():
        network.embeddings.weight[7] = 0.0
    found = model.scorer.score_histories(world.matrix[[7]])[0]
    # not quite equal: the graph has the interactions of user 7, which are not in that of a new user
    U, V, _ = (None if x is None else x.detach().numpy() for x in network.vectors())
    assert np.corrcoef(found, V @ U[7])[0, 1] > 0.999


@pytest.mark.parametrize("name", ["DeepRecommender", "FM", "NeuMF", "ACF", "LightGCN"])
def test_a_new_user_who_interacted_with_every_item_has_finite_scores(name: str, trained: Any) -> None:
    model = trained(name, objective="BPR", epochs=3)
    frame = model.recommend_from_items(list(range(40)), k=40, exclude_seen=False)
    assert frame.height == 40
    assert np.isfinite(frame["score"].to_numpy()).all()
    assert model.recommend_from_items(list(range(40)), k=5).is_empty()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ["NeuMF", "FM", "LightGCN"])
def test_the_caller_may_have_disabled_gradients(
    name: str, mode: Any, world: Any, quick: Quick, trained: Any, tmp_path: Path
) -> None:
    model = trained(name, objective="BPR", epochs=3)
    expected = model.recommend_from_items([0, 4, 8], k=5)
    with mode():
        assert model.recommend_from_items([0, 4, 8], k=5).equals(expected)
        fitted = getattr(tl, name)(**quick(objective="BPR", epochs=3)).fit(world)
        assert fitted.recommend(0).equals(model.recommend(0))
        model.save(tmp_path / "model")
        loaded = tl.load(tmp_path / "model")
    assert loaded.recommend_from_items([0, 4, 8], k=5).equals(expected)


class Towers(torch.nn.Module):  # type: ignore[misc]
    """A dot product of which the users' vectors are computed by a layer."""

    user_embedding_names = ("users",)

    def __init__(self, inputs: Any) -> None:
        super().__init__()
        self.users, self.items = (torch.nn.Embedding(n, inputs.factors) for n in (inputs.n_users, inputs.n_items))
        self.layer = torch.nn.Linear(inputs.factors, inputs.factors)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, users: Any, items: Any) -> Any:
        return self.scale * (torch.tanh(self.layer(self.users(users))) * self.items(items)).sum(dim=-1)

    def vectors(self) -> Any:
        return self.scale * torch.tanh(self.layer(self.users.weight)), self.items.weight, None


def test_the_user_embeddings_of_a_custom_network_are_trained_on_the_history(world: Any, quick: Quick) -> None:
    model = tl.DeepRecommender(preference=Towers, **quick(objective="BPR", epochs=40)).fit(world)
    assert min(correlations_with_known_users(model, world)) > 0.9
