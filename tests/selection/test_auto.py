"""AutoRecommender decides by a race on held-out interactions, and is a model like any other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.engines.options import FitOptions
from truelike.errors import ParameterError
from truelike.models.registry import load

FEW: dict[str, Any] = {"n_trials": 5}


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.splits.by_user(tl.synthetic.World(n_users=300, n_items=100).dataset(), seed=0)


@pytest.fixture(scope="module")
def fitted(split: Any) -> Any:
    return tl.AutoRecommender(**FEW).fit(split, progress=False)


def rebuilt(choice: Any) -> Any:
    """The model of a choice, from its text: what a user would paste."""
    names = (
        "ItemPop",
        "IALS",
        "EDLAE",
        "ItemKNN",
        "ExactBPO",
        "SoftmaxMF",
        "ImpressionMF",
        "Blend",
        "WeightedKinds",
    )
    return eval(choice.model, {name: getattr(tl, name) for name in names})


def test_it_is_fitted_in_place_and_equals_the_model_that_it_names(split: Any, fitted: Any) -> None:
    model = tl.AutoRecommender(**FEW)
    assert model.fit(split, progress=False) is model
    assert model.choice_.model == fitted.choice_.model
    chosen = rebuilt(model.choice_).fit(split.train, progress=False)
    assert type(chosen) is type(model.model_)
    assert model.recommend(k=5).equals(chosen.recommend(k=5))
    assert tl.evaluate(model, split.test)["ndcg@20"] == tl.evaluate(chosen, split.test)["ndcg@20"]


def test_the_winner_is_the_best_trial_or_one_that_is_not_worse_beyond_noise(fitted: Any) -> None:
    choice = fitted.choice_
    table = choice.table()
    assert table.columns == ["trial", "model", "ndcg@20", "seconds"]
    assert table.height == len(choice.trials) == 5
    assert table["ndcg@20"].is_sorted(descending=True)
    assert choice.trial in table["model"]
    won = table.filter(table["model"] == choice.trial)["ndcg@20"][0]
    assert won == table["ndcg@20"][0] or "not better beyond noise" in choice.reason
    assert f"{won:.4f} on " in choice.reason


def test_without_a_validation_part_the_winner_is_trained_on_all_interactions(split: Any) -> None:
    model = tl.AutoRecommender(**FEW).fit(split.train, progress=False)
    assert model.model_.train_.n_interactions == split.train.n_interactions
    again = rebuilt(model.choice_).fit(split.train, progress=False)
    assert model.recommend(k=5).equals(again.recommend(k=5))


def test_a_named_budget_gives_the_same_model_whatever_the_clock_says(
    split: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("truelike.selection.auto.MIN_NORMAL_SECONDS", 2.0)
    one = tl.AutoRecommender(budget="quick").fit(split, progress=False)
    ticks = iter(range(0, 10**9, 10_000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(ticks)))
    other = tl.AutoRecommender(budget="quick").fit(split, progress=False)
    assert other.choice_.model == one.choice_.model
    assert [row[:2] for row in other.choice_.trials] == [row[:2] for row in one.choice_.trials]


def test_a_race_that_the_clock_ended_is_repeated_by_the_number_of_its_trials(
    split: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(0, 10**9, 1))
    with monkeypatch.context() as patch:
        patch.setattr("truelike.selection.race.time.monotonic", lambda: float(next(ticks)))
        stopped = tl.AutoRecommender(budget=8.0).fit(split, progress=False)
    assert "the time was over" in stopped.choice_.outlook
    n = len(stopped.choice_.trials)
    assert 1 < n < 10
    again = tl.AutoRecommender(budget=8.0, n_trials=n).fit(split, progress=False)
    assert again.choice_.model == stopped.choice_.model
    assert [row[:2] for row in again.choice_.trials] == [row[:2] for row in stopped.choice_.trials]
    assert again.recommend(k=5).equals(stopped.recommend(k=5))


def test_a_budget_and_a_number_of_trials_both_limit_the_race(split: Any) -> None:
    quick = tl.AutoRecommender(budget=1.0, n_trials=1_000).fit(split, progress=False)
    few = tl.AutoRecommender(budget=1.0, n_trials=3).fit(split, progress=False)
    assert [row[:2] for row in few.choice_.trials] == [row[:2] for row in quick.choice_.trials[:3]]
    assert len(quick.choice_.trials) < 30
    assert "3 trials were run; with more" in few.choice_.outlook


def test_a_small_validation_part_is_warned_of(split: Any) -> None:
    few = tl.Split(split.train, tl.read([(0, 1), (1, 2)]))
    with pytest.warns(tl.errors.DataWarning, match="too few to compare models well"):
        tl.AutoRecommender(n_trials=2).fit(few, progress=False)


def test_the_reason_says_how_the_winner_compares_with_popularity(fitted: Any) -> None:
    popularity = next(value for model, value, _ in fitted.choice_.trials if model == "ItemPop()")
    assert f"ItemPop has {popularity:.4f};" in fitted.choice_.reason
    rng = np.random.default_rng(0)
    noise = tl.read(np.stack([rng.integers(0, 300, 6000), (50 * rng.random(6000) ** 2).astype(int)], axis=1))
    model = tl.AutoRecommender(n_trials=4).fit(noise, progress=False)
    assert "ItemPop" in model.choice_.model or "tells users apart" in model.choice_.reason


@pytest.mark.parametrize("budget", ["slow", 0, -1.0, float("inf"), float("nan"), True, None])
def test_a_budget_that_is_none_is_an_error(budget: Any) -> None:
    with pytest.raises(ParameterError, match="budget is"):
        tl.AutoRecommender(budget=budget)


def test_data_too_small_to_hold_out_a_part_has_no_race() -> None:
    wide = tl.read([(u, i) for u in range(20) for i in range(12) if (u + i) % 3])
    model = tl.AutoRecommender(seed=3, n_jobs=1).fit(wide, progress=False)
    assert model.choice_.model == "EDLAE(n_jobs=1)"
    assert "too few to compare models" in model.choice_.reason
    assert model.choice_.trials == ()
    assert model.choice_.outlook == "There was no race."
    assert model.choice_.table().columns == ["trial", "model", "ndcg@20", "seconds"]
    with pytest.raises(ParameterError, match="AutoRecommender has no parameter 'factors'"):
        tl.AutoRecommender(factors=8)


def test_saved_and_loaded_it_is_the_chosen_model_with_the_table_of_trials(fitted: Any, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    load(tmp_path / "model").save(tmp_path / "copy")
    again = load(tmp_path / "copy")
    assert again.choice_ == fitted.choice_
    assert again.recommend(k=3).equals(fitted.recommend(k=3))


def test_titles_that_are_set_are_saved(split: Any, tmp_path: Path) -> None:
    model = tl.AutoRecommender(n_trials=2).fit(split, progress=False)
    model.set_titles({item: f"item {item}" for item in split.train.items})
    assert model.recommend(k=1, titles=True)["title"].str.starts_with("item ").all()
    model.save(tmp_path / "model")
    assert "title" in load(tmp_path / "model").recommend(k=1, titles=True).columns


def test_partial_fit_updates_the_chosen_model(split: Any) -> None:
    model = tl.AutoRecommender(**FEW).fit(split, progress=False)
    kind, choice = type(model.model_), model.choice_
    model.partial_fit([(10_000, 3), (10_000, 5)], epochs=1, progress=False)
    assert type(model.model_) is kind
    assert model.recommend(10_000, k=3).height == 3
    assert model.choice_ == choice


def test_a_candidate_that_runs_out_of_memory_does_not_end_the_race(
    split: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(tl.ItemKNN, "_fit", fit)
    choice = tl.AutoRecommender(n_trials=3).fit(split, progress=False).choice_
    assert [model for model, value, _ in choice.trials if value is None] == ["ItemKNN()"]


@pytest.fixture(scope="module")
def shown() -> Any:
    world = tl.synthetic.World(n_users=300, n_items=80)
    return tl.read(world.dataset(), impressions=world.impressions())


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truelike.models.impression_mf.MANY_STEPS", 60)


@pytest.mark.usefixtures("few_steps")
def test_with_impressions_all_families_race_and_impression_mf_among_them(shown: Any) -> None:
    choice = tl.AutoRecommender(n_trials=7).fit(shown, progress=False).choice_
    tried = {model.partition("(")[0] for model, _, _ in choice.trials}
    assert tried >= {"ItemPop", "ItemKNN", "EDLAE", "IALS", "ImpressionMF"}
    scores = {model: value for model, value, _ in choice.trials}
    assert scores[choice.trial] >= scores["ItemPop()"]


@pytest.mark.usefixtures("few_steps")
def test_the_goal_likes_takes_impression_mf_without_a_race(shown: Any, fitted: Any) -> None:
    model = tl.AutoRecommender(goal="likes").fit(shown, progress=False)
    assert type(model.model_) is tl.ImpressionMF
    assert model.choice_.trials == ()
    assert set(model.hidden_likes(0)["evidence"]) == {"impressions"}
    found = model.like_probability([0, 1], [3, 4])
    assert found.equals(model.model_.like_probability([0, 1], [3, 4]))
    assert found["evidence"].to_list() == ["impressions"] * 2
    assert not hasattr(fitted, "hidden_likes")
    assert not hasattr(fitted, "like_probability")


def test_the_goal_likes_needs_impressions(split: Any) -> None:
    with pytest.raises(ParameterError, match='goal is "likes", and the data has no impressions'):
        tl.AutoRecommender(goal="likes").fit(split, progress=False)
    with pytest.raises(ParameterError, match="goal is 'discovery'; it must be 'interactions' or 'likes'"):
        tl.AutoRecommender(goal="discovery")


@pytest.mark.usefixtures("few_steps")
def test_a_model_below_item_pop_on_held_out_data_is_never_taken_in_silence(
    shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = tl.splits.by_user(shown, seed=0)

    def random_scores(model: Any) -> Any:
        rng, train = np.random.default_rng(0), model.train_
        return tl.DotProductScorer(train, rng.normal(size=(train.n_users, 2)), rng.normal(size=(train.n_items, 2)))

    monkeypatch.setattr(tl.ImpressionMF, "_make_scorer", random_scores)
    with pytest.warns(tl.errors.TrainingWarning, match="on held-out interactions, where ItemPop has"):
        model = tl.AutoRecommender(goal="likes").fit(parts, progress=False)
    assert "where ItemPop has 0." in model.choice_.reason


def test_features_do_not_change_the_race(split: Any, fitted: Any) -> None:
    prices = pl.DataFrame({"item": list(split.train.items), "price": 1.0})
    with_features = tl.AutoRecommender(**fitted.get_params()).fit(
        tl.Split(tl.read(split.train, items=prices), split.validation, split.test), progress=False
    )
    assert with_features.choice_.model == fitted.choice_.model


def shop(seed: int = 0, timed: bool = False) -> Any:
    """Purchases of few items, carts that follow the same tastes, and views that follow none."""
    rng = np.random.default_rng(seed)
    same = np.arange(300)[:, None] % 5 == np.arange(60)[None, :] % 5
    rows = []
    for event, near, far in (("buy", 0.2, 0.02), ("cart", 0.5, 0.02), ("view", 0.1, 0.1)):
        found = np.argwhere(rng.random(same.shape) < np.where(same, near, far))
        rows += [(int(u), int(i), event, int(rng.integers(100))) for u, i in found]
    log = pl.DataFrame(rows, schema=["user", "item", "event", "time"], orient="row")
    log = log if timed else log.drop("time")
    return tl.read(log, kind="event", kinds={"buy": 1, "cart": 1, "view": 1}, target="buy")


def test_kinds_are_used_where_they_help_and_the_reason_says_what_they_bring() -> None:
    split = tl.splits.by_user(shop(), validation=0.4, test=0.1, seed=0)
    model = tl.AutoRecommender(n_trials=14).fit(split, progress=False)
    choice = model.choice_
    assert type(model.model_) is tl.WeightedKinds
    assert set(model.model_.weights_) == {"cart"}
    assert model.model_.weights_["cart"] > 0
    assert "cart with the weight" in choice.reason
    assert re.search(
        r"view brings nothing, and is left out|view with .* may be noise, and is left out", choice.reason
    )
    assert rebuilt(choice).fit(split.train, progress=False).recommend(k=5).equals(model.recommend(k=5))


def test_a_model_of_kinds_is_saved_and_loaded(tmp_path: Path) -> None:
    split = tl.splits.by_user(shop(), validation=0.4, test=0.1, seed=0)
    model = tl.AutoRecommender(n_trials=12).fit(split, progress=False)
    assert type(model.model_) is tl.WeightedKinds
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.choice_ == model.choice_
    assert again.recommend(k=3).equals(model.recommend(k=3))


@pytest.mark.parametrize("timed", [False, True])
def test_kinds_do_not_tell_of_the_held_out_interactions(timed: bool) -> None:
    data = shop(timed=timed)
    part, held_out = tl.AutoRecommender()._parts(data, FitOptions())
    pairs = {(user, item) for user, item, *_ in held_out.to_frame().rows()}
    carts = part.to_frame("cart")
    known = {(user, item) for user, item, *_ in carts.rows()}
    if not timed:  # nobody knows what came first
        assert not pairs & known
        return
    assert pairs & known
    first = dict(held_out.to_frame().group_by("user_id").agg(pl.col("time").min()).rows())
    assert all(time < first.get(user, 100) for user, _, _, time in carts.rows())
    everything = data.to_frame("cart")
    before = [row for row in everything.rows() if row[3] < first.get(row[0], 100)]
    assert len(before) == carts.height


def test_the_race_asks_models_with_and_without_kinds_for_the_same_lists() -> None:
    rng = np.random.default_rng(0)
    first = rng.permuted(np.tile(np.arange(30), (80, 1)), axis=1)[:, :6]
    log = [
        (user, int(item), event, 10**9 + 86_400 * (10 * n + before))
        for user, items in enumerate(first)
        for n, item in enumerate(items)
        for event, before in (("view", -12), ("dislike" if n == 0 else "buy", 0))
    ]
    kinds = {
        "view": {"weight": "learned", "seen": "60d"},
        "buy": {"role": "target", "seen": "30d"},
        "dislike": "negative",
    }
    data = tl.read(
        pl.DataFrame(log, schema=["user", "item", "event", "time"], orient="row"), kind="event", kinds=kinds
    )
    split = tl.splits.by_user(data, by="time", validation=0.2, test=0.2, seed=0)
    model = tl.AutoRecommender(n_trials=9).fit(split, progress=False)
    assert " of 80 users" in model.choice_.reason, "what was viewed before can be a hit"
    assert "view " in model.choice_.reason
