"""A served model answers what the model's own methods answer, and lists keep to the options."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.data.replay import Event
from truelike.errors import DataError, FilterError, ParameterError, StorageError, muted
from truelike.rules.arrange import MOST_DIVERSE, Place
from truelike.serving.loader import load
from truelike.serving.schemas import Boost, ListOptions, Pin, RankOptions
from truelike.serving.served_model import ServedModel
from truelike.serving.settings import Settings

NOBODY = np.zeros(0, dtype=np.int32)
MODELS: dict[str, Callable[[], Any]] = {
    "ItemPop": tl.ItemPop,
    "ItemKNN": lambda: tl.ItemKNN(neighbors=10),
    "EASE": tl.EASE,
    "IALS": lambda: tl.IALS(factors=8, epochs=2),
    "NBPO": lambda: tl.NBPO(factors=8, epochs=2),
    "SoftmaxMF": lambda: tl.SoftmaxMF(factors=6, epochs=2),
    "ExactNBPO": lambda: tl.ExactNBPO(factors=6, flip_factors=2, epochs=2),
    "Blend": lambda: tl.Blend(first="IALS:factors=4:epochs=2", second="ItemKNN"),
    "WeightedKinds": lambda: tl.WeightedKinds(model="IALS:factors=4:epochs=2"),
    "NeuMF": lambda: tl.NeuMF(factors=4, epochs=1),
}


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest, data: tl.Dataset, snapshot: Callable[..., ServedModel]) -> Any:
    """A model, and the same one from a snapshot."""
    model = MODELS[request.param]().fit(data, progress=False)
    return model, snapshot(model)


def ids(served: ServedModel, places: list[Place]) -> list[str]:
    return [served.items[place.item] for place in places]


def user(served: ServedModel, name: str = "u3") -> Any:
    row = served.users.row(name)
    assert row is not None
    return served.who(row)


def clicks(served: ServedModel, rows: Any) -> list[Event[str]]:
    return [Event(served.items[int(row)], "click") for row in rows]


@pytest.mark.parametrize("k", [1, 10, 200])
@pytest.mark.parametrize("exclude_seen", [True, False])
def test_lists_are_those_of_the_model(pair: Any, k: int, exclude_seen: bool) -> None:
    model, served = pair
    for name in ("u3", "u77"):
        expected = model.recommend([name], k, exclude_seen=exclude_seen)
        found = served.recommend(user(served, name), RankOptions(k=k, exclude_seen=exclude_seen))
        assert ids(served, found) == expected["item_id"].to_list()
        assert np.array_equal([place.score for place in found], expected["score"].to_numpy())


def test_lists_of_new_users_are_those_of_the_model(pair: Any) -> None:
    model, served = pair
    items = ["i3", "i7", "i11"]
    expected = model.recommend_from_items(items, 10)
    who = served.new_user(served.item_rows(items))
    assert who.source == "fold_in"
    found = served.recommend(who, RankOptions(k=10))
    assert ids(served, found) == expected["item_id"].to_list()
    assert np.array_equal([place.score for place in found], expected["score"].to_numpy())


def test_similar_items_are_those_of_the_model(pair: Any) -> None:
    model, served = pair
    expected = model.similar_items(["i7"], 5, exclude=["i9"])
    found = served.similar(served.items.row("i7"), ListOptions(k=5, exclude=["i9"]))
    assert ids(served, found) == expected["similar_item_id"].to_list()
    assert np.array_equal([place.score for place in found], expected["score"].to_numpy())


def test_hidden_likes_are_those_of_the_model(pair: Any) -> None:
    model, served = pair
    assert ("hidden_likes" in served.can) == hasattr(model, "hidden_likes")
    if not hasattr(model, "hidden_likes"):
        return
    expected = model.hidden_likes(["u3"], 5)
    row = served.users.row("u3")
    found = served.hidden_likes(row, ListOptions(k=5), NOBODY)
    assert found.drop("row").equals(expected)
    fewer = served.hidden_likes(row, ListOptions(k=4, offset=1), NOBODY)
    assert fewer["item_id"].to_list() == expected["item_id"].to_list()[1:]
    without = served.hidden_likes(row, ListOptions(k=4), np.array([found["row"][0]], dtype=np.int32))
    assert without["item_id"].to_list() == expected["item_id"].to_list()[1:]


def test_explanations_are_those_of_the_model(pair: Any) -> None:
    model, served = pair
    expected = model.explain("u3", "i7", k=3)
    who = user(served)
    found = served.explain(who, served.item_rows(["i7"]))
    best = found.largest(3)[0]
    assert [served.items[int(who.seen[at])] for at in best] == expected["because_item_id"].to_list()
    assert np.array_equal(found.values[0, best], expected["contribution"].to_numpy())
    assert found.scores[0] == model.score("u3", "i7")[0]


def test_pages_are_parts_of_the_list(served: ServedModel) -> None:
    for options in ({}, {"diversity": 0.4}, {"boosts": [Boost(filter="category = tea", add=1.0)]}):
        whole = ids(served, served.recommend(user(served), RankOptions(k=30, **options)))
        pages = [
            ids(served, served.recommend(user(served), RankOptions(k=10, offset=n, **options)))
            for n in (0, 10, 20)
        ]
        assert [item for page in pages for item in page] == whole


def test_candidates_exclude_and_filter(served: ServedModel) -> None:
    who = user(served)
    everything = ids(served, served.recommend(who, RankOptions(k=100)))
    few = everything[3:9]
    assert ids(served, served.recommend(who, RankOptions(k=5, candidates=[*few, "unknown"]))) == few[:5]
    assert ids(served, served.recommend(who, RankOptions(k=5, candidates=few, exclude=few[:2]))) == few[2:]
    found = ids(served, served.recommend(who, RankOptions(k=100, filter="category = tea and price < 10")))
    assert found == [item for item in everything if int(item[1:]) % 3 == 0 and int(item[1:]) < 20]
    assert served.recommend(who, RankOptions(candidates=["unknown"])) == []
    with pytest.raises(FilterError, match="no column"):
        served.recommend(who, RankOptions(filter="colour = red"))


def test_a_boost_is_in_units_of_the_scores(served: ServedModel) -> None:
    who = user(served)
    scores = served.scores(who)
    options = RankOptions(k=100, exclude_seen=False, boosts=[Boost(filter="category = rum", add=2.0)])
    found = served.recommend(who, options)
    deviation = scores.std(dtype=np.float64)
    for place in found:
        number = int(served.items[place.item][1:])
        boosted = 2.0 * deviation if number % 3 == 1 and number < 55 else 0.0
        assert place.score == pytest.approx(scores[place.item] + boosted, abs=1e-5)
    assert [place.score for place in found] == sorted((place.score for place in found), reverse=True)
    named = served.recommend(who, RankOptions(k=1, boosts=[Boost(items=["i50"], add=10)], exclude_seen=False))
    assert ids(served, named) == ["i50"]


def test_pins_are_where_they_were_put(served: ServedModel) -> None:
    who = user(served)
    plain = ids(served, served.recommend(who, RankOptions(k=5)))
    pins = [Pin(item=plain[4], position=1), Pin(item="i59", position=3)]
    found = served.recommend(who, RankOptions(k=5, pins=pins))
    assert ids(served, found)[0] == plain[4]
    assert ids(served, found)[2] == "i59"
    assert [place.pinned for place in found] == [True, False, True, False, False]
    rest = [item for item in plain[:4] if item != "i59"]
    assert [ids(served, [place])[0] for place in found if not place.pinned] == rest[:3]
    unknown = served.recommend(who, RankOptions(k=5, pins=[Pin(item="nothing", position=1)]))
    assert ids(served, unknown) == plain
    with pytest.raises(ParameterError, match="same position"):
        served.recommend(who, RankOptions(pins=[Pin(item="i1", position=1), Pin(item="i2", position=1)]))


def test_diversity_is_maximal_marginal_relevance(served: ServedModel) -> None:
    who = user(served)
    pool = served.recommend(who, RankOptions(k=MOST_DIVERSE))
    scores = np.array([place.score for place in pool], dtype=np.float64)
    relevance = (scores - scores.min()) / (scores.max() - scores.min())
    factors = served.model.item_factors_[[place.item for place in pool]].astype(np.float64)
    factors /= np.linalg.norm(factors, axis=1, keepdims=True)
    similarity = factors @ factors.T
    np.fill_diagonal(similarity, 0)
    similarity = np.clip(similarity / similarity.max(), 0, 1)
    for weight in (0.3, 0.7, 1.0):
        chosen: list[int] = []
        for _ in range(8):  # the definition, written out
            best, most = -1, -np.inf
            for n in range(len(pool)):
                near = max((similarity[n, m] for m in chosen), default=0.0)
                value = (1 - weight) * relevance[n] - weight * near
                if n not in chosen and value > most + 1e-12:
                    best, most = n, value
            chosen.append(best)
        found = served.recommend(who, RankOptions(k=8, diversity=weight))
        assert [place.item for place in found] == [pool[n].item for n in chosen]
    with pytest.raises(ParameterError, match="with diversity"):
        served.recommend(who, RankOptions(k=MOST_DIVERSE, offset=1, diversity=0.1))


def test_diversity_lowers_the_similarity_within_a_list(pair: Any) -> None:
    _, served = pair
    who = user(served)
    similarity = np.maximum(served.scorer.similarities(np.arange(served.n_items, dtype=np.int32)), 0)

    def inner(**options: Any) -> float:
        rows = np.array([place.item for place in served.recommend(who, RankOptions(k=8, **options))])
        assert len(np.unique(rows)) == 8
        return float(np.triu(similarity[np.ix_(rows, rows)], 1).sum())

    assert inner(diversity=0.9) <= inner()


def test_new_events_are_folded_in_and_popular_is_the_last_resort(served: ServedModel) -> None:
    row = served.users.row("u3")
    assert row is not None
    seen = served.interactions(row)
    new = np.setdiff1d(np.arange(served.n_items, dtype=np.int32), seen)[:2]
    assert served.who(row, clicks(served, seen[:2])).source == "model", "nothing new"
    who = served.who(row, clicks(served, new))
    assert (who.source, who.events) == ("fold_in", 2)
    found = [place.item for place in served.recommend(who, RankOptions(k=50))]
    assert not set(found) & {*new.tolist(), *seen.tolist()}
    nobody = served.who(None)
    assert nobody.source == "popular"
    popular = served.recommend(nobody, RankOptions(k=3))
    assert [place.item for place in popular] == np.argsort(-served.popularity, kind="stable")[:3].tolist()


SHOP = tl.Schema(
    {
        "view": {"weight": 0.2, "seen": "7d"},
        "buy": {"role": "target", "weight": "quantity", "seen": "30d"},
        "refund": {"role": "cancels", "weight": "quantity"},
        "dislike": "negative",
    },
    "event",
)
DAY = 86_400


@pytest.fixture(scope="module")
def shop() -> Any:
    """A log of a shop whose last day is today."""
    now, rng = int(time.time()), np.random.default_rng(0)
    rows = [
        (f"u{user}", f"i{item}", "buy", int(rng.integers(1, 4)), now - DAY * int(rng.integers(40, 90)))
        for user in range(60)
        for item in rng.choice(20, 6, replace=False)
    ]
    rows += [("ann", "i1", "buy", 2, now - 10 * DAY), ("ann", "i2", "buy", 1, now - 50 * DAY)]
    rows += [("ann", "i3", "dislike", 1, now - 5 * DAY), ("ann", "i4", "view", 1, now - 2 * DAY)]
    rows += [("ann", "i5", "view", 1, now - 20 * DAY)]
    return tl.read(
        pl.DataFrame(rows, schema=["user", "item", "event", "quantity", "time"], orient="row"), kinds=SHOP
    )


def fitted(model: Any, data: Any) -> Any:
    with muted():  # some models do not count quantities
        return model.fit(data, progress=False)


def listed(served: ServedModel, *events: tuple[str, str], user: str = "ann", **options: Any) -> set[str]:
    """The items of a list of a user after some events."""
    row = served.users.row(user)
    who = served.who(row, [Event(item, kind, round(1e6 * time.time())) for item, kind in events])
    return set(ids(served, served.recommend(who, RankOptions(k=50, **options))))


def test_lists_follow_the_schema_and_the_events(shop: Any, snapshot: Callable[..., ServedModel]) -> None:
    served = snapshot(fitted(tl.IALS(factors=8, epochs=2, weighting="linear"), shop))
    every = {f"i{n}" for n in range(20)}
    assert listed(served) == every - {"i1", "i3", "i4"}, "bought, disliked and viewed lately"
    assert listed(served, ("i7", "buy")) == every - {"i1", "i3", "i4", "i7"}
    assert listed(served, ("i7", "view")) == every - {"i1", "i3", "i4", "i7"}
    assert listed(served, ("i7", "dislike")) == every - {"i1", "i3", "i4", "i7"}
    assert listed(served, ("i1", "remove")) == every - {"i3", "i4"}, "it was never bought"
    assert listed(served, ("i7", "buy"), ("i7", "refund")) == every - {"i1", "i3", "i4", "i7"}, "sent back"
    assert listed(served, exclude_seen={"dislike": True}) == every - {"i3"}
    assert listed(served, exclude_seen="100d") == every - {"i1", "i2", "i3", "i4", "i5"}
    assert listed(served, exclude_seen=False) == every


def test_a_kind_that_the_model_does_not_keep_is_said(shop: Any, snapshot: Callable[..., ServedModel]) -> None:
    schema = tl.Schema({**SHOP.kinds, "view": tl.Kind()}, SHOP.column)
    served = snapshot(fitted(tl.ItemPop(), shop.with_parts(schema=schema)))
    (said,) = served.unknown(RankOptions(exclude_seen=["buy", "view"]))
    assert said.startswith("exclude_seen names 'view', of which nothing is known")
    assert served.unknown(RankOptions(exclude_seen=["buy", "dislike"])) == []
    assert served.unknown(RankOptions(exclude_seen="30d")) == []


def test_what_does_not_count_changes_no_scores(shop: Any, snapshot: Callable[..., ServedModel]) -> None:
    served = snapshot(fitted(tl.IALS(factors=8, epochs=2), shop))
    row = served.users.row("ann")
    now = round(1e6 * time.time())
    for kind in ("view", "dislike"):
        who = served.who(row, [Event("i7", kind, now)])
        assert (who.source, who.events) == ("model", 1)
    assert served.who(row, [Event("i7", "buy", now)]).source == "fold_in"
    old = [Event("i7", "buy", now - 10**6 * DAY * 100)]
    assert served.who(row, old, oldest=now - 1e6 * DAY * 90).source == "model"
    gone = served.who(row, [Event("i1", "remove", 0), Event("i2", "refund", now)], oldest=now - 1e6 * DAY)
    assert not gone.is_known, "all was taken back, whenever that was"


@pytest.mark.parametrize("weighting", ["none", "linear"])
def test_a_click_folds_in_what_was_trained(
    weighting: Any, shop: Any, snapshot: Callable[..., ServedModel]
) -> None:
    """The same history with the same weights and times has the scores that a new user with it has."""
    model = fitted(tl.EASE(weighting=weighting), shop)
    served = snapshot(model)
    who = served.who(served.users.row("ann"), [Event("i7", "buy", round(1e6 * time.time()), 3.0)])
    history = pl.DataFrame({"item_id": ["i1", "i2", "i7"], "weight": [2.0, 1.0, 3.0]})
    expected = model.recommend_from_items(history, k=5, exclude_seen=False)
    places = served.recommend(who, RankOptions(k=5, exclude_seen=False))
    assert ids(served, places) == expected["item_id"].to_list()
    np.testing.assert_allclose([place.score for place in places], expected["score"].to_list(), rtol=1e-5)


@pytest.mark.parametrize("model", ["IALS:factors=4:epochs=2", "EASE", "ItemKNN"])
def test_kinds_that_count_stay_when_a_user_clicks(
    model: str, shop: Any, snapshot: Callable[..., ServedModel]
) -> None:
    served = snapshot(fitted(tl.WeightedKinds(model=model, weights={"view": 0.5, "dislike": -0.5}), shop))
    row, now = served.users.row("ann"), round(1e6 * time.time())
    viewed = served.who(row, [Event("i9", "view", now)])
    assert viewed.source == "fold_in"
    history = viewed.history.toarray()[0]
    at = {item: served.items.row(item) for item in ("i1", "i2", "i3", "i4", "i5", "i9")}
    assert all(history[at[item]] > 0 for item in ("i1", "i2", "i4", "i5", "i9"))
    assert history[at["i3"]] == -0.5
    for name in ("i3", "i9"):  # what is taken back counts no more
        after = served.who(row, [Event("i9", "view", now), Event(name, "remove", now)])
        assert after.history is None or after.history.toarray()[0][at[name]] == 0
    # a history of the same kinds has about the scores of the user as trained
    same = served.who(row, [Event("i9", "view", now), Event("i9", "remove", now)])
    assert same.history is None
    folded = served.scores(same._replace(history=served._folded(same.known)))
    trained = served.scores(served.who(row))
    assert np.corrcoef(folded, trained)[0, 1] > 0.97


@pytest.mark.parametrize(
    "model", ["IALS:factors=4:epochs=2", "EASE:weighting=linear", "ItemKNN", "SoftmaxMF:factors=4:epochs=2"]
)
def test_a_new_user_of_whom_another_kind_is_known_has_a_list(
    model: str, shop: Any, snapshot: Callable[..., ServedModel]
) -> None:
    served = snapshot(fitted(tl.WeightedKinds(model=model, weights={"view": 0.5, "dislike": -0.5}), shop))
    viewed = served.who(None, [Event("i9", "view")])
    assert viewed.source == "fold_in"
    assert len(served.recommend(viewed, RankOptions(k=3))) == 3
    disliked = served.who(None, [Event("i9", "dislike")])
    assert not disliked.is_known
    for rule in (True, ["dislike"]):
        assert "i9" not in ids(served, served.recommend(disliked, RankOptions(k=100, exclude_seen=rule)))


def test_kinds_are_checked(shop: Any, snapshot: Callable[..., ServedModel]) -> None:
    served = snapshot(fitted(tl.ItemPop(), shop))
    served.check_kind("buy")
    served.check_kind("remove")
    with pytest.raises(
        ParameterError, match=r"'clikc' is no kind of events that the model 'main' knows: .*view, buy"
    ):
        served.check_kind("clikc")


COUNTED = {"weighting": "linear", "recency": "user", "half_life": 0.3}


@pytest.mark.parametrize(
    "model",
    [
        tl.IALS(factors=8, epochs=3, **COUNTED),
        tl.SoftmaxMF(factors=6, epochs=3, weighting="log", recency="global"),
        tl.EASE(weighting="linear"),
        tl.Blend(first="IALS:factors=6:epochs=3:recency=user", second="ItemKNN:weighting=linear"),
    ],
    ids=lambda model: model.name,
)
def test_the_history_of_a_known_user_keeps_its_weights_and_times(
    model: Any, data: tl.Dataset, snapshot: Callable[..., ServedModel]
) -> None:
    rng, frame = np.random.default_rng(0), data.to_frame().select("user_id", "item_id")
    rows = frame.with_columns(
        weight=rng.integers(1, 9, frame.height), time=1_600_000_000 + rng.integers(0, 10**7, frame.height)
    )
    model = tl.clone(model).fit(tl.read(rows, weight="weight"), progress=False)
    served, mine = snapshot(model), rows.filter(pl.col("user_id") == "u3").drop("user_id")
    row, known = served.users.row("u3"), mine["item_id"][0]
    unseen = next(item for item in served.items.take([0, 1, 2, 3, 4, 5]) if item not in set(mine["item_id"]))
    for now, items in ((1_620_000_000, [unseen]), (1_620_000_000, [known, unseen]), (1_605_000_000, [known])):
        more = pl.DataFrame({"item_id": items, "weight": [1] * len(items), "time": [now] * len(items)})
        who = served.who(row, [Event(item, "click", 10**6 * now) for item in items])
        assert (who.source, who.events) == ("fold_in", len(items))
        expected = model.recommend_from_items(pl.concat([mine, more]), 10)
        found = served.recommend(who, RankOptions(k=10))
        assert ids(served, found) == expected["item_id"].to_list()
        np.testing.assert_allclose([place.score for place in found], expected["score"], rtol=1e-5)
        reasons = served.explain(who, np.array([found[0].item], dtype=np.int32))
        explained = model.explain_from_items(pl.concat([mine, more]), expected["item_id"][0], k=99)
        np.testing.assert_allclose(-np.sort(-reasons.values[0]), explained["contribution"], rtol=1e-3, atol=1e-5)


def test_the_index_finds_almost_what_exact_lists_have(
    data: tl.Dataset, snapshot: Callable[..., ServedModel]
) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed: pip install 'truelike[ann]'")
    model = tl.SoftmaxMF(factors=8, epochs=3).fit(data, progress=False)
    exact, served = snapshot(model, index="exact"), snapshot(model, index="ivf")
    assert (exact.index, served.ranking["kind"]) == (None, "ivf")
    assert served.ranking["recall_at_20"] >= 0.95
    hits = 0
    more: tuple[dict[str, Any], ...] = (
        {},
        {"exclude": ["i1"]},
        {"filter": "category = tea"},
        {"exclude_seen": False},
    )
    for options in (RankOptions(k=10, **each) for each in more):
        for name in ("u3", "u50", "u77"):
            one, two = exact.recommend(user(exact, name), options), served.recommend(user(served, name), options)
            hits += len({place.item for place in one} & {place.item for place in two})
            shared = {place.item: place.score for place in one}
            assert all(shared[place.item] == place.score for place in two if place.item in shared)
            assert [place.score for place in two] == sorted((place.score for place in two), reverse=True)
    assert hits >= 0.9 * 4 * 3 * 10


def test_an_index_below_the_floor_is_refused(data: tl.Dataset, snapshot: Callable[..., ServedModel]) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed: pip install 'truelike[ann]'")
    model = tl.IALS(factors=8, epochs=2).fit(data, progress=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("truelike.serving.index.ApproximateIndex._recall", lambda *_: (0.5, 0.1))
        served = snapshot(model, index="ivf", min_recall=0.9)
    assert served.index is None
    assert "below 0.9" in served.ranking["note"]
    assert served.ranking["recall_at_20"] == 0.5


def test_a_table_of_other_items_is_an_error(ials: Any, tmp_path: Path) -> None:
    ials.save(tmp_path / "model")
    (tmp_path / "items.csv").write_text("item_id,price\nother,3\n")
    settings = Settings(models={"m": str(tmp_path / "model")}, shares=[1], items=str(tmp_path / "items.csv"))
    with pytest.raises(DataError, match="none of the 1 items of the table"):
        load(settings, "m", tmp_path / "snapshot")


def test_a_damaged_model_is_never_a_snapshot(ials: Any, tmp_path: Path) -> None:
    ials.save(tmp_path / "model")
    arrays = tmp_path / "model" / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-9])
    with pytest.raises(StorageError, match="damaged"):
        load(Settings(models={"m": str(tmp_path / "model")}, shares=[1]), "m", tmp_path / "snapshot")


def test_a_change_of_the_model_directory_does_not_reach_a_snapshot(ials: Any, tmp_path: Path) -> None:
    ials.save(tmp_path / "model")
    load(Settings(models={"m": str(tmp_path / "model")}, shares=[1]), "m", tmp_path / "snapshot")
    served = ServedModel(tmp_path / "snapshot")
    before = served.recommend(user(served), RankOptions(k=10))
    for path in (tmp_path / "model").iterdir():
        path.write_bytes(b"")  # in place, as `cp` does
    assert served.recommend(user(served), RankOptions(k=10)) == before


def test_the_version_changes_with_the_table_of_items(ials: Any, tmp_path: Path) -> None:
    ials.save(tmp_path / "model")
    versions = []
    for number, price in enumerate((3, 3, 4)):
        (tmp_path / "items.csv").write_text(f"item_id,price\ni1,{price}\n")
        settings = Settings(models={"m": str(tmp_path / "model")}, shares=[1], items=str(tmp_path / "items.csv"))
        versions.append(load(settings, "m", tmp_path / f"snapshot{number}")["version"])
    assert versions[0] == versions[1] != versions[2]
