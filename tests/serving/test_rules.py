"""The service applies the rules of the library: the same lists to the bit, alone, in a batch, and by defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from servers import Server

import truelike as tl
from truelike.errors import FilterError, ParameterError
from truelike.serving.app import make_app
from truelike.serving.loader import load
from truelike.serving.schemas import BatchRequest, HiddenRequest, RankOptions, RecommendRequest, SimilarRequest
from truelike.serving.served_model import ServedModel
from truelike.serving.service import Service
from truelike.serving.settings import Settings

from .test_app import Client, settings

MODELS: dict[str, Callable[[], Any]] = {
    "ItemPop": tl.ItemPop,
    "ItemKNN": lambda: tl.ItemKNN(neighbors=10),
    "IALS": lambda: tl.IALS(factors=7, epochs=2),
    "NBPO": lambda: tl.NBPO(factors=8, epochs=2),
}
RULES: list[dict[str, Any]] = [
    {"filter": "category in (tea, rum) and price < 20"},
    {"boosts": [{"filter": "category = rum", "add": 0.7}, {"items": ["i3", "i9"], "add": -1}]},
    {"pins": {"i59": 1, "i7": 4}},
    {"diversity": 0.4},
    {"at_most": {"category": 2}},
    {"min_new": 0.3, "new": "price > 20"},
    {"filter": "price < 25", "boosts": [{"filter": "organic = true", "add": 0.3}], "pins": {"i50": 2}, "diversity": 0.2,
     "at_most": {"category": 3}, "min_new": 0.25, "new": "price > 15"},
]  # fmt: skip
USERS = ["u3", "u50", "u77"]


def asked(rules: dict[str, Any]) -> dict[str, Any]:
    """Rules as a request has them."""
    pins = [{"item": item, "position": at} for item, at in rules.get("pins", {}).items()]
    return {**rules, **({"pins": pins} if pins else {})}


def listed(answer: dict[str, Any]) -> list[tuple[str, float]]:
    return [(each["item"], float(each["score"])) for each in answer["items"]]


@pytest.mark.parametrize("name", MODELS)
def test_lists_by_rules_are_those_of_the_library_to_the_bit(
    data: tl.Dataset, snapshot: Callable[..., ServedModel], items_file: Path, name: str
) -> None:
    model = MODELS[name]().fit(data, progress=False)
    service = Service([snapshot(model)], [1.0])
    for rules in RULES:
        library = tl.Rules(**rules, items=items_file)
        expected = {
            user: [(row["item_id"], row["score"]) for row in frame.rows(named=True)]
            for user, frame in zip(
                [*USERS, "nobody"],
                model.recommend([*USERS, "nobody"], 8, rules=library, on_unknown="popular").partition_by(
                    "user_id", maintain_order=True
                ),
                strict=True,
            )
        }
        default = Service(list(service.models.values()), [1.0], rules=tl.Rules(**rules))
        for user, own in expected.items():
            options: dict[str, Any] = {"user": user, "k": 8, "on_unknown": "popular"}
            assert listed(service.recommend(RecommendRequest(**options, **asked(rules)))) == own
            assert listed(default.recommend(RecommendRequest(**options))) == own
        batch = BatchRequest(users=[*USERS, "nobody"], k=8, on_unknown="popular", **asked(rules))
        assert [listed(each) for each in service.batch(batch)["lists"]] == list(expected.values())
        new = model.recommend_from_items(["i3", "i7"], 8, rules=library)
        request = RecommendRequest(items=["i3", "i7"], k=8, **asked(rules))
        assert listed(service.recommend(request)) == new.select("item_id", "score").rows()


def test_pages_are_parts_of_one_list(served: ServedModel) -> None:
    service = Service([served], [1.0])
    for rules in RULES:
        whole = [
            served.recommend(served.who(3), RankOptions(k=5, offset=offset, **asked(rules)))
            for offset in (0, 5, 10)
        ]
        rows = [place.item for page in whole for place in page]
        assert len(rows) == len(set(rows))
        odd = service.recommend(RecommendRequest(user=served.users[3], k=5, offset=3, **asked(rules)))
        assert [served.items.row(each["item"]) for each in odd["items"]] == rows[3:8]


def test_a_batch_excludes_the_items_of_each_user(service: Service) -> None:
    plain = {each["user"]: listed(each) for each in service.batch(BatchRequest(users=USERS, k=10))["lists"]}
    first = {user: own[0][0] for user, own in plain.items()}
    answer = service.batch(BatchRequest(users=USERS, k=9, exclude={"u3": [first["u3"]], "u50": [first["u50"]]}))
    assert "warnings" not in answer
    found = {each["user"]: listed(each) for each in answer["lists"]}
    assert found == {"u3": plain["u3"][1:], "u50": plain["u50"][1:], "u77": plain["u77"][:9]}
    said = service.batch(BatchRequest(users=["u3"], k=2, exclude={"u3": ["x"], "u4": []}))["warnings"]
    assert said == [
        "1 of 2 users of `exclude` are not among `users`",
        "1 of 1 excluded items are not in the training data, and skipped: 'x'",
    ]


def test_an_answer_says_what_was_named_in_vain(service: Service) -> None:
    def said(**options: Any) -> list[str]:
        return service.recommend(RecommendRequest(user="u3", k=3, **options)).get("warnings", [])

    pins = [{"item": "i1", "position": 1}]
    assert said(candidates=["i1", "i2"], exclude=["i1"], filter="price < 20", pins=pins) == []
    [one] = said(exclude=["x", "i1"])
    assert one == "1 of 2 excluded items are not in the training data, and skipped: 'x'"
    assert said(candidates=["x", "i1"])[0].startswith("1 of 2 candidates are not")
    assert said(pins=[{"item": "x", "position": 1}])[0].startswith("1 of 1 pinned items are not")
    assert said(boosts=[{"items": ["x"], "add": 1}])[0].startswith("1 of 1 items of a boost are not")
    assert said(filter="price > 1000")[0].startswith("none of the 59 items fits 'price > 1000'")
    assert service.similar(SimilarRequest(item="i3", exclude=["x"]))["warnings"][0].startswith("1 of 1 excluded")


def test_the_filter_of_every_list_holds_for_similar_items_and_hidden_likes(
    data: tl.Dataset, snapshot: Callable[..., ServedModel]
) -> None:
    served = snapshot(tl.NBPO(factors=8, epochs=2).fit(data, progress=False))
    service = Service([served], [1.0], rules=tl.Rules(filter="category = tea", pins={"i1": 1}))
    assert {int(item[1:]) % 3 for item, _ in listed(service.similar(SimilarRequest(item="i3")))} == {0}
    hidden = service.hidden_likes(HiddenRequest(user="u3", filter="price < 20"))["items"]
    assert hidden
    assert all(int(each["item"][1:]) % 3 == 0 and int(each["item"][1:]) < 40 for each in hidden)
    own = service.recommend(RecommendRequest(user="u3", pins=[{"item": "i5", "position": 1}]))
    assert own["items"][0]["item"] == "i5"
    assert not service.is_light(RecommendRequest(user="u3"), "u3")


def test_boosts_do_not_change_probabilities(
    data: tl.Dataset, snapshot: Callable[..., ServedModel], shown: tl.Dataset
) -> None:
    trained = tl.read(data, impressions=shown)
    service = Service([snapshot(tl.ImpressionMF(factors=4, steps=60, seed=0).fit(trained, progress=False))], [1.0])
    plain = service.recommend(RecommendRequest(user="u3", k=60))
    boosted = service.recommend(
        RecommendRequest(user="u3", k=60, boosts=[{"filter": "category = tea", "add": 2}], at_most={"organic": 20})
    )
    expected = {each["item"]: each["probability"] for each in plain["items"]}
    for each in boosted["items"]:
        assert each["probability"] == pytest.approx(expected[each["item"]], rel=1e-5)


def test_requests_by_http(service: Service) -> None:
    client = Client(make_app(service, settings()))
    body = {"user": "u3", "k": 10, "at_most": {"category": 2}, "min_new": 0.2, "new": "price > 20"}
    answer = client.post("/v1/recommend", json=body)
    assert (answer.status_code, len(answer.json()["items"]) >= 6) == (200, True)
    assert client.get("/v1/recommend?user=u3&min_new=0.2&new=price%20>%2020").status_code == 200
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"at_most": {"colour": 2}}, "filter", "They have category, organic, price"),
        ({"at_most": {"category": 0}}, "invalid", "at least 1"),
        ({"at_most": {str(n): 1 for n in range(21)}}, "list_too_long", "at most 20"),
        ({"min_new": 0.2}, "invalid", "expected both"),
        ({"new": "price >", "min_new": 0.1}, "filter", "it ends"),
        ({"min_new": 2, "new": "price > 3"}, "invalid", "less than or equal to 1"),
    ]
    for more, code, words in wrong:
        found = client.post("/v1/recommend", json={"user": "u3", **more}).json()["error"]
        assert found["code"] == code, found
        assert words in found["message"]
    batch = client.post("/v1/recommend/batch", json={"users": ["u3"], "exclude": {"u3": ["x"]}}).json()
    assert len(batch["warnings"]) == 1


def test_rules_that_cannot_be_used_keep_a_model_from_being_served(
    ials: Any, items_file: Path, tmp_path: Path
) -> None:
    ials.save(tmp_path / "model")
    versions = []
    several: list[dict[str, Any] | None] = [None, {"pins": {"i3": 1}}, {"pins": {"x": 1}}, {"pins": {"x": 1}}]
    for number, rules in enumerate(several):
        known = Settings(models={"m": str(tmp_path / "model")}, shares=[1], items=str(items_file), rules=rules)
        about = load(Settings.load(known.dump()), "m", tmp_path / f"snapshot{number}")
        versions.append(about["version"])
        assert any("1 of 1 pinned items" in text for text in about["warnings"]) == (number > 1)
    assert versions[2] == versions[3]
    assert len(set(versions)) == 3
    for rules, kind in (({"filter": "colour = red"}, FilterError), ({"min_new": 0.3}, ParameterError)):
        wrong = Settings(models={"m": str(tmp_path / "model")}, shares=[1], items=str(items_file), rules=rules)
        with pytest.raises(kind):
            load(wrong, "m", tmp_path / f"refused by {kind.__name__}")


def test_rules_survive_the_settings() -> None:
    rules = tl.Rules(
        filter="price < 3", boosts=[{"items": ["i1"], "add": 1}], pins={"i3": 1}, at_most={"category": 1}
    )
    again = tl.Rules.of(Settings.load(Settings(models={}, shares=[], rules=rules.plain).dump()).rules or {})
    assert again.plain == rules.plain


@pytest.mark.slow
def test_a_server_applies_its_rules_to_every_list(saved: dict[str, Path], tmp_path: Path) -> None:
    model = tl.load(saved["first"])
    first = model.recommend(1, 1)["item_id"][0]
    (tmp_path / "rules.toml").write_text(f'filter = "price < 20"\n[pins]\n{first} = 2\n')
    expected = model.recommend([1, 2], 5, rules=tl.Rules.read(tmp_path / "rules.toml", items=saved["items"]))
    options = ("--items", saved["items"], "--rules", tmp_path / "rules.toml")
    with Server(tmp_path, saved["first"], *options) as running:
        for user in (1, 2):
            answer = running.ask("/v1/recommend", {"user": str(user), "k": 5}).json
            own = expected.filter(pl.col("user_id") == user)
            assert [each["item"] for each in answer["items"]] == own["item_id"].cast(pl.String).to_list()
            assert answer["items"][1]["pinned"]
