"""AutoRecommender chooses by the data alone, and is a model like any other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import truelike as tl
from truelike.errors import DataError, ParameterError
from truelike.models.auto import choose
from truelike.models.registry import load


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.splits.by_user(tl.synthetic.World(n_users=300, n_items=100).dataset(), seed=0)


@pytest.mark.parametrize(
    ("users", "items", "expected"),
    [
        (1_435, 1_522, "SoftmaxMF:factors=512"),
        (6_040, 3_678, "SoftmaxMF"),
        (5_000, 300, "SoftmaxMF"),
        (300, 3_000, "EDLAE"),
        (1_000_000, 200_000, "IALS"),
        (50_000, 400_000, "IALS"),
    ],
)
def test_the_size_and_shape_of_the_data_decide(users: int, items: int, expected: str) -> None:
    name, reason = choose(SimpleNamespace(n_users=users, n_items=items))  # type: ignore[arg-type]
    assert name == expected
    assert f"{users:,} users" in reason


def test_the_machine_does_not_decide(split: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    size = SimpleNamespace(n_users=40_000, n_items=40_000)
    found = choose(size)  # type: ignore[arg-type]
    monkeypatch.setattr("truelike.parallel.cores", lambda: 64)
    assert choose(size) == found  # type: ignore[arg-type]


def test_it_is_fitted_in_place_and_evaluated_like_any_model(split: Any) -> None:
    model = tl.AutoRecommender()
    assert model.fit(split) is model
    assert model.choice_.model == "SoftmaxMF()"
    assert "300" in model.choice_.reason or "users" in model.choice_.reason
    chosen = tl.SoftmaxMF().fit(split)
    assert model.recommend(k=5).equals(chosen.recommend(k=5))
    assert tl.evaluate(model, split.test)["ndcg@20"] == tl.evaluate(chosen, split.test)["ndcg@20"]


def test_its_parameters_do_not_depend_on_the_choice() -> None:
    wide = tl.read([(u, i) for u in range(20) for i in range(40) if (u + i) % 3])
    model = tl.AutoRecommender(seed=3, n_jobs=1).fit(wide)
    assert model.choice_.model == "EDLAE(n_jobs=1)"
    with pytest.raises(ParameterError, match="AutoRecommender has no parameter 'factors'"):
        tl.AutoRecommender(factors=8)


def test_saved_and_loaded_it_is_the_chosen_model_and_says_why(split: Any, tmp_path: Path) -> None:
    model = tl.AutoRecommender().fit(split)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is tl.SoftmaxMF
    assert again.choice_ == model.choice_
    assert again.recommend(k=3).equals(model.recommend(k=3))
    again.save(tmp_path / "copy")
    assert load(tmp_path / "copy").choice_ == model.choice_


def test_titles_that_are_set_are_saved(split: Any, tmp_path: Path) -> None:
    model = tl.AutoRecommender().fit(split).set_titles({item: f"item {item}" for item in split.train.items})
    assert model.recommend(k=1, titles=True)["title"].str.starts_with("item ").all()
    model.save(tmp_path / "model")
    assert "title" in load(tmp_path / "model").recommend(k=1, titles=True).columns


def test_impressions_and_features_decide_first(split: Any) -> None:
    world = tl.synthetic.World(n_users=120, n_items=60)
    shown = tl.AutoRecommender().fit(world.dataset(), impressions=world.impressions())
    assert type(shown.model_) is tl.ExactNBPO
    assert set(shown.hidden_likes(0)["flips_from"]) == {"impressions"}
    assert not hasattr(tl.AutoRecommender().fit(split), "hidden_likes")
    with pytest.raises(ParameterError, match="both impressions and features"):
        tl.AutoRecommender().fit(split.train, impressions=split.train, item_features=pd.DataFrame())


def test_partial_fit_updates_the_chosen_model(split: Any) -> None:
    model = tl.AutoRecommender().fit(split)
    model.partial_fit([(10_000, 3), (10_000, 5)], epochs=1, progress=False)
    assert type(model.model_) is tl.SoftmaxMF
    assert model.recommend(10_000, k=3).height == 3
    assert model.choice_.model == "SoftmaxMF()"


def test_data_that_is_no_dataset_is_an_error() -> None:
    with pytest.raises(DataError, match=r"fit takes a Dataset.*tl\.read"):
        tl.AutoRecommender().fit([("ann", "tea")])
