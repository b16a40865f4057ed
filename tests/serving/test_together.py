"""Requests that come at once are answered together, each by its own answer; none waits forever."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from truelike.serving.questions import Together
from truelike.serving.schemas import RecommendRequest
from truelike.serving.service import Service


def at_once(service: Any, *users: str) -> list[Any]:
    async def ask() -> list[Any]:
        together = Together(service)
        asked = [together.recommend(RecommendRequest(user=user, k=5)) for user in users]
        async with asyncio.timeout(30):
            return await asyncio.gather(*asked, return_exceptions=True)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(ask())).result()


def test_each_has_its_own_answer(service: Service) -> None:
    found = at_once(service, "u3", "nobody", "u5")
    assert found[0] == service.recommend(RecommendRequest(user="u3", k=5))
    assert found[2] == service.recommend(RecommendRequest(user="u5", k=5))
    assert "nobody" in str(found[1])


def test_a_failure_of_all_is_an_answer_to_each(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(service, "_places_together", fail)
    assert [str(error) for error in at_once(service, "u3", "u5")] == ["too large"] * 2
