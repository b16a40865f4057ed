"""Lists that are asked for at the same time, computed in one pass over the factors of all items.

The factors of a model are larger than the caches of a processor, so that reading them takes as long as the arithmetic.
A list does not depend on those beside it.
"""

from __future__ import annotations

import asyncio

from truelike.serving.schemas import Answer, RecommendRequest
from truelike.serving.service import Service


class Together:
    """Answers the requests that wait when the event loop comes round, all at once."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: list[tuple[RecommendRequest, asyncio.Future[Answer]]] = []

    async def recommend(self, asked: RecommendRequest) -> Answer:
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
