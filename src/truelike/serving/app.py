"""The application: the questions, the routes for who runs the server, and the page, behind the gate.

It is Starlette, without FastAPI on top: FastAPI's parsing of a request takes as long as all the rest.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from truelike.parallel import cores
from truelike.serving.gate import Gate, Receive, RefusedError, Scope, Send, error_body
from truelike.serving.metrics import CONTENT_TYPE, Metrics
from truelike.serving.openapi import document_route
from truelike.serving.questions import DUMPS, Question, Questions, refusal
from truelike.serving.service import Service
from truelike.serving.settings import Settings

PAGE = files("truelike.serving") / "page"


def make_app(
    service: Service,
    settings: Settings,
    *,
    key: str | None = None,
    metrics: Metrics | None = None,
    status: Callable[[], dict[str, Any]] | None = None,
    reload: Callable[[], Awaitable[dict[str, Any]]] | None = None,
) -> Gate:
    """The application.

    Parameters
    ----------
    service
        What answers.
    settings
        The settings of the server.
    key
        The API key; None: none is needed.
    metrics
        Where requests are counted.
    status
        What `/readyz` shows beside the models.
    reload
        Reloads the models and returns their versions and problems.
    """
    counted = metrics or Metrics()
    threads = ThreadPoolExecutor(max(2, cores()), thread_name_prefix="list")
    questions = Questions(service, settings, counted, threads).all()
    routes = [
        *(question.route() for question in questions),
        *_operations(service, counted, threads, status or dict, reload or _no_reload),
        document_route(questions, needs_key=key is not None),
    ]
    if settings.page:
        routes += _page()
    app = Starlette(routes=routes, exception_handlers={RefusedError: _refusal, HTTPException: _http_error})
    app.router.redirect_slashes = False
    counted.models(list(service.models.values()))
    return Gate(_Shortcut(app, questions), settings, key, counted)


class _Shortcut:
    """Passes questions on by method and path; Starlette, which has the same routes, takes longer to find them."""

    def __init__(self, app: Starlette, questions: list[Question]) -> None:
        self._app = app
        self._questions = {(question.method, question.path): question for question in questions}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        question = self._questions.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        await (self._app if question is None else question.respond)(scope, receive, send)


async def _no_reload() -> dict[str, Any]:
    raise RefusedError(501, "no_supervisor", "this server cannot reload models")


# --- operations and the page ----------------------------------------------------------------------


def _operations(
    service: Service,
    counted: Metrics,
    threads: ThreadPoolExecutor,
    status: Callable[[], dict[str, Any]],
    load: Callable[[], Awaitable[dict[str, Any]]],
) -> list[Route]:
    """The routes for who runs the server."""

    def json(request: Request, content: Any, code: int = 200) -> Response:
        request.scope["truelike"]["route"] = request.url.path
        return Response(orjson.dumps(content, option=DUMPS), code, media_type="application/json")

    async def healthz(request: Request) -> Response:
        return json(request, {"status": "alive"})

    async def readyz(request: Request) -> Response:
        served = {name: model.version for name, model in service.models.items()}
        more = status()
        problems = {**service.problems, **more.pop("problems", {})}
        state = {"ready": bool(served), "models": served, "problems": problems, "worker": os.getpid(), **more}
        return json(request, state, 200 if state["ready"] else 503)

    async def metrics(request: Request) -> Response:
        request.scope["truelike"]["route"] = "/metrics"
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(threads, counted.text)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def reload(request: Request) -> Response:
        found = await load()
        content = {"request_id": request.scope["truelike"]["request_id"], **found}
        return json(request, content, 409 if found["problems"] else 200)

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/v1/admin/reload", reload, methods=["POST"]),
    ]


def _page() -> list[Route]:
    """The page, and the page of the API. All parts come from this server."""

    def file(name: str) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            request.scope["truelike"]["route"] = "page"
            return FileResponse(str(PAGE / name), headers={"cache-control": "no-cache"})

        return endpoint

    parts = sorted(part.name for part in PAGE.iterdir() if part.name.endswith((".css", ".js", ".svg")))
    return [
        Route("/", file("index.html")),
        Route("/docs", file("docs.html")),
        *(Route(f"/static/{name}", file(name)) for name in parts),
    ]


async def _refusal(request: Request, error: Exception) -> Response:
    return refusal(request, error)


async def _http_error(request: Request, error: Exception) -> Response:
    """No route, or another method."""
    assert isinstance(error, HTTPException)
    about = request.scope["truelike"]
    code = {404: "no_route", 405: "wrong_method"}.get(error.status_code, "http")
    text = {
        404: f"there is nothing at {request.url.path[:200]!r}; /docs has all routes",
        405: f"{request.method} is not possible here; see the header `allow`",
    }.get(error.status_code, str(error.detail))
    body = error_body(about["request_id"], code, text)
    return Response(body, error.status_code, error.headers, media_type="application/json")
