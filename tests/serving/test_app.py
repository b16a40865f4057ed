"""The HTTP interface in this process: each route, each refusal, the key, and the document."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import truelike as tl
from truelike.serving.app import make_app
from truelike.serving.events import read_events
from truelike.serving.loader import load
from truelike.serving.served_model import ServedModel
from truelike.serving.service import Service
from truelike.serving.settings import Settings

KEY = "0123456789abcdef-key"
LOCAL = "http://127.0.0.1:8000"


class Client:
    """Calls an application in this process."""

    def __init__(self, app: Any, base_url: str = LOCAL) -> None:
        self.app, self.base_url = app, base_url

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=self.base_url) as client:
                return await client.request(method, path, **more)

        with ThreadPoolExecutor(1) as thread:  # the browser of other tests has an event loop in this one
            return thread.submit(lambda: asyncio.run(call())).result()

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)


def settings(**changed: Any) -> Settings:
    return Settings(models={"main": "model"}, shares=[1.0], **changed)


@pytest.fixture
def client(service: Service) -> Client:
    return Client(make_app(service, settings()))


def error(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/json"
    content = answer.json()
    assert set(content) == {"request_id", "error"}
    assert content["request_id"] == answer.headers["x-request-id"]
    return answer.status_code, content["error"]["code"]


def test_a_list_by_query_and_by_body(client: Client, ials: Any) -> None:
    expected = ials.recommend(["u3"], 4)
    by_query = client.get("/v1/recommend", params={"user": "u3", "k": 4})
    by_body = client.post("/v1/recommend", json={"user": "u3", "k": 4})
    for answer in (by_query, by_body):
        assert answer.status_code == 200
        assert [item["item"] for item in answer.json()["items"]] == expected["item_id"].to_list()
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert [item["score"] for item in by_query.json()["items"]] == pytest.approx(
        expected["score"].to_list(), rel=1e-6
    )


def test_the_request_id_is_the_callers_own_if_it_has_one(client: Client) -> None:
    for given, kept in (("mine-1", True), ("a b<c>", False)):
        answer = client.get("/v1/recommend?user=u3", headers={"x-request-id": given})
        assert (answer.json()["request_id"] == given) == kept


def test_all_routes_answer(client: Client) -> None:
    for path in (
        "/v1/similar?item=i7", "/v1/explain?user=u3&item=i7", "/v1/history?user=u3", "/v1/users?query=u1",
        "/v1/items?query=i1", "/v1/models", "/healthz", "/readyz", "/metrics", "/openapi.json", "/", "/docs",
    ):  # fmt: skip
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in answer.headers["content-security-policy"]
    posted: dict[str, Any] = {
        "/v1/recommend": {"items": ["i3"], "k": 3, "boosts": [{"filter": "price < 9", "add": 1}], "because": 1},
        "/v1/recommend/batch": {"users": ["u3", "u5"], "k": 2, "pins": [{"item": "i1", "position": 2}]},
        "/v1/similar": {"item": "i7", "candidates": ["i1", "i2"]},
        "/v1/explain": {"items": ["i3", "i4"], "explain": ["i7"]},
    }
    for path, body in posted.items():
        assert client.post(path, json=body).status_code == 200, path


def test_numbers_are_ids_too(tmp_path: Path) -> None:
    tl.ItemKNN().fit(tl.read([(1, 7), (1, 8), (2, 7), (2, 9), (3, 8)])).save(tmp_path / "model")
    load(Settings(models={"main": str(tmp_path / "model")}, shares=[1]), "main", tmp_path / "snapshot")
    client = Client(make_app(Service([ServedModel(tmp_path / "snapshot")], [1.0]), settings()))
    one, two = (client.post("/v1/recommend", json={"user": user}).json()["items"] for user in (1, "1"))
    assert one == two
    assert [item["item"] for item in one] == ["9"]
    assert error(client.post("/v1/recommend", json={"user": True})) == (422, "invalid")


@pytest.mark.parametrize(
    ("query", "status", "code", "part"),
    [
        ("", 422, "invalid", "neither `user`"),
        ("user=u3&k=" + 5_000 * "9", 422, "invalid", "k: "),
        ("user=u3&k=2&k=3", 422, "invalid", "twice"),
        ("user[]=u3", 422, "invalid", "user[]"),
        ("user=u3&diversity=nan", 422, "invalid", "diversity: "),
        ("user=u3&candidates=i1", 422, "invalid", "candidates: "),
        ("user=u3;k=2", 404, "unknown", "u3;k=2"),
        ("user=%ff", 404, "unknown", ""),
        ("user=%00%ff%zz", 404, "unknown", "\\x00"),
        ("user=%ed%a0%80", 404, "unknown", ""),  # half a character
        ("user=" + "x" * 2_000, 422, "invalid", "user: "),
        ("user=" + "x" * 20_000, 414, "url_too_long", "16,000"),
        ("&".join(f"a{n}=1" for n in range(60)), 422, "invalid", "more than 50 parameters"),
    ],
)
def test_a_wrong_query_is_refused(client: Client, query: str, status: int, code: str, part: str) -> None:
    answer = client.get(f"/v1/recommend?{query}")
    assert error(answer) == (status, code)
    assert part in answer.json()["error"]["message"]


def test_other_refusals(client: Client) -> None:
    assert error(client.get("/v1/nothing")) == (404, "no_route")
    assert error(client.request("PUT", "/v1/recommend")) == (405, "wrong_method")
    assert error(client.post("/v1/admin/reload")) == (403, "no_key")
    assert error(client.get("/v1/hidden-likes?user=u3")) == (422, "invalid")


def test_a_key_opens_what_is_not_open(service: Service) -> None:
    client = Client(make_app(service, settings(host="0.0.0.0"), key=KEY), base_url="http://shop.example")
    for path in ("/healthz", "/readyz", "/", "/docs", "/openapi.json"):
        assert client.get(path).status_code == 200, path
    for path in ("/v1/models", "/metrics", "/v1/nothing"):
        assert error(client.get(path)) == (401, "key_missing")
        assert error(client.get(path, headers={"x-api-key": "wrong"})) == (401, "key_wrong")
        assert error(client.get(path, headers={"authorization": f"Bearer {KEY}x"})) == (401, "key_wrong")
        assert error(client.get(path, headers={"authorization": f"Basic {KEY}"})) == (401, "key_missing")
    assert client.get("/v1/models").headers["www-authenticate"] == "Bearer"
    assert client.get("/v1/models", headers={"x-api-key": KEY}).status_code == 200
    assert client.get("/v1/models", headers={"authorization": f"bearer {KEY}"}).status_code == 200
    assert error(client.post("/v1/admin/reload", headers={"x-api-key": KEY})) == (501, "no_supervisor")


def test_those_without_the_key_learn_no_reasons_from_readyz(service: Service) -> None:
    def status() -> Any:
        return {"problems": {"main": "/srv/models/main is damaged"}, "generation": 7}

    client = Client(make_app(service, settings(host="0.0.0.0"), key=KEY, status=status), "http://shop.example")
    for headers in ({}, {"x-api-key": "wrong"}, {"authorization": "Basic eDp5"}):
        found = client.get("/readyz", headers=headers)
        assert (found.status_code, found.json()["ready"], found.json()["degraded"]) == (200, True, True)
        assert set(found.json()) == {"request_id", "ready", "degraded", "models"}
    told = client.get("/readyz", headers={"x-api-key": KEY}).json()
    assert told["problems"] == {"main": "/srv/models/main is damaged"}
    assert (told["generation"], told["worker"]) == (7, os.getpid())


def test_a_path_forges_no_line_and_no_field_of_the_access_log(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(make_app(service, settings(access_log=True)))
    with caplog.at_level("INFO", "truelike"):
        for path in ("/%0d%0aFAKE%20line", "/%e2%80%a8x%1b[2J", "/a%20200%200.1%20ms%20b"):
            client.get(path)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    for line in lines:
        assert re.fullmatch(r"GET /[!-~]* 404 [\d.]+ ms [0-9a-f]{16}", line), line


@pytest.mark.parametrize("name", ["host", "x-api-key", "authorization", "content-type"])
def test_a_header_that_decides_is_sent_once(client: Client, name: str) -> None:
    value = "127.0.0.1" if name == "host" else "x"
    answer = client.get("/healthz", headers=[(name, "evil.example"), (name, value)])
    assert error(answer) == (400, "header_twice")


def test_events_are_on_disk_when_the_answer_comes(client: Client, service: Service) -> None:
    before = client.get("/v1/recommend?user=u3").json()
    liked = before["items"][0]["item"]
    bought = {"user": "u3", "item": liked, "type": "purchase", "request_id": before["request_id"]}
    events = [{**bought, "time": time.time() - 60}, {"user": "new", "item": "elsewhere"}]
    answer = client.post("/v1/events", json={"events": events})
    assert answer.status_code == 201
    assert answer.json()["accepted"] == 2
    assert answer.json()["unknown_items"] == ["elsewhere"]
    assert service.events is not None
    kept = read_events(service.events.directory)
    assert kept["item_id"].to_list() == [liked, "elsewhere"]
    assert kept.row(0, named=True)["request_id"] == before["request_id"]
    assert (kept["model"][0], kept["version"][0]) == (before["model"], before["version"])
    after = client.get("/v1/recommend?user=u3").json()
    assert (after["source"], after["events"]) == ("fold_in", 1)
    assert liked not in [item["item"] for item in after["items"]]
    text = client.get("/metrics").text
    assert 'truelike_events_total{model="main",type="purchase"} 1.0' in text
    assert 'truelike_lists_total{model="main",source="fold_in"} 1.0' in text


def test_an_event_may_name_the_model_of_its_list(client: Client, service: Service) -> None:
    event = {"user": "u3", "item": "i1", "model": "main", "version": "of-yesterday"}
    assert client.post("/v1/events", json={"events": [event]}).status_code == 201
    assert service.events is not None
    assert read_events(service.events.directory)["version"].to_list() == ["of-yesterday"]
    assert error(client.post("/v1/events", json={"events": [{**event, "model": "other"}]})) == (404, "unknown")


def test_a_server_without_events_says_so(served: ServedModel) -> None:
    client = Client(make_app(Service([served], [1.0]), settings()))
    assert error(client.post("/v1/events", json={"events": [{"user": "u3", "item": "i1"}]})) == (409, "no_events")


def test_events_that_cannot_be_written_are_an_error(
    client: Client, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    store, body = service.events, {"events": [{"user": "u3", "item": "i1"}]}
    assert store is not None
    store._writer.execute("PRAGMA query_only = ON")
    answer = client.post("/v1/events", json=body)
    assert error(answer) == (503, "storage")
    assert answer.headers["retry-after"] == "1"
    assert "readonly" in answer.json()["error"]["message"]
    assert "readonly" in caplog.text
    assert "readonly" in client.get("/readyz").json()["problems"]["events"]
    assert read_events(store.directory).height == 0
    store._writer.execute("PRAGMA query_only = OFF")
    store._writer.execute("DROP TABLE events")
    assert error(client.post("/v1/events", json=body)) == (500, "storage")


def test_lists_are_made_without_events_that_cannot_be_read(client: Client, service: Service) -> None:
    assert service.events is not None
    service.events._writer.execute("DROP TABLE events")
    assert client.get("/v1/recommend?user=u3").json()["source"] == "model"
    ready = client.get("/readyz").json()
    assert ready["ready"]
    assert "no such table" in ready["problems"]["events"]


def test_a_batch_is_limited_in_all(client: Client) -> None:
    asked = {"users": ["u3"] * 1_000, "k": 10, "because": 10}
    assert error(client.post("/v1/recommend/batch", json=asked)) == (422, "invalid")
    assert client.post("/v1/recommend/batch", json={**asked, "because": 0}).status_code == 200


def test_what_takes_too_long_is_given_up(
    service: Service, served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(make_app(service, settings(timeout=0.1)))
    monkeypatch.setattr(served, "similar", lambda *_: time.sleep(0.5))
    assert error(client.get("/v1/similar?item=i7")) == (504, "took_too_long")


def test_a_failure_is_logged_and_not_shown(
    client: Client, served: ServedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(served, "similar", fail)
    answer = client.get("/v1/similar?item=i7")
    assert error(answer) == (500, "internal")
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def test_the_page_can_be_left_out(service: Service) -> None:
    client = Client(make_app(service, settings(page=False)))
    assert error(client.get("/")) == (404, "no_route")


def test_the_document_has_all_routes_and_schemas(client: Client) -> None:
    document = client.get("/openapi.json").json()
    assert {"/v1/recommend", "/v1/events", "/v1/admin/reload", "/metrics"} <= set(document["paths"])
    names = {parameter["name"] for parameter in document["paths"]["/v1/recommend"]["get"]["parameters"]}
    assert names == {
        "user", "k", "offset", "filter", "exclude_seen", "diversity", "min_new", "new", "because",
        "on_unknown", "model",
    }  # fmt: skip

    def references(part: Any) -> Any:
        if isinstance(part, dict):
            if "$ref" in part:
                yield part["$ref"].rpartition("/")[2]
            part = list(part.values())
        if isinstance(part, list):
            for each in part:
                yield from references(each)

    assert set(references(document)) <= set(document["components"]["schemas"])


def test_models_are_replaced_between_requests(
    client: Client, service: Service, data: tl.Dataset, snapshot: Callable[..., ServedModel]
) -> None:
    before = client.get("/v1/recommend?user=u3").json()
    service.replace([snapshot(tl.ItemKNN().fit(data))])
    after = client.get("/v1/recommend?user=u3").json()
    assert before["version"] != after["version"]
    assert client.get("/readyz").json()["models"] == {"main": after["version"]}
