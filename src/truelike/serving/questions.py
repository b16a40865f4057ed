"""The questions that the service answers by HTTP: each route is declared once, in `Questions.all`.

A declaration has how a request is parsed, computed, answered and documented, and who may ask. Routing, the OpenAPI
document and the gate are made of it. Requests are parsed by the classes of `schemas`, from the query or the body. What
takes long is computed on a thread.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import parse_qsl

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from truelike.core.parallel import cores
from truelike.core.progress import logger
from truelike.errors import EventsUnavailableError, FilterError, ParameterError, StorageError, UnknownIdError
from truelike.rules.budget import check_time, limited
from truelike.serving import schemas
from truelike.serving.events import Event, EventWriter
from truelike.serving.gate import AGAIN, RefusedError, send_json
from truelike.serving.metrics import CONTENT_TYPE, Metrics
from truelike.serving.schemas import Answer
from truelike.serving.service import Service
from truelike.serving.settings import Settings

DUMPS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
MOST_PARAMETERS = 50  # of a query
DAY = 86_400.0  # seconds
TOO_MANY = "too_long"  # what pydantic calls a list that is too long
MISTAKES: tuple[tuple[type[Exception], int, str], ...] = (
    (UnknownIdError, 404, "unknown"), (FilterError, 422, "filter"), (ParameterError, 422, "invalid"),
)  # fmt: skip
Found = Answer | tuple[Answer, int] | Response  # an answer, one with another status, or what is no JSON


@dataclass(frozen=True)
class Question:
    """A route: what is asked, how it is answered, how both are documented, and who may ask."""

    method: str
    path: str
    summary: str  # empty: it is not in the document
    answer: Callable[[Any], Awaitable[Found]]  # to a parsed request
    asked: type[BaseModel] | None = None  # the parameters of a query, or the body; None: neither is read
    answered: type[BaseModel] | None = None  # None: any JSON, or text
    status: int = 200
    more_statuses: dict[int, str] = field(default_factory=dict)  # with the body of an answer, and what they mean
    more_errors: dict[int, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()  # parameters of a query that must be given, though a body may lack them
    access: Literal["key", "open", "admin"] = "key"  # who may ask; admin needs a key, also if the server has none
    urgent: bool = False  # answered at once, whatever the load
    public: tuple[str, ...] = ()  # of an open route: the parts that those without the key get; empty: all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. It is plain ASGI, which takes less time than Starlette's `Request` and `Response`."""
        about = scope["truelike"]
        about["route"] = self.path if self.summary else "page"
        try:
            found = await self.answer(await self._parsed(scope, receive))
        except Exception as error:
            raise refused(error) from error
        if isinstance(found, Response):
            await found(scope, receive, send)
            return
        answer, status = found if isinstance(found, tuple) else (found, self.status)
        if self.public and not about["trusted"]:
            answer = {name: answer[name] for name in self.public}
        about["model"] = answer.get("model", "")
        body = orjson.dumps({"request_id": about["request_id"], **answer}, option=DUMPS)
        await send_json(send, status, body)

    async def _parsed(self, scope: Scope, receive: Receive) -> BaseModel | None:
        """The request as an object of its class."""
        if self.asked is None:
            return None
        if self.method == "POST":
            request = Request(scope, receive)
            kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
            if kind != "application/json":
                raise RefusedError(415, "not_json", "the content-type of the body must be application/json")
            return self.asked.model_validate_json(await request.body() or b"{}")
        query = scope["query_string"].decode("latin-1")
        if query.count("&") >= MOST_PARAMETERS:
            raise RefusedError(422, "invalid", f"the query has more than {MOST_PARAMETERS} parameters")
        pairs = parse_qsl(query, keep_blank_values=True)
        given = dict(pairs)
        if len(given) < len(pairs):
            raise RefusedError(422, "invalid", "a parameter was given twice")
        return self.asked.model_validate(given)


def refused(error: Exception) -> RefusedError:
    """What a failed request is answered. An error that is not the asker's is logged."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, ValidationError):
        return _invalid(error)
    if isinstance(error, ClientDisconnect):
        return RefusedError(400, "gone", "the client went away")
    for kind, status, code in MISTAKES:
        if isinstance(error, kind):
            return RefusedError(status, code, str(error))
    logger.error("a request failed", exc_info=error)
    if isinstance(error, EventsUnavailableError):
        return RefusedError(503, "storage", str(error), AGAIN)
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


class Together:
    """Answers the requests that wait when the event loop comes round, all at once.

    The factors of a model are larger than the caches of a processor, so that reading them takes as long as the
    arithmetic. A list does not depend on those beside it.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: list[tuple[schemas.RecommendRequest, asyncio.Future[Answer]]] = []

    async def recommend(self, asked: schemas.RecommendRequest) -> Answer:
        """A list that takes little time."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._answer)  # after the requests that have arrived with this one
        done: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((asked, done))
        return await done

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        answers: list[Answer | Exception]
        try:
            answers = self._service.recommend_each([asked for asked, _ in waiting])
        except Exception as error:  # nobody waits forever
            answers = [error] * len(waiting)
        for (_, done), answer in zip(waiting, answers, strict=True):
            if done.done():  # the request is gone
                continue
            if isinstance(answer, Exception):
                done.set_exception(answer)
            else:
                done.set_result(answer)


class Questions:
    """All questions: about models, users and items, and for who runs the server.

    `status` is what `/readyz` shows beside the models. `reload` returns the versions and the problems of the models.
    """

    def __init__(
        self,
        service: Service,
        settings: Settings,
        metrics: Metrics,
        status: Callable[[], Answer],
        reload: Callable[[], Awaitable[Answer]],
    ) -> None:
        self.service, self.settings, self.metrics = service, settings, metrics
        self._status, self._reload = status, reload
        # what may take long has threads of its own, so that others need not wait for it
        self.threads = ThreadPoolExecutor(max(2, cores()), thread_name_prefix="list")
        self.heavy = ThreadPoolExecutor(max(2, cores()), thread_name_prefix="heavy")
        self.together = Together(service)
        self.writer = None if service.events is None else EventWriter(service.events)

    async def in_thread(self, work: Callable[[], Answer], *, heavy: bool = False) -> Answer:
        """Compute an answer on a thread, so that other requests are answered meanwhile."""
        until = time.monotonic() + self.settings.timeout

        def compute() -> Answer:
            with limited(until):
                check_time()
                return work()

        try:
            async with asyncio.timeout(self.settings.timeout):
                return await asyncio.get_running_loop().run_in_executor(
                    self.heavy if heavy else self.threads, compute
                )
        except TimeoutError:
            text = f"the answer took more than {self.settings.timeout:g} s. Ask for less at once."
            raise RefusedError(504, "took_too_long", text) from None

    def by(self, work: Callable[[Any], Answer], *, light: bool = False) -> Callable[[Any], Awaitable[Answer]]:
        """Answer by a method of the service, on a thread unless it is light."""

        async def answer(asked: Any) -> Answer:
            return work(asked) if light else await self.in_thread(lambda: work(asked), heavy=asked.heavy)

        return answer

    async def recommend(self, asked: schemas.RecommendRequest) -> Answer:
        """A list for a user."""
        if asked.items is None and self.service.is_light(asked, asked.user):
            answer = await self.together.recommend(asked)
        else:
            answer = await self.in_thread(lambda: self.service.recommend(asked), heavy=asked.heavy)
        self.metrics.lists(answer["model"], answer["source"])
        return answer

    async def batch(self, asked: schemas.BatchRequest) -> Answer:
        """Lists for many users."""
        answer = await self.in_thread(lambda: self.service.batch(asked), heavy=asked.heavy)
        for each in answer["lists"]:
            self.metrics.lists(each["model"], each["source"])
        return answer

    async def models(self, _: schemas.NoQuery) -> Answer:
        """What is known of each model."""
        return {"models": self.service.cards(), "keeps_events": self.writer is not None}

    async def events(self, asked: schemas.EventsRequest) -> Answer:
        """Keep events."""
        if self.writer is None:
            raise RefusedError(409, "no_events", "this server keeps no events: start it with --events DIRECTORY")
        now = time.time()
        rows = []
        for event in asked.events:
            served = self.service.arm(event.user, event.model)
            served.check_kind(event.type)
            seconds = event.time.timestamp() if isinstance(event.time, datetime) else event.time
            if seconds is not None and seconds > now + DAY:
                raise ParameterError(
                    f"an event has a time that is {(seconds - now) / DAY:,.1f} days ahead of the clock of the server; "
                    "at most one day is possible. Leave it out for the time of the request."
                )
            when = round(1e6 * (now if seconds is None else seconds))
            version = event.version or served.version
            rows.append(
                Event(
                    event.user, event.item, event.type, when, event.request_id, served.name, version,
                    event.quantity, event.id,
                )
            )  # fmt: skip
        try:
            async with asyncio.timeout(self.settings.timeout):
                new = await self.writer.append(rows)
        except TimeoutError:
            text = "the events were not on disk in time; they may be later"
            raise RefusedError(504, "took_too_long", text) from None
        for row in rows:
            self.metrics.event(row.model or "", row.type)
        return {
            "accepted": len(rows),
            "duplicates": len(rows) - new,
            "unknown_items": self.service.unknown_items([event.item for event in asked.events]),
        }

    async def healthz(self, _: None) -> Answer:
        """Whether the process answers."""
        return {"status": "alive"}

    async def readyz(self, _: None) -> Found:
        """Whether models are served."""
        served = {name: model.version for name, model in self.service.models.items()}
        more = self._status()
        written = {} if self.writer is None else self.writer.problems
        problems = {**written, **self.service.problems, **more.pop("problems", {})}
        state = {"ready": bool(served), "degraded": bool(problems), "models": served, "problems": problems, **more}
        state["worker"] = os.getpid()
        return state, 200 if served else 503

    async def numbers(self, _: None) -> Response:
        """What is measured of the server."""
        text = await asyncio.get_running_loop().run_in_executor(self.threads, self.metrics.text)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def reload(self, _: None) -> Found:
        """Reload the models."""
        found = await self._reload()
        return found, 409 if found["problems"] else 200

    def all(self) -> list[Question]:
        """All questions, the most frequent first."""
        s, service = schemas, self.service
        similar = self.by(service.similar)
        return [
            Question(
                "GET", "/v1/recommend", "A list for a user", self.recommend, s.RecommendRequest, s.RecommendAnswer,
                required=("user",),
            ),
            Question(
                "POST", "/v1/recommend", "A list for a user, with all options", self.recommend, s.RecommendRequest,
                s.RecommendAnswer,
            ),
            Question("POST", "/v1/recommend/batch", "Lists for many users", self.batch, s.BatchRequest, s.BatchAnswer),
            Question("GET", "/v1/similar", "Items similar to one", similar, s.SimilarRequest, s.SimilarAnswer),
            Question(
                "POST", "/v1/similar", "Items similar to one, with all options", similar, s.SimilarRequest,
                s.SimilarAnswer,
            ),
            Question(
                "GET", "/v1/hidden-likes", "Likes that were never recorded", self.by(service.hidden_likes),
                s.HiddenRequest, s.HiddenAnswer,
            ),
            Question(
                "GET", "/v1/explain", "Why an item has its score", self.by(service.explain_one), s.ExplainQuery,
                s.ExplainAnswer,
            ),
            Question(
                "POST", "/v1/explain", "Why items have their scores", self.by(service.explain), s.ExplainRequest,
                s.ExplainAnswer,
            ),
            Question(
                "GET", "/v1/history", "What is known of a user", self.by(service.history, light=True),
                s.HistoryQuery, s.HistoryAnswer,
            ),
            Question(
                "GET", "/v1/users", "Users by the start of their id", self.by(service.find_users),
                s.SearchQuery, s.FoundUsers,
            ),
            Question(
                "GET", "/v1/items", "Items by id or title", self.by(service.find_items), s.SearchQuery, s.FoundItems
            ),
            Question(
                "GET", "/v1/models", "The models: settings, metrics, data", self.models, s.NoQuery, s.ModelsAnswer
            ),
            Question(
                "POST", "/v1/events",
                "Clicks and purchases. They are on disk when this answers, and count at the user's next list",
                self.events, s.EventsRequest, s.EventsAnswer, status=201,
                more_errors={409: "The server was started without --events."},
            ),
            Question(
                "POST", "/v1/admin/reload", "Reload the models. It answers when all workers have switched",
                self.reload, None, s.ReloadAnswer, access="admin", more_statuses={409: "Some were refused."},
                more_errors={501: "There is no supervisor."},
            ),
            Question("GET", "/healthz", "Whether the process is alive", self.healthz, access="open", urgent=True),
            Question(
                "GET", "/readyz", "Whether models are served, and which were refused", self.readyz, access="open",
                urgent=True, public=("ready", "degraded", "models"), more_statuses={503: "No model."},
            ),
            Question("GET", "/metrics", "Numbers for Prometheus", self.numbers, urgent=True),
        ]  # fmt: skip
