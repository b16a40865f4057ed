"""Writes events on a thread of its own. Requests that come while the disk is busy are written together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

from truelike.serving.events import EventLog

MOST_ROWS = 50_000  # in one file


class EventWriter:
    """Appends events to a log.

    Parameters
    ----------
    log
        The log.
    """

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self._queue: SimpleQueue[tuple[Sequence[Any], asyncio.AbstractEventLoop, asyncio.Future[None]]] = (
            SimpleQueue()
        )
        threading.Thread(target=self._work, daemon=True, name="events").start()

    async def append(self, rows: Sequence[Any]) -> None:
        """Append rows; returns when they are on disk."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._queue.put((rows, loop, done))
        await done

    def _work(self) -> None:
        while True:
            waiting = [self._queue.get()]
            n = len(waiting[0][0])
            while n < MOST_ROWS:
                try:
                    waiting.append(self._queue.get_nowait())
                except Empty:
                    break
                n += len(waiting[-1][0])
            error: BaseException | None = None
            try:
                self.log.append([row for rows, _, _ in waiting for row in rows])
            except BaseException as raised:  # also a PanicException of polars; the thread must not end
                error = raised if isinstance(raised, Exception) else RuntimeError(str(raised))
            for _, loop, done in waiting:
                loop.call_soon_threadsafe(_finish, done, error)


def _finish(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.done():  # the request is gone
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
