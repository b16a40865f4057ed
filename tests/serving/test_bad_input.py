"""Hostile requests: each is refused with a 4xx that names the problem, and others are answered meanwhile."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

LIST = "/v1/recommend"
MANY = b",".join(b'"%d"' % n for n in range(100_000))
HOST = b"Host: 127.0.0.1\r\n"
POST = b"POST /v1/recommend HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
PROBLEM = {"code", "message"}

# what is sent as the body of a request for a list: the status, the code, and a part of the message
BODIES: dict[str, tuple[bytes, int, str, str]] = {
    "broken": (b'{"user":', 400, "not_json", "EOF"),
    "no JSON": (b"user=1", 400, "not_json", "expected value"),
    "another encoding": ('{"user": "1"}'.encode("utf-16"), 400, "not_json", "not JSON"),
    "a byte order mark": (b'\xef\xbb\xbf{"user": "1"}', 400, "not_json", "not JSON"),
    "no UTF-8": (b'{"user": "\xff\xfe"}', 400, "not_json", "unicode"),
    "half a character": (b'{"user": "\\ud800"}', 400, "not_json", "escape"),
    "NUL": (b'{"user": "1\\u0000"}', 404, "unknown", "'1\\x00'"),
    "nothing": (b"", 422, "invalid", "neither `user` nor `items`"),
    "k = 0": (b'{"user": "1", "k": 0}', 422, "invalid", "k: "),
    "k = 10^9": (b'{"user": "1", "k": 1000000000}', 422, "invalid", "less than or equal to 1000"),
    "k = 10^400": (b'{"user": "1", "k": 1' + 400 * b"0" + b"}", 422, "invalid", "k: "),
    "k = 10^5000": (b'{"user": "1", "k": 1' + 5_000 * b"0" + b"}", 400, "not_json", "number out of range"),
    "k = NaN": (b'{"user": "1", "k": NaN}', 422, "invalid", "k: "),
    "k = Infinity": (b'{"user": "1", "k": Infinity}', 422, "invalid", "k: "),
    "far": (b'{"user": "1", "k": 1000, "offset": 9500}', 422, "invalid", "offset + k is 10,500"),
    "diversity = NaN": (b'{"user": "1", "diversity": NaN}', 422, "invalid", "diversity: "),
    "boost = 10^99": (b'{"user": "1", "boosts": [{"add": 1e99}]}', 422, "invalid", "boosts.0.add"),
    "boost = -Infinity": (b'{"user": "1", "boosts": [{"add": -Infinity}]}', 422, "invalid", "boosts.0.add"),
    "a long id": (b'{"user": "' + 1_001 * b"a" + b'"}', 422, "invalid", "user: "),
    "an unknown id": (b'{"user": "nobody"}', 404, "unknown", "nobody"),
    "an unknown model": (b'{"user": "1", "model": "third"}', 404, "unknown", "third"),
    "a name of Python": (b'{"user": "1", "__class__": "x"}', 422, "invalid", "__class__: "),
    "100,000 items": (b'{"items": [' + MANY + b"]}", 413, "list_too_long", "items: "),
    "100,000 candidates": (b'{"user": "1", "candidates": [' + MANY + b"]}", 413, "list_too_long", "candidates: "),
    "deep lists": (100_000 * b"[" + 100_000 * b"]", 400, "not_json", "recursion"),
    "deep objects": (5_000 * b'{"user":' + b"1" + 5_000 * b"}", 400, "not_json", "recursion"),
    "10 MB": (b'"' + 10_000_000 * b"a" + b'"', 413, "body_too_large", "10000002 bytes"),
}
# a filter, and a part of the message
FILTERS = {
    "__import__('os').system('touch pwned')": "at letter 17",
    "price < __import__('os')": "compared with '__import__'",
    "price.__class__ = 1": "no column 'price.__class__'",
    "1; DROP TABLE items": "at letter 2",
    "price < 1 or 1 = 1": "the name of a column",
    "${jndi:ldap://127.0.0.1/}": "at letter 1",
    "`id`": "at letter 1",
    "lambda: 0": "at letter 7",
    "price < pl.len()": "has numbers",
    "category = 'a" + 5_000 * "a": "at most 2000",
    "price < NaN": "has numbers",
    "price < Infinity": "has numbers",
    "\ud83d\ude00 = 1": "at letter 1",
}  # fmt: skip
# where nothing is: paths that try to leave their place
PATHS = [
    "/v1/../v1/users", "/v1/../../etc/passwd", "//v1/users", "/v1//users", "/%2e%2e/%2e%2e/etc/passwd",
    "/static/../../../etc/passwd", "/static/..%2f..%2f..%2fetc%2fpasswd", "/static/%2e%2e/service.py", "/static/",
    "/static/page.css%00", "/static/page.css/", "/static//page.css", "/static/..%5c..%5capp.py", "/v1/users/",
    "/v1/users;a=1", "/V1/users", "/%ff%fe", "/v1/users%20", "/v1/users%00", "/settings.json", "/.env", "/metrics/",
    "/v1", "/v1/admin/../users", "/index.html", "/docs/..", "/*",
]  # fmt: skip


def check(answer: Any, status: int, code: str, part: str = "") -> None:
    assert (answer.status, answer.code) == (status, code), answer.body[:300]
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json["error"]) == PROBLEM
    assert len(answer.json["request_id"]) >= 8
    assert part in answer.json["error"]["message"], answer.json
    assert len(answer.body) < 1_000


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_refused(name: str, server: Any) -> None:
    body, *expected = BODIES[name]
    check(server.ask(LIST, body), *expected)


@pytest.mark.parametrize("text", FILTERS, ids=lambda text: ascii(text)[:30])
def test_a_filter_runs_no_code(text: str, server: Any) -> None:
    code = "invalid" if len(text) > 2_000 else "filter"
    check(server.ask(LIST, {"user": "1", "filter": text}), 422, code, FILTERS[text])


def test_paths_lead_nowhere_else(server: Any) -> None:
    for path in PATHS:
        check(server.ask(path), 404, "no_route", "nothing at")
    check(server.ask("/v1/%61dmin/reload"), 403, "no_key")


WRONG = {"time": -1, "type": "DROP TABLE", "user": "", "item": None, "colour": "red"}
WRONG_TOO = {"time": 1e300, "type": "a" * 100, "user": 2.5}
TIMES = ["2026-05-01T12:00:00", "2026-05-01", "soon", 1_700_000_000_000, True]


@pytest.mark.parametrize(
    "wrong", [*WRONG.items(), *WRONG_TOO.items(), *(("time", each) for each in TIMES)], ids=str
)
def test_a_bad_event_is_refused_with_all_beside_it(wrong: tuple[str, Any], server: Any) -> None:
    events = [{"user": "nobody", "item": "1"}, {"user": "u", "item": "i", **dict([wrong])}]
    check(server.ask("/v1/events", {"events": events}), 422, "invalid", "events.1.")
    assert server.ask("/v1/history?user=nobody").status == 404
    check(server.ask("/v1/events", {"events": []}), 422, "invalid")
    check(server.ask("/v1/events", {"events": [{"user": "u", "item": "i"}] * 1_001}), 413, "list_too_long")


def test_a_time_without_a_zone_is_refused_with_what_is_expected(server: Any) -> None:
    event = {"user": "u", "item": "i", "time": "2026-05-01T12:00:00"}
    check(
        server.ask("/v1/events", {"events": [event]}), 422, "invalid", "with a time zone such as 2026-05-01T12:00"
    )


def test_a_query_says_true_and_false(server: Any) -> None:
    for word, value in (("true", True), ("false", False)):
        asked = server.ask(f"{LIST}?user=1&k=9&exclude_seen={word}")
        assert asked.json["items"] == server.ask(LIST, {"user": "1", "k": 9, "exclude_seen": value}).json["items"]


def test_odd_ids_are_kept_as_they_are(server: Any) -> None:
    for user in ("NUL \x00 inside", "\u202eright to left", "\U0001f600", " ", "' or 1=1 --", "<script>"):
        kept = server.ask("/v1/events", {"events": [{"user": user, "item": "1", "type": "like"}]})
        assert kept.status == 201
        answer = server.ask("/v1/explain", {"user": user, "explain": ["2"]})
        assert (answer.status, answer.json["user"], answer.json["source"]) == (200, user, "fold_in")


def test_a_server_without_a_key_answers_to_its_own_name_only(server: Any) -> None:
    for host in ("127.0.0.1", "LOCALHOST:1", "[::1]:8000"):
        assert server.ask(f"{LIST}?user=1", headers={"host": host}).status == 200
    evil = ("evil.example", "127.0.0.1.evil.example:80", "evil.example:127.0.0.1", "127.0.0.1@evil.example")
    for host in (*evil, "", ":80"):
        check(server.ask(f"{LIST}?user=1", headers={"host": host}), 421, "wrong_host", "another name")


def test_a_second_host_is_refused(server: Any) -> None:
    for first, second in ((b"127.0.0.1", b"evil.example"), (b"evil.example", b"127.0.0.1")):
        asked = b"GET /healthz HTTP/1.1\r\nHost: %s\r\nHost: %s\r\nConnection: close\r\n\r\n" % (first, second)
        assert b'"header_twice"' in talk(server, asked)[0]


def test_other_content_types_are_refused(server: Any) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "json"):
        check(server.ask(LIST, b"{}", headers={"content-type": kind}), 415, "not_json", "content-type")
    right = {"content-type": "Application/JSON; charset=utf-8"}
    assert server.ask(LIST, {"user": "1"}, headers=right).status == 200


def test_other_methods(server: Any) -> None:
    for method in ("OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "PROPFIND"):
        answer = server.ask("/v1/users", method=method)
        check(answer, 405, "wrong_method", method)
        assert "GET" in answer.headers["allow"]
    head = server.ask("/v1/users", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert server.ask("/v1/users", b'{"limit": 1}', method="GET").status == 200  # a body that nobody asked for


# --- below HTTP -----------------------------------------------------------------------------------


def talk(server: Any, *parts: bytes, pause: float = 0.0, patience: float = 20.0) -> tuple[bytes, float]:
    """Send parts, and return what came back until the server closed, and the seconds."""
    started, answer = time.monotonic(), b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=patience) as made:
        try:
            for part in parts:
                made.sendall(part)
                time.sleep(pause)
            while found := made.recv(65_536):
                answer += found
        except (ConnectionResetError, BrokenPipeError):
            pass  # closed while more was sent
    return answer, time.monotonic() - started


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /healthz HTTP/9.9\r\n" + HOST + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT evil.example:80 HTTP/1.1\r\n" + HOST + b"\r\n",
        POST + b"Content-Length: " + 30 * b"9" + b"\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",  # smuggling
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
        POST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"Bad Name\x01: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + 32 * b"\x00",  # TLS
    ],
)
def test_what_is_no_http_is_refused_and_closed(sent: bytes, server: Any) -> None:
    answer, _ = talk(server, sent)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head
    assert json.loads(body)["error"]["code"] == "not_http"


def test_a_flood_of_headers_is_refused(server: Any) -> None:
    before = server.memory()
    for flood in (
        [b"X-%d: %s\r\n" % (n, 1_000 * b"y") for n in range(20_000)],
        [b"X: ", *(10_000 * b"y" for _ in range(2_000))],
        [10_000 * b"y" for _ in range(2_000)],
    ):
        answer, seconds = talk(server, b"GET /healthz HTTP/1.1\r\n" + HOST, *flood)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
        assert seconds < 10
    assert server.memory() - before < 20e6
    answer, _ = talk(server, b"GET /" + b"a" * 40_000, b"b" * 40_000, pause=0.2)
    assert b'"headers_too_large"' in answer


def test_slow_clients_are_closed_in_time(server: Any) -> None:
    head = b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-Slow: " + 30 * b"a"
    letters = [bytes([letter]) for letter in head]
    answer, seconds = talk(server, *letters, pause=0.5)  # would take more than half a minute
    assert answer == b""
    assert 1.5 < seconds < 20
    answer, seconds = talk(server)
    assert answer == b""
    assert seconds > 1.5
    answer, seconds = talk(server, POST + b'Content-Length: 50\r\n\r\n{"user"')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"too_slow"' in answer
    assert seconds > 1.5
    pieces = [POST + b"Transfer-Encoding: chunked\r\n\r\n", *(60 * [b"1\r\n \r\n"])]
    answer, seconds = talk(server, *pieces, pause=0.5)  # the answer may be lost, as the client still sends
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")
    assert 1.5 < seconds < 20


def test_bytes_after_an_answer_do_not_keep_a_connection(server: Any) -> None:
    asked = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
    answer, seconds = talk(
        server, asked, *(60 * [b"\r\n"]), pause=0.5
    )  # it may be lost, as the client still sends
    assert answer == b"" or answer.startswith(b"HTTP/1.1 200 ")
    assert 1.5 < seconds < 20


def test_slow_clients_do_not_slow_others(server: Any) -> None:
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(100)]
    try:
        for number, made in enumerate(slow):
            made.sendall(b"GET / HT" if number % 2 else POST + b"Content-Length: 9\r\n\r\n{")
        started = time.monotonic()
        for _ in range(20):
            assert server.ask(f"{LIST}?user=1").status == 200
        assert time.monotonic() - started < 20, "none waits for 2 s until the slow ones are closed"
    finally:
        for made in slow:
            made.close()


def test_bodies_that_do_not_arrive_take_no_place(server: Any) -> None:
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(240)]
    try:  # more than two workers handle at once; they end after 2 s
        for made in slow:
            made.sendall(POST + b"Content-Length: 9\r\n\r\n{")
        for _ in range(5):
            assert server.ask(f"{LIST}?user=1").status == 200
            assert server.ask(LIST, {"user": "1"}).status == 200
    finally:
        for made in slow:
            made.close()


def test_a_large_body_without_a_length_is_refused(server: Any) -> None:
    block = b"%x\r\n%s\r\n" % (65_536, 65_536 * b"a")
    answer, seconds = talk(server, POST + b"Transfer-Encoding: chunked\r\n\r\n", *(160 * [block]), b"0\r\n\r\n")
    assert seconds < 10
    if answer:  # it may be lost with the connection, as the client still sends
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b'"body_too_large"' in answer


def read_all(made: socket.socket) -> bytes:
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while found := made.recv(2**20):
            answer += found
    return answer


def test_an_answer_that_is_not_read_is_given_up(server: Any) -> None:
    body = json.dumps({"users": ["1"] * 900, "k": 110, "exclude_seen": False}).encode()
    asked = b"POST /v1/recommend/batch HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
    asked += b"Content-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(6):  # what the allocator keeps is there before
        assert server.ask("/v1/recommend/batch", body).status == 200
    before = server.memory()
    made = [socket.socket() for _ in range(4)]
    try:
        for each in made:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            each.settimeout(30)
            each.connect(("127.0.0.1", server.port))
            each.sendall(asked)
        heads = [each.recv(4_096) for each in made]
        sizes = [int(head.partition(b"content-length: ")[2].split()[0]) for head in heads]
        assert min(sizes) > 6e6, heads[0]
        assert server.ask(f"{LIST}?user=1").status == 200  # it is in nobody's way
        time.sleep(6)  # the timeout is 2 s
        for each, size in zip(made, sizes, strict=True):
            assert len(read_all(each)) < size - 1e6, "the rest was thrown away"
    finally:
        for each in made:
            each.close()
    assert server.memory() - before < 20e6


def test_requests_in_one_piece_are_answered_in_their_order(server: Any) -> None:
    asked = [b"GET /v1/users?limit=%d HTTP/1.1\r\n%s\r\n" % (n, HOST) for n in range(1, 21)]
    last = b"GET /v1/users?limit=0 HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    answer, _ = talk(server, b"".join([*asked, last]))
    bodies = [json.loads(part.partition(b"\r\n\r\n")[2]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert [len(body["users"]) for body in bodies[:-1]] == list(range(1, 21))
    assert bodies[-1]["error"]["code"] == "invalid"


def test_memory_stays_flat_under_bad_requests(server: Any) -> None:
    bad: list[Callable[[int], tuple[str, bytes | None]]] = [
        lambda n: (f"/nothing/{n}", None),
        lambda n: (f"{LIST}?user=nobody-{n}", None),
        lambda n: (f"{LIST}?user=1&k=-{n}", None),
        lambda n: (LIST, b'{"user": "1", "filter": "price < %d and no_%d = 1"}' % (n, n)),
        lambda n: (LIST, b'{"user": "1", "filter": "price > -%d"}' % n),  # a good one: masks are kept
        lambda n: (LIST, b'{"user": "1", "model": "m%d"}' % n),
        lambda n: (LIST, b"[" * n),
        lambda n: ("/v1/similar", b'{"item": "nothing %d"}' % n),
        lambda n: (LIST, b'{"items": ["1", "%d"]}' % (n % 120)),  # a good one: scores are kept
    ]

    def ask(times: range) -> None:
        with server.connection() as first, server.connection() as second:
            for n in times:
                path, body = bad[n % len(bad)](n)
                assert server.ask(path, body, through=(first, second)[n % 2]).status in (200, 400, 404, 422)

    ask(range(3_000))
    before = server.memory()
    ask(range(3_000, 6_000))
    assert server.memory() - before < 8e6
    assert server.ask(f"{LIST}?user=1").status == 200
    metrics = server.ask("/metrics").body.decode()
    assert "nothing" not in metrics  # labels are not made of what is asked
    assert "nobody" not in metrics
    assert "Traceback" not in server.log()
