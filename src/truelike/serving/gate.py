"""The gate in front of the application: who may ask, how much, how long, and what is counted.

It is plain ASGI, because every layer costs every request. It knows nothing of models.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import quote

import orjson
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from truelike.core.progress import logger
from truelike.serving.metrics import Metrics
from truelike.serving.settings import Settings, is_loopback

Headers = tuple[tuple[bytes, bytes], ...]

LONGEST_URL = 16_000  # bytes
LARGE, MOST_UNREAD = 65_536, 128 * 2**20  # bytes of an answer, and of all large ones that are not read
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
]
AGAIN: Headers = ((b"retry-after", b"1"),)
BEARER: Headers = ((b"www-authenticate", b"Bearer"),)
CLOSE: Headers = ((b"connection", b"close"),)
ONCE = (b"host", b"authorization", b"x-api-key", b"content-type")  # headers that decide, and say one thing only
_ID = re.compile(rb"[\w.:-]{1,64}")


class RefusedError(Exception):
    """A request that is not passed on: a status, a code and a message."""

    def __init__(self, status: int, code: str, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers


def error_body(request_id: str, code: str, message: str) -> bytes:
    """The body of an error."""
    return orjson.dumps({"request_id": request_id, "error": {"code": code, "message": message}})


async def send_json(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    """Send an answer. A `Response` would take longer."""
    own = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": body})


class Gate:
    """An ASGI application for HTTP that checks requests before it passes them to another one, a router of Starlette.

    `access` says who may ask, by the path: "open", "key" (the default) or "admin". `urgent` are the paths that are
    answered at once, whatever the load.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Mapping[str, str],
        urgent: Collection[str],
        settings: Settings,
        key: str | None,
        metrics: Metrics,
    ) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self._access, self._urgent = access, urgent
        self._key = None if key is None else key.encode()
        self._in_flight = 0
        self._arriving = _Arriving(settings.max_in_flight * settings.max_body)
        self._unread = _Unread()
        self._hosts = self._allowed_hosts()

    def _allowed_hosts(self) -> set[bytes] | None:
        """The names by which a server without a key may be called: a web page elsewhere must not reach it."""
        if self._key is not None or not is_loopback(self.settings.host):
            return None
        names = {"127.0.0.1", "localhost", "[::1]", self.settings.host, *self.settings.allowed_hosts}
        return {name.lower().encode() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        started = time.perf_counter()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given.decode() if _ID.fullmatch(given) else secrets.token_hex(8)
        path = scope["path"]
        about: dict[str, Any] = {"request_id": request_id, "model": "", "route": "other"}
        about["trusted"] = self._key is None
        scope["truelike"] = about
        scope["app"] = self.app  # so that Starlette raises where there is no route, and does not answer itself
        exchange = _Exchange(send, request_id, self._unread, self._leave)
        body: _Body | None = None
        try:
            self._check(scope, path, headers)
            if scope["method"] in ("GET", "HEAD"):
                if path not in self._urgent:
                    self._admit(exchange)
            else:  # it is in flight when its body is here, so that slow clients are in nobody's way
                receive = body = _Body(receive, self.settings, self._arriving, lambda: self._admit(exchange))
            await self.app(scope, receive, exchange.send)
        except RefusedError as refused:
            await exchange.refuse(refused)
        except HTTPException as error:
            await exchange.refuse(_no_route(error, scope))
        except Exception:
            logger.exception("request %s failed", request_id)
            await exchange.refuse(RefusedError(500, "internal", "the server failed; its log has the reason"))
        finally:
            self._leave(exchange)
            if body is not None:
                body.end()
            seconds = time.perf_counter() - started
            self.metrics.request(about["route"], exchange.status, about["model"], seconds)
            if self.settings.access_log:
                shown = quote(path[:200], errors="replace")  # a line for each request, whatever its path
                line = "%s %s %d %.1f ms %s"
                logger.info(line, scope["method"], shown, exchange.status, 1_000 * seconds, request_id)

    def _admit(self, exchange: _Exchange) -> None:
        """Take a request in flight, or raise if there are too many."""
        if self._in_flight >= self.settings.max_in_flight:
            text = f"{self.settings.max_in_flight} requests are being handled; try again soon"
            raise RefusedError(503, "busy", text, AGAIN)
        self._in_flight += 1
        exchange.admitted = True

    def _leave(self, exchange: _Exchange) -> None:
        """Take a request out of flight: it is answered, whether or not the answer is read."""
        self._in_flight -= exchange.admitted
        exchange.admitted = False

    def _check(self, scope: Scope, path: str, headers: dict[bytes, bytes]) -> None:
        """Raise if a request is not passed on."""
        if len(headers) < len(scope["headers"]):
            _check_once(scope["headers"])
        if self._hosts is not None:
            host = headers.get(b"host", b"")
            name = host if host.startswith(b"[") and host.endswith(b"]") else host.rpartition(b":")[0] or host
            if name.lower() not in self._hosts:
                text = "the server is called by another name than its own. Use 127.0.0.1 or localhost."
                raise RefusedError(421, "wrong_host", text)
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_URL:
            raise RefusedError(414, "url_too_long", f"the URL has more than {LONGEST_URL:,} bytes. Use POST.")
        access = self._access.get(path, "key")
        if access != "open":
            self._check_key(access, headers)
        elif self._key is not None:
            scope["truelike"]["trusted"] = self._is_key(_given_key(headers))
        if scope["method"] == "POST":
            length = headers.get(b"content-length", b"0")
            if not length.isdigit() or len(length) > 18 or int(length) > self.settings.max_body:
                text = (
                    f"the body has {length.decode()[:30]} bytes; at most {self.settings.max_body:,} are possible"
                )
                raise RefusedError(413, "body_too_large", text)

    def _check_key(self, access: str, headers: dict[bytes, bytes]) -> None:
        if self._key is None:
            if access == "admin":
                text = "this needs an API key, and the server was started without one: see --key-file"
                raise RefusedError(403, "no_key", text)
            return
        given = _given_key(headers)
        if given is None:
            text = "an API key is needed: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`"
            raise RefusedError(401, "key_missing", text, BEARER)
        if not self._is_key(given):
            raise RefusedError(401, "key_wrong", "the API key is not the right one", BEARER)

    def _is_key(self, given: bytes | None) -> bool:
        return given is not None and self._key is not None and hmac.compare_digest(given, self._key)


def _given_key(headers: dict[bytes, bytes]) -> bytes | None:
    """The API key that was sent, in either of two headers."""
    given = headers.get(b"x-api-key")
    if given is None:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        given = token.strip() if scheme.lower() == b"bearer" else None
    return given


def _check_once(headers: list[tuple[bytes, bytes]]) -> None:
    """Raise if a header that decides was sent twice: a proxy may have looked at the other one."""
    names = [name for name, _ in headers]
    for name in ONCE:
        if names.count(name) > 1:
            raise RefusedError(400, "header_twice", f"the header {name.decode()!r} was sent twice")


def _no_route(error: HTTPException, scope: Scope) -> RefusedError:
    """What Starlette found: no route, or another method."""
    if error.status_code == 405:
        allow = tuple((b"allow", value.encode()) for value in (error.headers or {}).values())
        text = f"{scope['method']} is not possible here; see the header `allow`"
        return RefusedError(405, "wrong_method", text, allow)
    return RefusedError(404, "no_route", f"there is nothing at {scope['path'][:200]!r}; /docs has all routes")


class _Arriving:
    """The bodies that are arriving: their number, and the bytes that are here."""

    def __init__(self, most: int) -> None:
        self.most, self.bytes, self.number = most, 0, 0


class _Body:
    """The body of a request, with a limit of its bytes and of its time. `arrived` is called when all of it is here.

    If all bodies that are arriving have too many bytes, those with more than an equal share are refused.
    """

    def __init__(
        self, receive: Receive, settings: Settings, arriving: _Arriving, arrived: Callable[[], None]
    ) -> None:
        self._receive, self._settings, self._arriving, self._arrived = receive, settings, arriving, arrived
        self._until = time.monotonic() + settings.timeout
        self._size, self._ended = 0, False
        arriving.number += 1

    async def __call__(self) -> Message:
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            text = f"the body did not arrive within {self._settings.timeout:g} s"
            raise RefusedError(408, "too_slow", text, CLOSE) from None
        if message["type"] == "http.request" and not self._ended:
            self._take(len(message.get("body", b"")))
            if not message.get("more_body"):
                self.end()
                self._arrived()
        return message

    def _take(self, size: int) -> None:
        arriving = self._arriving
        self._size += size
        arriving.bytes += size
        if self._size > self._settings.max_body:
            text = f"the body has more than {self._settings.max_body:,} bytes"
            raise RefusedError(413, "body_too_large", text, CLOSE)
        if arriving.bytes > arriving.most and self._size * arriving.number > arriving.most:
            raise RefusedError(503, "busy", "too many bodies arrive at once; try again soon", (*AGAIN, *CLOSE))

    def end(self) -> None:
        """It is here, or nobody waits for it."""
        if not self._ended:
            self._ended = True
            self._arriving.number -= 1
            self._arriving.bytes -= self._size


class _Unread:
    """The bytes of large answers that clients have not read."""

    def __init__(self) -> None:
        self.bytes = 0

    def check(self, size: int) -> None:
        """Raise if there is no room for another answer."""
        if size > LARGE and self.bytes + size > MOST_UNREAD:
            raise RefusedError(503, "busy", "others do not read their large answers; try again soon", AGAIN)


class _Exchange:
    """The answer to a request, with the headers that all answers have."""

    def __init__(self, send: Send, request_id: str, unread: _Unread, leave: Callable[[_Exchange], None]) -> None:
        self._send, self._request_id, self._unread, self._leave = send, request_id, unread, leave
        self._headers = [(b"x-request-id", request_id.encode()), *HEADERS]
        self.status = 500
        self.admitted = False  # counted among the requests in flight
        self._begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            own = dict(message["headers"])
            self._unread.check(int(own.get(b"content-length", 0)))
            self._begun, self.status = True, message["status"]
            self._leave(self)
            message["headers"] = [*message["headers"], *(pair for pair in self._headers if pair[0] not in own)]
        elif len(message.get("body", b"")) > LARGE:
            await self._send_large(message)
            return
        await self._send(message)

    async def _send_large(self, message: Message) -> None:
        """Send a large body, and wait until the client has read most of it: it is in memory until then."""
        size = len(message["body"])
        self._unread.bytes += size
        try:
            await self._send({**message, "more_body": True})
            await self._send(
                {"type": "http.response.body", "body": b"", "more_body": message.get("more_body", False)}
            )
        finally:
            self._unread.bytes -= size

    async def refuse(self, refused: RefusedError) -> None:
        if not self._begun:  # else it is too late
            body = error_body(self._request_id, refused.code, refused.message)
            await send_json(self.send, refused.status, body, refused.headers)
