"""The OpenAPI document, made of the questions and the classes of their requests and answers."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic.json_schema import models_json_schema

from truelike._version import __version__
from truelike.serving import schemas
from truelike.serving.questions import Question
from truelike.serving.schemas import Answer

ERRORS: dict[int, str] = {
    400: "A header that decides was sent twice.",
    401: "The API key is missing or wrong.",
    414: "The URL is too long.",
    421: "The server is called by another name than its own.",
    500: "The server failed.",
    503: "Too many requests are being handled, or events cannot be written now.",
    504: "The answer took too long.",
}
OF_REQUESTS = {
    404: "A user, an item or a model is not known. The message names it.",
    422: "A value is outside its range, or a filter cannot be read.",
}
OF_BODIES = {
    400: "The body is not JSON, or a header that decides was sent twice.",
    408: "The body arrived too slowly.",
    413: "The body or a list is too long.",
    415: "The body is not application/json.",
}
OF_ADMIN = {403: "The server was started without an API key, which this needs."}


def document(questions: list[Question], *, needs_key: bool) -> bytes:
    """The OpenAPI document."""
    classes: list[Any] = [(schemas.ErrorAnswer, "serialization")]
    for question in questions:
        classes += [(question.answered, "serialization")] if question.answered else []
        classes += [(question.asked, "validation")] if question.asked else []
    names, found = models_json_schema(classes, ref_template="#/components/schemas/{model}")
    components = found["$defs"]
    paths: Answer = {}
    for question in questions:
        operation: Answer = {
            "summary": question.summary,
            "operationId": f"{question.method.lower()}{question.path.replace('/', '_').replace('-', '_')}",
            "responses": _responses(question, names),
        }
        if question.answered is not None:
            operation["description"] = (question.answered.__doc__ or "").strip()
        if question.asked is not None and question.method == "GET":
            schema = components[names[question.asked, "validation"]["$ref"].rpartition("/")[2]]
            operation["parameters"] = _parameters(schema, question.required)
        elif question.asked is not None:
            content = {"application/json": {"schema": names[question.asked, "validation"]}}
            operation["requestBody"] = {"required": True, "content": content}
        paths.setdefault(question.path, {})[question.method.lower()] = operation
    whole: Answer = {
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


def _responses(question: Question, names: Any) -> Answer:
    """The answers and the errors of a question, by their status."""
    errors = {**ERRORS, **question.more_errors}
    if question.asked is not None:
        errors |= OF_REQUESTS
    if question.method == "POST":
        errors |= OF_BODIES
    if question.access == "admin":
        errors |= OF_ADMIN
    found = {
        status: _response(text, names[schemas.ErrorAnswer, "serialization"]) for status, text in errors.items()
    }
    schema = {"type": "object"} if question.answered is None else names[question.answered, "serialization"]
    for status, text in {question.status: "The answer.", **question.more_statuses}.items():
        found[status] = _response(text, schema)
    if question.path == "/metrics":
        text_only = {"text/plain": {"schema": {"type": "string"}}}
        found[question.status] = {"description": "The numbers.", "content": text_only}
    return {str(status): response for status, response in sorted(found.items())}


def _response(description: str, schema: Answer) -> Answer:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _parameters(schema: Answer, more: tuple[str, ...]) -> list[Answer]:
    """The properties of a class as parameters of a query, without lists and objects, which a query cannot have."""
    required = {*schema.get("required", []), *more}
    found = []
    for name, about in schema.get("properties", {}).items():
        kinds = [kind for kind in about.get("anyOf", []) if kind.get("type") != "null"]
        own = kinds[0] if kinds else {key: value for key, value in about.items() if key != "title"}
        if own.get("type") in ("array", "object"):
            continue
        parameter = {"name": name, "in": "query", "required": name in required, "schema": own}
        if "description" in own:
            parameter["description"] = own["description"]
        found.append(parameter)
    return found
