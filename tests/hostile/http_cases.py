"""Requests made of the OpenAPI document, valid and not: no answer is a server error, and each is as documented.

    python tests/hostile/http_cases.py --cases 2000

Schemathesis makes the requests. Half of the valid ones name users and items that exist. Checked are: no status 5xx, a
documented status, a documented content type, a body and headers that fit their schemas.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from servers import KEY, Server, make_models

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
NOT_ASKED = "/v1/admin/reload"  # loads models: a case would take seconds
FILTERS = ["price < 20", "category = tea", "category in (tea, rum) and not price >= 50", "price is null"]


def with_known_ids(draw: Any, case: Any, users: list[str], items: list[str]) -> None:
    """Put ids that exist, and filters that can be read, into a request."""
    some = st.lists(st.sampled_from(items), min_size=1, max_size=5)
    known: dict[str, Any] = {
        "user": st.sampled_from(users),
        "item": st.sampled_from(items),
        "model": st.just("first"),
        "filter": st.sampled_from(FILTERS),
        "users": st.lists(st.sampled_from(users), min_size=1, max_size=5),
        **dict.fromkeys(("items", "candidates", "exclude", "explain"), some),
    }
    known["boosts"] = st.lists(st.fixed_dictionaries({"filter": known["filter"], "add": st.floats(-10, 10)}))
    known["pins"] = st.lists(
        st.fixed_dictionaries({"item": known["item"], "position": st.integers(1, 30)}), max_size=1
    )
    known["events"] = st.lists(st.fixed_dictionaries({"user": known["user"], "item": known["item"]}), min_size=1)
    for part in (case.query, case.body):
        for name in part if isinstance(part, dict) else ():
            if name in known and part[name] is not None:
                part[name] = draw(known[name])


def run(server: Server, n_cases: int, seed: int = 0) -> dict[str, Counter[int]]:
    """Ask about `n_cases` requests, over all operations, and count the statuses of each operation."""
    headers = {} if server.key is None else {"x-api-key": server.key}
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    operations = [operation for operation in operations if operation.path != NOT_ASKED]
    users = server.ask("/v1/users?limit=20").json["users"]
    items = [found["item"] for found in server.ask("/v1/items?limit=50").json["items"]]
    shares = [1.0 if operation.path.startswith("/v1/") else 0.05 for operation in operations]
    counts: dict[str, Counter[int]] = {}
    for operation, share in zip(operations, shares, strict=True):
        name = f"{operation.method.upper()} {operation.path}"
        found = counts[name] = Counter()
        each = max(2, round(n_cases * share / sum(shares) / 2))
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            ask(operation, mode, each, seed, users, items, headers, found)
    return counts


def ask(
    operation: Any,
    mode: GenerationMode,
    n_cases: int,
    seed: int,
    users: list[str],
    items: list[str],
    headers: dict[str, str],
    found: Counter[int],
) -> None:
    """Ask requests of one operation."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=n_cases,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(st.data(), operation.as_strategy(generation_mode=mode))
    def one(data: Any, case: Any) -> None:
        if mode is GenerationMode.POSITIVE and data.draw(st.booleans()):
            with_known_ids(data.draw, case, users, items)
        response = case.call(headers=headers, timeout=60)
        found[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    try:
        one()
    except hypothesis.errors.Unsatisfiable:  # no request of this operation is invalid, e.g. without parameters
        return


def main() -> None:
    """Run as many cases as asked, with and without a key."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        models = make_models(place)
        options = ("--workers", "2", "--events", place / "events", "--items", place / "items.csv")
        total: Counter[int] = Counter()
        with Server(place, models["first"], models["second"], *options, key=KEY) as server:
            for name, counts in run(server, arguments.cases, arguments.seed).items():
                total.update(counts)
                said = ", ".join(f"{status}: {n}" for status, n in sorted(counts.items()))
                print(f"{name}: {counts.total()} cases; {said}", flush=True)
            assert "Traceback" not in server.log(), server.log()[-3000:]
        said = ", ".join(f"{status}: {n:,}" for status, n in sorted(total.items()))
        print(f"{total.total():,} cases, no violation; {said}", flush=True)


if __name__ == "__main__":
    main()
