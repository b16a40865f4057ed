"""The service: which model answers, unknown ids, events that count, and explanations that add up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import truelike as tl
from truelike.errors import ParameterError, UnknownIdError
from truelike.rules.budget import limited
from truelike.serving.events import Event
from truelike.serving.schemas import (
    BatchRequest,
    ExplainRequest,
    HiddenAnswer,
    HiddenRequest,
    HistoryQuery,
    RecommendAnswer,
    RecommendRequest,
    SearchQuery,
    SimilarRequest,
)
from truelike.serving.served_model import ServedModel
from truelike.serving.service import Service


def add(service: Service, *pairs: tuple[str, str], kind: str = "click") -> None:
    assert service.events is not None
    service.events.append([Event(user, item, kind) for user, item in pairs])


def names(answer: dict[str, Any]) -> list[str]:
    return [item["item"] for item in answer["items"]]


def test_unknown_users_may_get_what_is_trending(snapshot: Any) -> None:
    rows = [(f"u{n}", f"i{n % 7}", 1, 1_700_000_000 - 86_400 * n) for n in range(60)]
    model = tl.EASE().fit(tl.read([*rows, *((f"u{n}", "old", 1, 1_600_000_000) for n in range(40))]))
    served = Service([snapshot(model)], [1.0])
    asked: dict[str, Any] = {"k": 5, "on_unknown": "trending"}
    expected = model.recommend("nobody", **asked)
    answer = served.recommend(RecommendRequest(user="nobody", **asked))
    assert (answer["source"], names(answer)) == ("trending", expected["item_id"].to_list())
    assert [item["score"] for item in answer["items"]] == pytest.approx(expected["score"].to_list())
    assert names(answer) != names(served.recommend(RecommendRequest(user="nobody", k=5, on_unknown="popular")))
    assert served.recommend(RecommendRequest(items=["x"], **asked))["source"] == "trending"
    assert served.recommend(RecommendRequest(user="u3", **asked))["source"] == "model"
    lists = served.batch(BatchRequest(users=["u3", "nobody"], **asked))["lists"]
    assert [each["source"] for each in lists] == ["model", "trending"]


def test_an_answer_names_model_version_source_and_titles(service: Service, served: ServedModel) -> None:
    answer = service.recommend(RecommendRequest(user="u3", k=2))
    assert {name: answer[name] for name in ("model", "version", "user", "source", "events")} == {
        "model": "main", "version": served.version, "user": "u3", "source": "model", "events": 0,
    }  # fmt: skip
    assert [item["rank"] for item in answer["items"]] == [1, 2]
    assert answer["items"][0]["title"] == f"The {answer['items'][0]['item']} <b>"
    assert service.recommend(RecommendRequest(user="u3", k=2, offset=5))["items"][0]["rank"] == 6


def test_unknown_users_are_errors_that_name_them_or_get_popular_items(service: Service) -> None:
    with pytest.raises(UnknownIdError, match="the user 'nobody' is not among the 117 users"):
        service.recommend(RecommendRequest(user="nobody"))
    answer = service.recommend(RecommendRequest(user="nobody", on_unknown="popular"))
    assert answer["source"] == "popular"
    with pytest.raises(UnknownIdError, match="none of the items 'x', 'y' is"):
        service.recommend(RecommendRequest(items=["x", "y"]))
    assert service.recommend(RecommendRequest(items=["x"], on_unknown="popular"))["source"] == "popular"
    assert service.recommend(RecommendRequest(items=["x", "i3"]))["source"] == "fold_in"
    with pytest.raises(ParameterError, match="'main' was trained on data without times"):
        service.recommend(RecommendRequest(user="nobody", on_unknown="trending"))
    with pytest.raises(ParameterError, match="neither `user` nor `items`"):
        service.recommend(RecommendRequest())
    with pytest.raises(UnknownIdError, match="the item 'x'"):
        service.similar(SimilarRequest(item="x"))
    with pytest.raises(UnknownIdError, match="no model 'x'; there are main"):
        service.recommend(RecommendRequest(user="u3", model="x"))
    with pytest.raises(ParameterError, match="at most 10,000"):
        service.recommend(RecommendRequest(user="u3", k=1_000, offset=9_500))


def test_events_count_at_the_next_request_and_can_be_taken_back(service: Service) -> None:
    before = service.recommend(RecommendRequest(user="u3", k=10))
    liked = names(before)[0]
    add(service, ("u3", liked), ("u3", "not in the model"))
    after = service.recommend(RecommendRequest(user="u3", k=10))
    assert (after["source"], after["events"]) == ("fold_in", 1)
    assert liked not in names(after)
    add(service, ("u3", liked), kind="remove")
    assert service.recommend(RecommendRequest(user="u3", k=10)) == before


def test_a_new_user_has_a_list_after_the_first_event(service: Service) -> None:
    add(service, ("new", "i3"), ("new", "i5"))
    answer = service.recommend(RecommendRequest(user="new", k=5))
    expected = service.recommend(RecommendRequest(items=["i3", "i5"], k=5))
    assert (answer["source"], answer["events"]) == ("fold_in", 2)
    assert names(answer) == names(expected)


def test_history_has_new_events_first(service: Service, served: ServedModel) -> None:
    row = served.users.row("u3")
    assert row is not None
    known = [served.items[int(item)] for item in served.interactions(row)]
    add(service, ("u3", "elsewhere"), ("u3", known[0]), kind="purchase")
    answer = service.history(HistoryQuery(user="u3", limit=100))
    assert names(answer)[:2] == [known[0], "elsewhere"]
    assert [item.get("event") for item in answer["items"][:3]] == ["purchase", "purchase", None]
    assert sorted(names(answer)) == sorted([*known, "elsewhere"])
    assert answer["total"] == len(known) + 1
    short = service.history(HistoryQuery(user="u3", limit=3))
    assert names(short) == names(answer)[:3]
    assert short["total"] == answer["total"]
    with pytest.raises(UnknownIdError, match="'nobody' is not known"):
        service.history(HistoryQuery(user="nobody", limit=10))


def test_each_user_has_one_model_and_shares_hold(
    data: tl.Dataset, served: ServedModel, snapshot: Callable[..., ServedModel]
) -> None:
    other = snapshot(tl.ItemKNN().fit(data), name="other")
    service = Service([served, other], [90, 10])
    arms = {user: service.arm(user).name for user in map(str, range(5_000))}
    assert arms == {user: Service([served, other], [0.9, 0.1]).arm(user).name for user in arms}
    share = Counter(arms.values())["other"] / len(arms)
    assert abs(share - 0.1) < 5 * (0.1 * 0.9 / len(arms)) ** 0.5
    assert service.arm("1", "other").name == "other"
    answer = service.batch(BatchRequest(users=["u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8"], k=2))
    assert [each["model"] for each in answer["lists"]] == [
        service.arm(each["user"]).name for each in answer["lists"]
    ]
    known = service.batch(BatchRequest(users=["u1", "nobody", "u2"], k=2, on_unknown="skip"))
    assert [each["user"] for each in known["lists"]] == ["u1", "u2"]
    salted = Service([served, other], [90, 10], salt="second test")
    assert {user for user in arms if salted.arm(user).name == "other"} != {u for u in arms if arms[u] == "other"}
    everyone = Service([served, other], [1, 0])
    assert {everyone.arm(user).name for user in arms} == {"main"}
    assert [card["share"] for card in service.cards()] == [0.9, 0.1]


def test_a_batch_whose_time_is_over_ends(service: Service) -> None:
    asked = BatchRequest(users=["u1", "u2", "u3"])
    assert len(service.batch(asked)["lists"]) == 3
    with limited(time.monotonic() - 1), pytest.raises(TimeoutError):
        service.batch(asked)


def test_explanations_add_up_to_the_score(service: Service, ials: Any) -> None:
    answer = service.explain(ExplainRequest(user="u3", explain=["i7", "i9"], because=100))
    assert answer["method"] == "exact"
    for item, expected in zip(answer["items"], ials.score("u3", ["i7", "i9"]), strict=True):
        assert item["score"] == expected
        whole = ials.explain("u3", item["item"], k=1_000)["contribution"].sum()
        assert item["base"] + whole == pytest.approx(expected, abs=1e-4)
        total = item["base"] + item["rest"] + sum(reason["contribution"] for reason in item["because"])
        assert total == pytest.approx(item["score"], abs=1e-5)
        assert len(item["because"]) > 10
    short = service.explain(ExplainRequest(user="u3", explain=["i7"], because=1))["items"][0]
    assert short["base"] + short["rest"] + short["because"][0]["contribution"] == pytest.approx(
        short["score"], abs=1e-5
    )
    listed = service.recommend(RecommendRequest(user="u3", k=3, because=2))
    for item in listed["items"]:
        assert 1 <= len(item["because"]) <= 2
        assert item["method"] == "exact"
        assert item["because"][0]["title"].startswith("The i")
    new = service.explain(ExplainRequest(items=["i3"], explain=["i7"]))
    assert (new["user"], new["source"]) == (None, "fold_in")


def test_a_model_whose_explanations_take_too_long_gives_none(
    service: Service, served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(served.about, "explain_milliseconds", 60_000.0)
    answer = service.recommend(RecommendRequest(user="u3", k=3, because=2))
    assert all("because" not in item for item in answer["items"])
    assert "explain" not in service.cards()[0]["can"]
    with pytest.raises(ParameterError, match="takes about 60 s"):
        service.explain(ExplainRequest(user="u3", explain=["i7"]))


def test_hidden_likes_need_a_model_that_has_them(service: Service) -> None:
    with pytest.raises(ParameterError, match=r"\(IALS\) has no flip probabilities"):
        service.hidden_likes(HiddenRequest(user="u3"))


# --- probabilities --------------------------------------------------------------------------------

QUICK: dict[str, Any] = {"factors": 6, "epochs": 3}
IMPRESSION_MF: dict[str, Any] = {"steps": 20, "burn_in": 5, "samples": 2}
SENTENCES: dict[str, Any] = {
    "impressions": "what was shown to whom",
    "propensities": "how likely a like of each item would have been observed",
    "assumed: user activity and item visibility": "the more active the user and the more visible the item",
    "interactions": "a ranking by the model, not probabilities",
}


@pytest.fixture(scope="module", params=SENTENCES)
def noisy(request: pytest.FixtureRequest, data: tl.Dataset, shown: tl.Dataset, snapshot: Any) -> Any:
    """The evidence for probabilities, a model, and a service of it."""
    likely = shown.to_frame().select("user_id", "item_id", pl.lit(0.5).alias("propensity"))
    evidence, model = request.param, tl.ExactNBPO(**QUICK)
    more: dict[str, Any] = {"impressions": shown, "propensities": likely}
    if evidence in more:
        model = tl.ImpressionMF(**IMPRESSION_MF).fit(tl.read(data, impressions=more[evidence]), progress=False)
    else:
        model = (model if evidence == "interactions" else tl.ExposureMF(**QUICK)).fit(data, progress=False)
    return evidence, model, Service([snapshot(model)], [1.0])


def test_hidden_likes_say_their_evidence(noisy: Any) -> None:
    evidence, model, service = noisy
    answer = service.hidden_likes(HiddenRequest(user="u3", k=5))
    assert answer["evidence"] == evidence
    assert SENTENCES[evidence] in answer["note"]
    assert answer["identified"] == (evidence != "interactions")
    expected = model.hidden_likes(["u3"], 5)
    assert [item["posterior"] for item in answer["items"]] == expected["posterior"].to_list()
    assert set(expected["evidence"]) == {evidence}
    [card] = service.cards()
    assert card["probabilities"] == {name: answer[name] for name in ("evidence", "note", "identified")}
    HiddenAnswer(request_id="x", **answer)


@pytest.mark.parametrize(
    "more",
    [
        {}, {"boosts": [{"filter": "category = tea", "add": 2}]}, {"pins": [{"item": "i9", "position": 2}]},
        {"diversity": 0.5},
    ],
    ids=str,
)  # fmt: skip
def test_lists_have_probabilities_where_they_are_some(noisy: Any, more: dict[str, Any]) -> None:
    evidence, model, service = noisy
    answer = service.recommend(RecommendRequest(user="u3", k=5, **more))
    RecommendAnswer(request_id="x", **answer)
    if evidence == "interactions":
        assert "evidence" not in answer
        assert all("probability" not in item for item in answer["items"])
        return
    assert answer["evidence"] == evidence
    expected = model.like_probability("u3", [item["item"] for item in answer["items"]])["probability"]
    assert [item["probability"] for item in answer["items"]] == pytest.approx(expected.to_list(), abs=1e-6)


def test_new_users_have_probabilities_and_popular_items_have_none(noisy: Any) -> None:
    evidence, _, service = noisy
    new = service.recommend(RecommendRequest(items=["i3", "i7"], k=5))
    assert ("probability" in new["items"][0]) == (evidence != "interactions")
    popular = service.recommend(RecommendRequest(user="nobody", k=5, on_unknown="popular"))
    assert all("probability" not in item for item in popular["items"])
    assert "evidence" not in popular
    together = service.recommend_each([RecommendRequest(user=user, k=5) for user in ("u3", "u7")])
    assert together == [service.recommend(RecommendRequest(user=user, k=5)) for user in ("u3", "u7")]


def test_a_model_without_flips_has_no_probabilities(service: Service) -> None:
    answer = service.recommend(RecommendRequest(user="u3", k=3))
    assert "probability" not in answer["items"][0]
    assert service.cards()[0]["probabilities"] is None


def test_searches(service: Service) -> None:
    assert service.find_users(SearchQuery(query="u11", limit=3))["users"] == ["u11", "u110", "u111"]
    assert len(service.find_users(SearchQuery(query="", limit=5))["users"]) == 5
    found = service.find_items(SearchQuery(query="the I5", limit=100))["items"]
    assert {item["item"] for item in found} == {"i5", *(f"i{n}" for n in range(50, 60))}
    assert service.find_items(SearchQuery(query="i7", limit=1))["items"][0]["attributes"] == {
        "category": "rum", "price": 3.5, "organic": False,
    }  # fmt: skip
    assert len(service.find_items(SearchQuery(query="", limit=4))["items"]) == 4


def test_the_card_has_what_is_known_of_a_model(service: Service) -> None:
    (card,) = service.cards()
    assert card["class_name"] == "IALS"
    assert card["parameters"]["factors"] == 8
    assert card["metrics"] == {"ndcg@20": 0.25}
    assert card["data"]["users"] == 117
    assert card["history"]["epoch"] == [0, 1, 2]
    assert card["filters"] == {"category": "String", "price": "Float64", "organic": "Boolean"}
    assert card["ranking"]["kind"] == "exact"
