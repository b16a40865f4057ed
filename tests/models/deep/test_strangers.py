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
def test_a_stranger_who_voted_for_everything_has_scores_all_the_same(name: str, world: Any) -> None:
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
