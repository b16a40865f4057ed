"""People never seen before, by networks: from a history alone they get what a user with these votes gets."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")

from truelike.models.deep.strangers import standing_still  # noqa: E402
from truelike.models.folding import fold_in  # noqa: E402

QUICK: dict[str, Any] = {
    "factors": 6, "flip_factors": 3, "epochs": 60, "batch_size": 100, "learning_rate": 0.05, "regularization": 1.0,
    "flip_regularization": 1.0,
}  # fmt: skip


@pytest.mark.parametrize("objective", ["BPR", "NBPO"])
@pytest.mark.parametrize("name", ["DeepRecommender", "FM", "NeuMF"])
def test_a_stranger_with_a_user_s_votes_gets_what_the_user_gets(name: str, objective: str, world: Any) -> None:
    model = getattr(tl, name)(objective=objective, **QUICK).fit(world)
    users = np.arange(0, 60, 7, dtype=np.int32)
    known, as_stranger = model._score_block(users), model._score_histories(world.matrix[users])
    alike = [np.corrcoef(a, b)[0, 1] for a, b in zip(known, as_stranger, strict=True)]
    assert min(alike) > 0.75
    assert np.mean(alike) > 0.9


def test_where_the_score_is_a_dot_product_the_row_is_that_of_matrix_factorization(world: Any) -> None:
    model = tl.DeepRecommender(objective="BPO", **QUICK).fit(world)
    _, V, _ = (None if x is None else x.detach().numpy() for x in model.networks_.preference.vectors())
    history = np.array([1, 5, 9], dtype=np.int32)
    law = tl.negatives.Uniform().law(world.popularity(), history)
    kind = tl.objectives.BPO
    row = fold_in(V, history, kind, law, n_negatives=4, weight=4.0, regularization=1.0)
    found = model.recommend_from_items(history, k=40, exclude_seen=False).sort("item_id")["score"].to_numpy()
    np.testing.assert_allclose(found, V @ row, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["DeepRecommender", "NeuMF"])
def test_asking_for_a_stranger_changes_nothing_and_is_the_same_again(name: str, world: Any) -> None:
    model = getattr(tl, name)(objective="NBPO", **{**QUICK, "epochs": 5}).fit(world)
    before = {key: array.tobytes() for key, array in model.networks_.arrays().items()}
    first = model.recommend_from_items([0, 4, 8], k=5)
    assert model.recommend_from_items([8, 0, 4], k=5).equals(first)
    assert {key: array.tobytes() for key, array in model.networks_.arrays().items()} == before
    # two at once are the same as one by one
    both = model._score_histories(world.matrix[[3, 7]])
    assert both[1].tobytes() == model._score_histories(world.matrix[[7]])[0].tobytes()


@pytest.mark.parametrize("name", ["DeepRecommender", "FM", "NeuMF", "ACF", "LightGCN"])
def test_even_a_stranger_who_voted_for_everything_has_scores(name: str, world: Any) -> None:
    model = getattr(tl, name)(objective="BPR", **{**QUICK, "epochs": 3}).fit(world)
    everything = model.recommend_from_items(list(range(40)), k=40, exclude_seen=False)
    assert everything.height == 40
    assert np.isfinite(everything["score"].to_numpy()).all()
    assert model.recommend_from_items(list(range(40)), k=5).is_empty()


def test_a_network_that_stands_still_shares_its_numbers() -> None:
    log = tl.read([(u, i) for u in range(4) for i in range(4) if u != i])
    network = tl.NeuMF(factors=2, epochs=0).fit(log).networks_.preference
    still = standing_still(network)
    for one, other in zip(network.parameters(), still.parameters(), strict=True):
        assert one.data_ptr() == other.data_ptr()
        assert one.requires_grad
        assert not other.requires_grad


def test_a_history_of_items_without_votes_speaks_by_their_features() -> None:
    rows = [(f"u{u}", f"{kind}{i}") for u in range(40) for i in range(10) for kind in "xy"[u % 2] if (u + i) % 3]
    items = [f"{kind}{i}" for kind in "xy" for i in range(10)]
    new = ["x-new", "x-newer", "y-new", "y-newer"]
    table = pl.DataFrame({"item": [*items, *new], "kind": [name[0] for name in [*items, *new]]})
    model = tl.FM(**QUICK).fit(tl.read(rows), item_features=table)
    for kind in "xy":
        best = model.recommend_from_items([f"{kind}-new"], k=8)["item_id"].to_list()
        assert all(name.startswith(kind) for name in best)
        assert f"{kind}-newer" in model.recommend_from_items([f"{kind}-new"], k=11)["item_id"].to_list()


def test_items_that_come_later_change_nothing_for_strangers_among_the_others() -> None:
    rows = [(f"u{u}", f"{kind}{i}") for u in range(40) for i in range(10) for kind in "xy"[u % 2] if (u + i) % 3]
    items = [f"{kind}{i}" for kind in "xy" for i in range(10)]
    table = pl.DataFrame({"item": items, "kind": [name[0] for name in items]})
    people = pl.DataFrame(
        {"user": [f"u{u}" for u in range(40)], "side": ["x" if u % 2 else "y" for u in range(40)]}
    )
    how = {**QUICK, "regularization": None, "objective": "NBPO"}
    model = tl.FM(**how).fit(tl.read(rows), item_features=table, user_features=people)
    before = model.recommend_from_items(["x1", "x2"], among=items, k=20)
    later = pl.DataFrame({"item": [f"z{i}" for i in range(500)], "kind": ["x"] * 500})
    model.extend(item_features=later, user_features=pl.DataFrame({"user": ["new", "newer"], "side": ["x", "y"]}))
    after = model.recommend_from_items(["x1", "x2"], among=items, k=20)
    assert after["item_id"].equals(before["item_id"])
    np.testing.assert_allclose(after["score"], before["score"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ["NeuMF", "FM", "LightGCN"])
def test_whoever_calls_without_gradients_gets_the_same(name: str, quiet: Any, world: Any, tmp_path: Any) -> None:
    make = getattr(tl, name)
    model = make(**{**QUICK, "epochs": 4}).fit(world)
    expected = model.recommend_from_items([0, 4, 8], k=5)
    with quiet():
        assert model.recommend_from_items([0, 4, 8], k=5).equals(expected)
        assert make(**{**QUICK, "epochs": 4}).fit(world).recommend(0).equals(model.recommend(0))
        model.save(tmp_path / "model")
        loaded = tl.load(tmp_path / "model")
    assert loaded.recommend_from_items([0, 4, 8], k=5).equals(expected)


class Towers(torch.nn.Module):  # type: ignore[misc]
    """No dot product of tables: layers lie between."""

    personal = ("users",)

    def __init__(self, inputs: Any) -> None:
        super().__init__()
        self.users, self.items = (torch.nn.Embedding(n, inputs.factors) for n in (inputs.n_users, inputs.n_items))
        self.layer = torch.nn.Linear(inputs.factors, inputs.factors)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, users: Any, items: Any) -> Any:
        return self.scale * (torch.tanh(self.layer(self.users(users))) * self.items(items)).sum(dim=-1)

    def vectors(self) -> Any:
        return self.scale * torch.tanh(self.layer(self.users.weight)), self.items.weight, None


def test_a_network_of_one_s_own_trains_what_is_personal(world: Any) -> None:
    model = tl.DeepRecommender(preference=Towers, objective="BPR", **QUICK).fit(world)
    users = np.arange(0, 60, 7, dtype=np.int32)
    known, as_stranger = model._score_block(users), model._score_histories(world.matrix[users])
    for one, other in zip(known, as_stranger, strict=True):
        assert np.corrcoef(one, other)[0, 1] > 0.9
