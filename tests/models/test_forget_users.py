"""A model that forgets users answers of all others as before, and its files have no trace of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.errors import ParameterError, StorageError, UnknownIdError

from .conftest import QUICK
from .own_models import OwnBPR

FORGETFUL = (
    "ItemPop",
    "ItemKNN",
    "EASE",
    "EDLAE",
    "IALS",
    "NBPO",
    "SampledListMF",
    "ExactNBPO",
    "Blend",
    "ExposureMF",
    "OwnBPR",
)
EXACT = ("ItemPop", "ItemKNN", "EASE", "EDLAE")
GONE = ["user-13", "user-40"]


@pytest.fixture(scope="module")
def data() -> tl.Dataset:
    log = tl.synthetic.World(n_users=60, n_items=40, seed=2).dataset().to_frame()
    return tl.read(log.select(pl.format("user-{}", "user_id").alias("user_id"), "item_id"))


def make(name: str, data: tl.Dataset) -> tl.Recommender:
    kind: Any = OwnBPR if name == "OwnBPR" else getattr(tl, name)
    return kind(**QUICK.get(name, {})).fit(data, progress=False)


def answers(model: tl.Recommender, users: list[str]) -> list[pl.DataFrame]:
    """Lists of all items, in which equal scores are ordered by popularity, too."""
    exact = [model.explain(users[0], model.train_.items[:2])] if model.name in EXACT else []  # others fold in
    return [
        *exact,
        model.recommend(users, k=40),  # type: ignore[list-item]
        model.recommend(users, k=40, exclude_seen=False),
        model.similar_items(model.train_.items, k=40),
        pl.DataFrame({"score": model.score(users, 3)}),
    ]


@pytest.mark.parametrize("name", FORGETFUL)
def test_answers_of_others_are_the_same_to_the_bit(name: str, data: tl.Dataset, tmp_path: Path) -> None:
    model = make(name, data)
    others = [user for user in data.users if user not in GONE]
    before = answers(model, others)
    assert model.forget_users(GONE) is model
    own = {"model_class": OwnBPR} if name == "OwnBPR" else {}
    for step in ("forgotten", "saved", "titled"):
        if step == "saved":
            model.save(tmp_path / "model")
            model = tl.load(tmp_path / "model", **own)
        if step == "titled":
            model.set_titles({item: f"item {item}" for item in model.train_.items})
        for old, new in zip(before, answers(model, others), strict=True):
            assert new.equals(old), (name, step)
        with pytest.raises(UnknownIdError, match="user-13"):
            model.recommend(GONE[0])
        assert model.train_.interactions_per_user().sum() == data.without_users(GONE).n_interactions
    for path in (tmp_path / "model").iterdir():
        assert not any(user.encode() in path.read_bytes() for user in GONE), path
    if model.supports_partial_fit:  # who comes back is a new user
        model.partial_fit([(GONE[0], 3), (GONE[0], 5)], progress=False)
        assert model.recommend(GONE[0], k=3).height == 3  # type: ignore[union-attr]


def test_users_are_forgotten_one_after_the_other(data: tl.Dataset) -> None:
    """The order of equal scores is that of the training, whatever was forgotten since."""
    one, other = make("ItemPop", data), make("ItemPop", data)
    one.forget_users(GONE)
    for user in GONE:
        other.forget_users(user)
    assert other.recommend(k=40).equals(one.recommend(k=40))  # type: ignore[union-attr]
    assert np.array_equal(one.scorer.ties, make("ItemPop", data).scorer.ties)


def test_what_cannot_be_forgotten_is_said(data: tl.Dataset, tmp_path: Path) -> None:
    model = make("ItemPop", data)
    with pytest.raises(UnknownIdError, match="'nobody' is not among the 54 users"):
        model.forget_users([*GONE, "nobody"])
    assert model.train_.n_users == 54, "all or none"
    with pytest.raises(ParameterError, match="all users of the model were named"):
        model.forget_users(data.users)
    shown = tl.ImpressionMF(factors=4, steps=20).fit(data, progress=False)
    with pytest.raises(ParameterError, match=r"ImpressionMF cannot forget users. Fit it again .*without_users"):
        shown.forget_users(GONE)


def test_a_saved_order_of_equal_items_is_checked(data: tl.Dataset, tmp_path: Path) -> None:
    from truelike import storage

    model = make("ItemPop", data).forget_users(GONE)
    model._state["_ties"] = np.zeros(model.train_.n_items, dtype=np.int32)  # type: ignore[attr-defined]
    model.save(tmp_path / "model")
    with pytest.raises(StorageError, match="not a permutation of the items"):
        storage.read_model(tmp_path / "model")


def test_a_dataset_without_users_has_nothing_that_is_known_of_them(tmp_path: Path) -> None:
    users = pl.DataFrame({"user": ["ann", "bob", "zoe"], "age": [30, 40, 50]})
    log = [{"user": user, "item": item, "event": event, "time": n} for n, (user, item, event) in enumerate(
        [("ann", "tea", "buy"), ("bob", "rum", "buy"), ("bob", "gin", "view"), ("ann", "gin", "shown"),
         ("bob", "tea", "shown")])]  # fmt: skip
    kinds: Any = {"buy": 1, "view": 0.2, "shown": "shown"}
    data = tl.read(log, kind="event", kinds=kinds, target="buy", users=users)
    rest = data.without_users(["bob"])
    assert (list(rest.users), list(rest.items)) == (["ann", "zoe"], list(data.items))
    for part in ("interactions", "view", "shown", "user_features"):
        assert "bob" in data.to_frame(part).to_series().to_list()
        assert "bob" not in rest.to_frame(part).to_series().to_list()
    with pytest.raises(UnknownIdError, match="'eve'"):
        data.without_users("eve")
