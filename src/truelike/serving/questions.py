"""The questions that the service answers by HTTP: how each is parsed, computed and written.

Requests are parsed by the classes of `schemas`, from the query or the body. What takes long is computed on a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from truelike.errors import ParameterError, StorageError, UnknownIdError
from truelike.progress import logger
from truelike.serving import schemas
from truelike.serving.event_writer import EventWriter
from truelike.serving.events import Event, EventsUnavailableError
from truelike.serving.filters import FilterError
from truelike.serving.gate import Receive, RefusedError, Scope, Send, error_body
from truelike.serving.metrics import Metrics
from truelike.serving.served_model import OutOfRangeError
from truelike.serving.service import Answer, Service
from truelike.serving.settings import Settings
from truelike.serving.together import Together

DUMPS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
MOST_PARAMETERS = 50  # of a query
TOO_MANY = "too_long"  # what pydantic calls a list that is too long


@dataclass(frozen=True)
class Question:
    """A route: what is asked, how it is answered, and how both are documented."""

    method: str
    path: str
    asked: type[BaseModel]
    answered: type[BaseModel]
    summary: str
    answer: Callable[[Any, Request], Awaitable[Answer]]
    status: int = 200
    more_errors: tuple[int, ...] = ()
    required: tuple[str, ...] = ()  # parameters of a query that must be given, though a body may lack them

    def route(self) -> Route:
        """The route of an application."""
        return Route(self.path, _Endpoint(self), methods=[self.method])

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. It is plain ASGI: a `Response` would take longer."""
        request = Request(scope, receive)
        about = scope["truelike"]
        about["route"] = self.path
        try:
            asked = await (self._from_query(request) if self.method == "GET" else self._from_body(request))
            answer = await self.answer(asked, request)
        except Exception as error:
            await refusal(request, refused(error))(scope, receive, send)
            return
        about["model"] = answer.get("model", "")
        body = orjson.dumps({"request_id": about["request_id"], **answer}, option=DUMPS)
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _from_query(self, request: Request) -> BaseModel:
        query = request.scope["query_string"].decode("latin-1")
        if query.count("&") >= MOST_PARAMETERS:
            raise RefusedError(422, "invalid", f"the query has more than {MOST_PARAMETERS} parameters")
        pairs = parse_qsl(query, keep_blank_values=True)
        given = dict(pairs)
        if len(given) < len(pairs):
            raise RefusedError(422, "invalid", "a parameter was given twice")
        return self.asked.model_validate(given)

    async def _from_body(self, request: Request) -> BaseModel:
        return self.asked.model_validate_json(await request.body() or b"{}")


class _Endpoint:
    """A question as an application: Starlette takes no method of an object for one."""

    def __init__(self, question: Question) -> None:
        self._question = question

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._question.respond(scope, receive, send)


def refusal(request: Request, error: Exception) -> Response:
    """The answer to a request that is refused."""
    assert isinstance(error, RefusedError)
    request_id = request.scope["truelike"]["request_id"]
    headers = {name.decode(): value.decode() for name, value in error.headers}
    body = error_body(request_id, error.code, error.message)
    return Response(body, error.status, headers, media_type="application/json")


def refused(error: Exception) -> RefusedError:
    """What a failed request is answered. An error that is not the asker's is logged."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, ValidationError):
        return _invalid(error)
    if isinstance(error, UnknownIdError):
        return RefusedError(404, "unknown", str(error))
    if isinstance(error, FilterError):
        return RefusedError(422, "filter", str(error))
    if isinstance(error, (ParameterError, OutOfRangeError)):
        return RefusedError(422, "invalid", str(error))
    if isinstance(error, ClientDisconnect):
        return RefusedError(400, "gone", "the client went away")
    logger.error("a request failed", exc_info=error)
    if isinstance(error, EventsUnavailableError):
        return RefusedError(503, "storage", str(error), ((b"retry-after", b"1"),))
    if isinstance(error, StorageError):
        return RefusedError(500, "storage", str(error))
    return RefusedError(500, "internal", "the server failed; its log has the reason")


def _invalid(error: ValidationError) -> RefusedError:
    """The first thing that is wrong with a request."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return RefusedError(400, "not_json", f"the body is not JSON: {first['msg']}")
    where = ".".join(map(str, first["loc"])) or "the request"
    if first["type"] == TOO_MANY:
        return RefusedError(413, "list_too_long", f"{where}: {first['msg']}")
    return RefusedError(422, "invalid", f"{where}: {first['msg']}")


class Questions:
    """All questions about models, users and items.

    Parameters
    ----------
    service
        What answers.
    settings
        The settings of the server.
    metrics
        Where lists and events are counted.
    threads
        Where answers are computed that take long.
    """

    def __init__(
        self, service: Service, settings: Settings, metrics: Metrics, threads: ThreadPoolExecutor
    ) -> None:
        self.service, self.settings, self.metrics, self.threads = service, settings, metrics, threads
        self.together = Together(service)
        self.writer = None if service.events is None else EventWriter(service.events)

    async def in_thread(self, work: Callable[[], Answer]) -> Answer:
        """Compute an answer on a thread, so that other requests are answered meanwhile."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await asyncio.get_running_loop().run_in_executor(self.threads, work)
        except TimeoutError:
            raise RefusedError(
                504,
                "took_too_long",
                f"the answer took more than {self.settings.timeout:g} s. Ask for less at once.",
            ) from None

    async def recommend(self, asked: schemas.RecommendRequest, _: Request) -> Answer:
        """A list for a user."""
        self.service.refresh()
        if asked.items is None and self.service.is_light(asked, asked.user):
            answer = await self.together.recommend(asked)
        else:
            answer = await self.in_thread(lambda: self.service.recommend(asked))
        self.metrics.lists(answer["model"], answer["source"])
        return answer

    async def batch(self, asked: schemas.BatchRequest, _: Request) -> Answer:
        """Lists for many users."""
        self.service.refresh()
        until = time.monotonic() + self.settings.timeout
        answer = await self.in_thread(lambda: self.service.batch(asked, until))
        for each in answer["lists"]:
            self.metrics.lists(each["model"], each["source"])
        return answer

    async def similar(self, asked: schemas.SimilarRequest, _: Request) -> Answer:
        """Items similar to one."""
        return await self.in_thread(lambda: self.service.similar(asked))

    async def hidden(self, asked: schemas.HiddenRequest, _: Request) -> Answer:
        """Likes that were never recorded."""
        self.service.refresh()
        return await self.in_thread(lambda: self.service.hidden_likes(asked))

    async def explain(self, asked: schemas.ExplainRequest, _: Request) -> Answer:
        """Why items have their scores."""
        self.service.refresh()
        return await self.in_thread(lambda: self.service.explain(asked))

    async def explain_simple(self, asked: schemas.ExplainQuery, request: Request) -> Answer:
        """Why an item has its score."""
        more = {"user": asked.user, "explain": [asked.item], "because": asked.because, "model": asked.model}
        return await self.explain(schemas.ExplainRequest(**more), request)

    async def history(self, asked: schemas.HistoryQuery, _: Request) -> Answer:
        """What is known of a user."""
        self.service.refresh()
        return self.service.history(asked.user, asked.limit, asked.model)

    async def users(self, asked: schemas.SearchQuery, _: Request) -> Answer:
        """Users by the start of their id."""
        return self.service.find_users(asked.query, asked.limit, asked.model)

    async def items(self, asked: schemas.SearchQuery, _: Request) -> Answer:
        """Items by id or title."""
        return await self.in_thread(lambda: self.service.find_items(asked.query, asked.limit, asked.model))

    async def models(self, _: schemas.NoQuery, __: Request) -> Answer:
        """What is known of each model."""
        return {"models": self.service.cards(), "keeps_events": self.writer is not None}

    async def events(self, asked: schemas.EventsRequest, _: Request) -> Answer:
        """Keep events."""
        if self.writer is None:
            raise RefusedError(409, "no_events", "this server keeps no events: start it with --events DIRECTORY")
        now = time.time()
        rows = []
        for event in asked.events:
            served = self.service.arm(event.user, event.model)
            when = round(1e6 * (now if event.time is None else event.time))
            version = event.version or served.version
            rows.append(Event(event.user, event.item, event.type, when, event.request_id, served.name, version))
        try:
            async with asyncio.timeout(self.settings.timeout):
                await self.writer.append(rows)
        except TimeoutError:
            raise RefusedError(
                504, "took_too_long", "the events were not on disk in time; they may be later"
            ) from None
        for row in rows:
            self.metrics.event(row.model or "", row.type)
        return {
            "accepted": len(rows),
            "unknown_items": self.service.unknown_items([event.item for event in asked.events]),
        }

    def all(self) -> list[Question]:
        """All questions, the most frequent first."""
        s = schemas
        return [
            Question(
                "GET", "/v1/recommend", s.RecommendRequest, s.RecommendAnswer, "A list for a user", self.recommend,
                required=("user",),
            ),
            Question(
                "POST", "/v1/recommend", s.RecommendRequest, s.RecommendAnswer, "A list for a user, with all options",
                self.recommend,
            ),
            Question("POST", "/v1/recommend/batch", s.BatchRequest, s.BatchAnswer, "Lists for many users", self.batch),
            Question("GET", "/v1/similar", s.SimilarRequest, s.SimilarAnswer, "Items similar to one", self.similar),
            Question(
                "POST", "/v1/similar", s.SimilarRequest, s.SimilarAnswer, "Items similar to one, with all options",
                self.similar,
            ),
            Question(
                "GET", "/v1/hidden-likes", s.HiddenRequest, s.HiddenAnswer, "Likes that were never recorded",
                self.hidden,
            ),
            Question(
                "GET", "/v1/explain", s.ExplainQuery, s.ExplainAnswer, "Why an item has its score", self.explain_simple
            ),
            Question(
                "POST", "/v1/explain", s.ExplainRequest, s.ExplainAnswer, "Why items have their scores", self.explain
            ),
            Question("GET", "/v1/history", s.HistoryQuery, s.HistoryAnswer, "What is known of a user", self.history),
            Question("GET", "/v1/users", s.SearchQuery, s.FoundUsers, "Users by the start of their id", self.users),
            Question("GET", "/v1/items", s.SearchQuery, s.FoundItems, "Items by id or title", self.items),
            Question(
                "GET", "/v1/models", s.NoQuery, s.ModelsAnswer, "The models: settings, metrics, data", self.models
            ),
            Question(
                "POST", "/v1/events", s.EventsRequest, s.EventsAnswer,
                "Clicks and purchases. They are on disk when this answers, and count at the user's next list",
                self.events, status=201, more_errors=(409,),
            ),
        ]  # fmt: skip
