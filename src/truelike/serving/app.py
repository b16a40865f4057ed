"""The application: the questions and the page, routed by Starlette, behind the gate.

It is Starlette, without FastAPI on top: FastAPI's parsing of a request takes as long as all the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from starlette.responses import FileResponse, Response
from starlette.routing import Route, Router

from truelike.serving.gate import Gate, RefusedError
from truelike.serving.metrics import Metrics
from truelike.serving.openapi import document
from truelike.serving.questions import Question, Questions
from truelike.serving.schemas import Answer
from truelike.serving.service import Service
from truelike.serving.settings import Settings

PAGE = files("truelike.serving") / "page"


def make_app(
    service: Service,
    settings: Settings,
    *,
    key: str | None = None,
    metrics: Metrics | None = None,
    status: Callable[[], Answer] | None = None,
    reload: Callable[[], Awaitable[Answer]] | None = None,
) -> Gate:
    """The application; `key` is the API key, None: none is needed. The rest is as for `Questions`."""
    counted = metrics or Metrics()
    questions = Questions(service, settings, counted, status or dict, reload or _no_reload).all()
    content = document(questions, needs_key=key is not None)
    questions.append(_open("/openapi.json", lambda: Response(content, media_type="application/json")))
    if settings.page:
        questions += _page()
    routes = [Route(question.path, question, methods=[question.method]) for question in questions]
    counted.models(list(service.models.values()))
    access = {question.path: question.access for question in questions}
    urgent = {question.path for question in questions if question.urgent}
    return Gate(Router(routes, redirect_slashes=False), access, urgent, settings, key, counted)


async def _no_reload() -> Answer:
    raise RefusedError(501, "no_supervisor", "this server cannot reload models")


def _open(path: str, response: Callable[[], Response]) -> Question:
    """A route that is open to everyone, and not in the document."""

    async def answer(_: None) -> Response:
        return response()

    return Question("GET", path, "", answer, access="open")


def _page() -> list[Question]:
    """The page, and the page of the API. All parts come from this server."""

    def file(path: str, name: str) -> Question:
        return _open(path, lambda: FileResponse(str(PAGE / name), headers={"cache-control": "no-cache"}))

    parts = sorted(part.name for part in PAGE.iterdir() if part.name.endswith((".css", ".js", ".svg")))
    return [
        file("/", "index.html"),
        file("/docs", "docs.html"),
        *(file(f"/static/{name}", name) for name in parts),
    ]
