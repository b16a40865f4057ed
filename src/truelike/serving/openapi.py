"""The OpenAPI document, made of the questions and the classes of their requests and answers."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from truelike._version import __version__
from truelike.serving import schemas
from truelike.serving.questions import Question

ERRORS: dict[int, str] = {
    400: "The body is not JSON.",
    401: "The API key is missing or wrong.",
    403: "The server was started without an API key, which this needs.",
    404: "A user, an item or a model is not known. The message names it.",
    408: "The body arrived too slowly.",
    413: "The body or a list is too long.",
    414: "The URL is too long.",
    415: "The body is not application/json.",
    421: "The server is called by another name than its own.",
    422: "A value is outside its range, or a filter cannot be read.",
    500: "The server failed.",
    501: "There is no supervisor.",
    503: "Too many requests are being handled.",
    504: "The answer took too long.",
}
OF_BODY = (400, 408, 413, 415)
OF_OPERATIONS = (403, 501)


def document_route(questions: list[Question], *, needs_key: bool) -> Route:
    """The route of the document."""
    content = document(questions, needs_key=needs_key)

    async def openapi(request: Request) -> Response:
        request.scope["truelike"]["route"] = "/openapi.json"
        return Response(content, media_type="application/json")

    return Route("/openapi.json", openapi)


def document(questions: list[Question], *, needs_key: bool) -> bytes:
    """The OpenAPI document."""
    reference = "#/components/schemas/{model}"
    modes: list[Any] = [(schemas.ErrorAnswer, "serialization"), (schemas.ReloadAnswer, "serialization")]
    for question in questions:
        modes.append((question.answered, "serialization"))
        modes.append((question.asked, "validation"))
    names, found = models_json_schema(modes, ref_template=reference)
    components = found["$defs"]
    paths: dict[str, Any] = {}
    for question in questions:
        operation: dict[str, Any] = {
            "summary": question.summary,
            "description": (question.answered.__doc__ or "").strip(),
            "operationId": f"{question.method.lower()}{question.path.replace('/', '_').replace('-', '_')}",
            "responses": {
                str(question.status): _response("The answer.", names[question.answered, "serialization"]),
                **_errors(question, names),
            },
        }
        if question.method == "GET":
            schema = components[names[question.asked, "validation"]["$ref"].rpartition("/")[2]]
            operation["parameters"] = _parameters(schema, question.required)
        else:
            content = {"application/json": {"schema": names[question.asked, "validation"]}}
            operation["requestBody"] = {"required": True, "content": content}
        paths.setdefault(question.path, {})[question.method.lower()] = operation
    _add_operations_to_document(paths, names)
    whole: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "truelike",
            "version": __version__,
            "description": "Recommendations from implicit feedback. Ids are texts in answers.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if needs_key:
        whole["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        whole["security"] = [{"key": []}]
    return orjson.dumps(whole)


def _response(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _errors(question: Question, names: Any) -> dict[str, Any]:
    schema = names[schemas.ErrorAnswer, "serialization"]
    found = {
        str(status): _response(text, schema)
        for status, text in ERRORS.items()
        if status not in OF_OPERATIONS and (question.method != "GET" or status not in OF_BODY)
    }
    for status in question.more_errors:
        found[str(status)] = _response("The server was started without this.", schema)
    return found


def _parameters(schema: dict[str, Any], more: tuple[str, ...]) -> list[dict[str, Any]]:
    """The properties of a class as parameters of a query, without lists, which a query cannot have."""
    required = {*schema.get("required", []), *more}
    found = []
    for name, about in schema.get("properties", {}).items():
        kinds = [kind for kind in about.get("anyOf", []) if kind.get("type") != "null"]
        own = kinds[0] if kinds else {key: value for key, value in about.items() if key != "title"}
        if own.get("type") == "array":
            continue
        parameter = {"name": name, "in": "query", "required": name in required, "schema": own}
        if "description" in own:
            parameter["description"] = own["description"]
        found.append(parameter)
    return found


def _add_operations_to_document(paths: dict[str, Any], names: Any) -> None:
    """The routes that are not questions."""
    plain = {"type": "object"}
    error, reloaded = names[schemas.ErrorAnswer, "serialization"], names[schemas.ReloadAnswer, "serialization"]

    def add(method: str, path: str, summary: str, responses: dict[int, Any], errors: tuple[int, ...] = ()) -> None:
        refused = {status: _response(ERRORS[status], error) for status in (*errors, 421)}
        own = {str(status): about for status, about in {**responses, **refused}.items()}
        operation = {"summary": summary, "operationId": path.rpartition("/")[2], "responses": own}
        paths[path] = {method: operation}

    add("get", "/healthz", "Whether the process is alive", {200: _response("It is.", plain)})
    add(
        "get",
        "/readyz",
        "Whether models are served, and which were refused",
        {200: _response("Ready.", plain), 503: _response("No model.", plain)},
    )
    text = {"description": "The numbers.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    add("get", "/metrics", "Numbers for Prometheus", {200: text}, (401,))
    add(
        "post", "/v1/admin/reload", "Reload the models. It answers when all workers have switched",
        {200: _response("All were loaded.", reloaded), 409: _response("Some were refused.", reloaded)},
        (401, 403, 413, 501, 503, 504),
    )  # fmt: skip
