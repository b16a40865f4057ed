"""FM scores users and items without interactions by their features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.errors import DataError, ParameterError, StorageError
from truelike.evaluation.calibration import auc

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")

Quick = Callable[..., dict[str, Any]]
ITEMS = [f"{kind}{i}" for kind in "xy" for i in range(10)]
# users of even number like items of kind x, the others items of kind y
TWO_KINDS = [(f"u{u}", f"{'xy'[u % 2]}{i}") for u in range(40) for i in range(10) if (u + i) % 3]


def kinds(*more: str) -> pl.DataFrame:
    """The kind of every item, which is its first letter."""
    items = [*ITEMS, *more]
    return pl.DataFrame({"item": items, "kind": [name[0] for name in items]})


@pytest.fixture(scope="module")
def cold() -> tuple[Any, Any, Any]:
    """A world with features, its dataset without a seventh of the items, and the interactions with these."""
    world = tl.synthetic.World(n_users=300, n_items=280, exposure_skew=0.0, taste=4.0, seed=2)
    data = world.dataset()
    held_out = np.arange(280) % 7 == 3
    return world, data.select(~held_out[data.matrix.indices]), data.select(held_out[data.matrix.indices])


def mean_auc(scores: Any, positive: Any) -> float:
    """The probability that a user's positive scores above another item, averaged over users."""
    areas = [auc(row, mine) for row, mine in zip(scores, positive, strict=True) if 0 < mine.sum() < len(mine)]
    assert len(areas) > 150
    return float(np.mean(areas))


@pytest.mark.parametrize("objective", ["BPR", "NBPO"])
def test_new_items_are_ranked_far_better_than_by_chance_or_popularity(
    objective: str, cold: tuple[Any, Any, Any]
) -> None:
    world, train, held_out = cold
    model = tl.FM(factors=8, epochs=12, learning_rate=0.03, regularization=3.0, objective=objective, seed=1)
    model.fit(tl.read(train, items=world.item_features()))
    unobserved = np.flatnonzero(train.popularity() == 0).astype(np.int32)
    new = np.intersect1d(unobserved, held_out.matrix.indices)
    assert len(new) > 35
    scores = model.scorer.score_users(np.arange(300, dtype=np.int32))[:, new]
    positive = held_out.matrix.toarray()[:, new] > 0
    popularity = np.broadcast_to(held_out.popularity()[new], positive.shape)  # unknown at the time of training
    assert mean_auc(scores, positive) > 0.78
    assert mean_auc(scores, positive) > mean_auc(popularity, positive) + 0.05
    recommended = model.recommend(k=20)["item_id"].to_numpy()
    assert np.isin(recommended, new).any()


def test_items_that_have_only_features_are_part_of_the_model(quick: Quick, tmp_path: Path) -> None:
    model = tl.FM(**quick(objective="NBPO")).fit(tl.read(tl.read(TWO_KINDS), items=kinds("x-new", "y-new")))
    assert model.train_.n_items == 22
    for user, own, other in (("u0", "x-new", "y-new"), ("u1", "y-new", "x-new")):
        assert model.score(user, own) > model.score(user, other)
        assert own in model.recommend(user, k=6)["item_id"].to_list()
    assert model.hidden_likes("u0", k=3).height == 3
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.recommend("u0", k=5).equals(model.recommend("u0", k=5))


def test_extend_adds_items_without_training(quick: Quick, tmp_path: Path) -> None:
    model = tl.FM(**quick()).fit(tl.read(tl.read(TWO_KINDS), items=kinds("y-new")))
    before = model.recommend("u0", k=4, candidates=ITEMS)
    model.extend(item_features=pl.DataFrame({"kind": ["y", None], "item": ["y-later", "unknown"]}))
    assert model.score("u1", "y-later") == pytest.approx(model.score("u1", "y-new"), rel=1e-5)
    assert model.recommend("u0", k=4, candidates=ITEMS).equals(before)
    assert np.isfinite(model.score("u1", "unknown")).all()
    model.save(tmp_path / "model")
    assert tl.load(tmp_path / "model").score("u1", "y-later") == model.score("u1", "y-later")


def test_users_that_have_only_features_get_recommendations_of_their_own(quick: Quick) -> None:
    rows = [(u, i) for u in range(40) for i in range(20) if u % 2 == i % 2 and (u + i) % 5]
    parity = ["even" if u % 2 == 0 else "odd" for u in range(40)]
    users = pl.DataFrame({"user": [*range(40), 98, 99], "parity": [*parity, "even", "odd"]})
    model = tl.FM(**quick()).fit(tl.read(tl.read(rows), users=users))
    assert (model.recommend(98, k=6)["item_id"].to_numpy() % 2 == 0).all()
    assert (model.recommend(99, k=6)["item_id"].to_numpy() % 2 == 1).all()
    model.extend(user_features=pl.DataFrame({"user": [100], "parity": ["odd"]}))
    assert model.score(100, 3) == pytest.approx(model.score(99, 3), rel=1e-5)


def test_validation_is_aligned_when_items_without_interactions_are_left_out_of_training(quick: Quick) -> None:
    """The first item has no training interactions, so row numbers in training are not those of the dataset."""
    data = tl.read([("u0", "a-first"), *TWO_KINDS])
    first = data.items.values.gather(data.matrix.indices).to_numpy() == "a-first"
    rng = np.random.default_rng(0)
    held_out = rng.random(data.n_interactions) < 0.2
    train, validation = data.select(~held_out & ~first), data.select(held_out | first)
    table = pl.concat([kinds(), pl.DataFrame({"item": ["a-first"], "kind": ["x"]})])
    model = tl.FM(**quick(epochs=4)).fit(tl.read(train, items=table), validation=validation)
    known = validation.select(validation.matrix.indices != 0)
    expected = tl.evaluate(model, known, ks=(20,))["ndcg@20"]
    # after training, the model also ranks "a-first", which takes one place of 20 at most
    assert model.history_["ndcg@20"].max() == pytest.approx(expected, abs=0.1)
    assert model.train_.n_items == 21


# --- new users ---------------------------------------------------------------------------------


def test_a_history_of_new_items_counts_by_their_features(quick: Quick) -> None:
    table = kinds("x-new", "x-newer", "y-new", "y-newer")
    model = tl.FM(**quick()).fit(tl.read(tl.read(TWO_KINDS), items=table))
    for kind in "xy":
        best = model.recommend_from_items([f"{kind}-new"], k=11)["item_id"].to_list()
        assert all(name.startswith(kind) for name in best[:8])
        assert f"{kind}-newer" in best


def test_items_added_later_do_not_change_the_scores_of_the_others_for_new_users(quick: Quick) -> None:
    people = pl.DataFrame({"user": [f"u{u}" for u in range(40)], "side": [f"{'xy'[u % 2]}" for u in range(40)]})
    model = tl.FM(**quick(regularization=None, objective="NBPO", epochs=10))
    model.fit(tl.read(tl.read(TWO_KINDS), items=kinds(), users=people))
    before = model.recommend_from_items(["x1", "x2"], candidates=ITEMS, k=20)
    later = pl.DataFrame({"item": [f"z{i}" for i in range(500)], "kind": ["x"] * 500})
    model.extend(item_features=later, user_features=pl.DataFrame({"user": ["new", "newer"], "side": ["x", "y"]}))
    after = model.recommend_from_items(["x1", "x2"], candidates=ITEMS, k=20)
    assert after["item_id"].equals(before["item_id"])
    np.testing.assert_allclose(after["score"], before["score"], rtol=1e-4, atol=1e-5)


# --- items without a row of features --------------------------------------------------------------


def test_a_missing_row_of_features_is_an_error_that_names_the_policy(world: Any, quick: Quick) -> None:
    table = pl.DataFrame({"item": np.arange(3, 40), "price": np.arange(37.0)})
    for make in (tl.FM, tl.ACF, tl.DeepRecommender):
        with pytest.raises(DataError, match=r'3 of 40 items .* the items 0, 1, 2\. .*missing_features="zeros"'):
            make(**quick()).fit(tl.read(world, items=table))


@pytest.mark.parametrize("name", ["FM", "ACF", "DeepRecommender"])
def test_with_zeros_an_item_without_features_is_trained_by_its_id(name: str, world: Any, quick: Quick) -> None:
    table = pl.DataFrame({"item": np.arange(3, 40), "kind": [f"k{i % 4}" for i in range(3, 40)]})
    own = {"preference": "FM"} if name == "DeepRecommender" else {}
    model = getattr(tl, name)(**quick(missing_features="zeros", objective="BPR", **own))
    model.fit(tl.read(world, items=table))
    assert np.diff(model.features_["item"].matrix.indptr)[:4].tolist() == [0, 0, 0, 1]
    scores = model.scorer.score_users(np.arange(60, dtype=np.int32))[:, :3]  # of the items without features
    same_taste = np.arange(60)[:, None] % 4 == np.arange(3)[None, :] % 4
    assert scores[same_taste].mean() > scores[~same_taste].mean() + 0.3


# --- errors ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def priced(world: Any, quick: Quick) -> Any:
    """An FM fitted with items of kind and price."""
    table = pl.DataFrame({"item": np.arange(40), "kind": ["a", "b"] * 20, "price": np.arange(40.0)})
    return tl.FM(**quick(epochs=2)).fit(tl.read(world, items=table))


NEW = pl.DataFrame({"item": [77], "kind": ["z"], "price": [1.0]})


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"item_features": NEW}, DataError, "the item 77 has kind='z'"),
        ({"item_features": NEW.drop("price").with_columns(kind=pl.lit("a"))}, DataError, "no column 'price'"),
        (
            {"user_features": pl.DataFrame({"user": [1], "age": [3]})},
            ParameterError,
            "fitted without user_features",
        ),
        ({"item_features": NEW, "on_unknown": "ignore"}, ParameterError, "on_unknown is 'ignore'"),
    ],
    ids=["unknown word", "missing column", "no such features", "on_unknown"],
)
def test_extend_refuses_features_that_do_not_fit(
    priced: Any, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        priced.extend(**given)
    assert priced.train_.n_items == 40


def test_extend_skips_unknown_words_on_request(priced: Any, tmp_path: Path) -> None:
    priced.save(tmp_path / "model")  # a copy, since extend changes the model
    assert tl.load(tmp_path / "model").extend(item_features=NEW, on_unknown="skip").train_.n_items == 41


def test_flips_that_cannot_score_new_items_are_refused_and_the_fitted_model_is_kept(
    world: Any, quick: Quick
) -> None:
    model = tl.FM(**quick(epochs=2, objective="NBPO", flips="MF")).fit(world)
    before = model.recommend([0, 1])
    table = pl.DataFrame({"item": [*range(40), 77], "price": np.arange(41.0)})
    with pytest.raises(ParameterError, match=r"flips='MF' cannot score .* without interactions.*flips=\"FM\""):
        model.fit(tl.read(world, items=table))
    assert model.recommend([0, 1]).equals(before)
    with pytest.raises(ParameterError, match=r"flips='MF' cannot score"):
        model.extend(item_features=table)


def test_a_checkpoint_of_other_features_is_refused(world: Any, quick: Quick, tmp_path: Path) -> None:
    table = pl.DataFrame({"item": np.arange(40), "price": np.arange(40.0)})
    how = {"checkpoint": tmp_path / "place", "checkpoint_epochs": 1}
    tl.FM(**quick(epochs=1)).fit(tl.read(world, items=table), **how)
    with pytest.raises(StorageError, match="other data or other parameters"):
        tl.FM(**quick(epochs=2)).fit(
            tl.read(world, items=table.with_columns(price=-(pl.col("price") ** 2))), resume=True, **how
        )
