"""Writes events on a thread of its own. What comes while the disk is busy is written together, in one transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from truelike.serving.events import Event, EventStore

MOST_ROWS = 50_000  # in one transaction


class EventWriter:
    """Appends events to a store.

    Parameters
    ----------
    store
        The store.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._queue: SimpleQueue[tuple[Sequence[Event], asyncio.AbstractEventLoop, asyncio.Future[None]]] = (
            SimpleQueue()
        )
        threading.Thread(target=self._work, daemon=True, name="events").start()

    async def append(self, events: Sequence[Event]) -> None:
        """Append events; returns when they are on disk."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._queue.put((events, loop, done))
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
            error: Exception | None = None
            try:
                self._store.append([event for events, _, _ in waiting for event in events])
            except Exception as raised:  # the thread must not end
                error = raised
            for _, loop, done in waiting:
                loop.call_soon_threadsafe(_finish, done, error)


def _finish(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():  # the request is gone
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
