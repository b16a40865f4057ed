"""The OpenAPI document is kept; `tests/hostile/http_cases.py` does the same thousands of times."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore")  # of the libraries that make the requests
def test_answers_are_as_documented(server: Any) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install 'truelike[schemas]'")
    import http_cases

    counts = http_cases.run(server, 300)
    assert sum(each.total() for each in counts.values()) > 250
    assert len(counts) > 14
    statuses = {status for each in counts.values() for status in each}
    assert {200, 201, 404, 422} <= statuses
    assert not statuses & set(range(500, 600))
    assert "Traceback" not in server.log()


def test_what_was_not_asked_for_is_refused_as_documented(server: Any) -> None:
    document = server.ask("/openapi.json").json
    for path, operations in document["paths"].items():
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
            if method.lower() in operations:
                continue
            answer = server.ask(path, {} if method != "GET" else None, method=method)
            assert answer.status == (403 if path.startswith("/v1/admin/") else 405), (method, path)
            assert answer.json["error"]["code"] in ("wrong_method", "no_key")
