"""Limits, the shares of an A/B test, keys, and that the same question has the same answer, on a real server."""

from __future__ import annotations

import math
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import KEY, Server

import truelike as tl

pytestmark = pytest.mark.slow

USERS = [f"user {n}" for n in range(2_000)]
POPULAR = {"on_unknown": "popular", "k": 3}


def arms(server: Any, users: list[str]) -> list[str]:
    """The model of each user, by requests of many users."""
    found = []
    for start in range(0, len(users), 1_000):
        answer = server.ask("/v1/recommend/batch", {"users": users[start : start + 1_000], **POPULAR})
        found += [each["model"] for each in answer.json["lists"]]
    return found


def counted(server: Any) -> Counter[str]:
    """The lists of each model, by the metrics."""
    text = server.ask("/metrics").body.decode()
    found: Counter[str] = Counter()
    for model, n in re.findall(r'truelike_lists_total\{model="(\w+)",source="\w+"\} (\S+)', text):
        found[model] += int(float(n))
    return found


# --- shares ---------------------------------------------------------------------------------------


def test_the_shares_of_users_hold_and_the_metrics_say_the_same(server: Any) -> None:
    before = counted(server)
    found = Counter(arms(server, USERS))
    assert counted(server) - before == found
    expected, deviation = 0.75 * len(USERS), math.sqrt(len(USERS) * 0.75 * 0.25)
    assert abs(found["first"] - expected) < 4 * deviation
    assert found.total() == len(USERS)


# --- the same answer ------------------------------------------------------------------------------


def answers(server: Any) -> list[Any]:
    """Answers to some questions, without what is of one request."""
    users = server.ask("/v1/users").json["users"][:5]
    asked: list[tuple[str, Any]] = [
        *((f"/v1/recommend?user={user}&k=20&because=2", None) for user in users),
        ("/v1/recommend", {"items": ["1", "2", "3"], "diversity": 0.4, "k": 10}),
        ("/v1/recommend", {"user": users[0], "boosts": [{"filter": "category = tea", "add": 1}]}),
        ("/v1/recommend/batch", {"users": users, "pins": [{"item": "7", "position": 2}]}),
        ("/v1/similar?item=4", None),
        ("/v1/hidden-likes?user=5&model=second", None),
        ("/v1/explain?user=5&item=9", None),
        ("/v1/items?query=title%20of%2011", None),
    ]  # fmt: skip
    found = []
    for path, body in asked:
        answer = server.ask(path, body)
        assert answer.status == 200, answer.body
        found.append({name: value for name, value in answer.json.items() if name != "request_id"})
    return found


def test_the_same_question_has_the_same_answer_on_every_worker_and_after_a_restart(
    server: Any, tmp_path: Path
) -> None:
    first = answers(server)
    for _ in range(5):
        assert answers(server) == first
    with Server(tmp_path, *server.arguments, "--workers", "1") as another:  # the same events
        assert answers(another) == first
        assert arms(another, USERS) == arms(server, USERS)


def test_lists_that_are_asked_for_at_once_are_those_asked_for_alone(server: Any) -> None:
    known = server.ask("/v1/users?limit=20").json["users"]
    server.ask("/v1/events", {"events": [{"user": known[3], "item": "3"}]})
    queries = [f"user={user}&k={k}" for user, k in zip(known * 3, [*range(1, 50), 130] * 2, strict=False)]
    queries += [f"user={known[1]}&exclude_seen=false", "user=nobody", f"user={known[2]}&k=20&offset=30", "k=3"]
    queries += [f"user={known[0]}&model=second", f"user={known[0]}&k=200", "user=nobody&on_unknown=popular"]
    alone = [server.ask(f"/v1/recommend?{query}", headers={"x-request-id": "same"}) for query in queries]
    asked = [b"GET /v1/recommend?%s HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: same\r\n\r\n" % query.encode()
             for query in queries]  # fmt: skip
    made = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in asked]
    try:
        for _ in range(3):
            for each, request in zip(made, asked, strict=True):
                each.sendall(request)
            for each, expected in zip(made, alone, strict=True):
                answer = b""
                while not answer.endswith(expected.body):
                    part = each.recv(65_536)
                    assert part, (answer, expected.body)
                    answer += part
                    assert len(answer) < len(expected.body) + 2_000, (answer, expected.body)
    finally:
        for each in made:
            each.close()


# --- limits ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with a key, a large model, one worker, one request at a time and little time."""
    place = tmp_path_factory.mktemp("limited")
    data = tl.synthetic.World(n_users=60, n_items=4_000).dataset()
    tl.IALS(factors=128, epochs=1).fit(data, progress=False).save(place / "model")
    options = ("--workers", "1", "--max-in-flight", "1", "--timeout", "1", "--max-body", "30000", "--no-page")
    with Server(place, place / "model", *options, key=KEY) as running:
        yield running


def test_a_request_that_takes_long_is_ended_and_others_are_answered(limited: Any) -> None:
    users = limited.ask("/v1/users?limit=20").json["users"]
    heavy = {"users": users * 50, "k": 100, "diversity": 0.5, "exclude_seen": False}
    found: list[Any] = []
    busy = threading.Thread(target=lambda: found.append(limited.ask("/v1/recommend/batch", heavy)))
    busy.start()
    refused: list[Any] = []
    while busy.is_alive():
        assert limited.ask("/healthz").status == 200
        assert limited.ask("/readyz").status == 200
        answer = limited.ask(f"/v1/recommend?user={users[0]}")
        if answer.status != 200:
            refused.append(answer)
    busy.join()
    assert (found[0].status, found[0].code) == (504, "took_too_long")
    assert "1 s" in found[0].json["error"]["message"]
    assert refused
    assert {(answer.status, answer.code) for answer in refused} == {(503, "busy")}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert limited.ask(f"/v1/recommend?user={users[0]}").status == 200


def test_the_limit_of_bodies_and_the_options_are_kept_and_the_key_is_in_no_log(limited: Any) -> None:
    assert limited.ask("/v1/recommend", b" " * 30_001).code == "body_too_large"
    assert limited.ask("/").code == "no_route"
    for key in (limited.key[:-1], ""):
        assert limited.ask("/v1/models", headers={"x-api-key": key}).code == "key_wrong"
    assert limited.key not in limited.log()
    for process in (limited.main, *limited.workers()):
        assert limited.key not in " ".join(process.cmdline())
