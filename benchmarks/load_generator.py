"""A client that asks a server on this machine as fast as it answers, or at a fixed rate; used by serve.py.

It runs in a process of its own, reads its orders from stdin and writes its figures to stdout, both as JSON. A closed
loop asks the next question when the last one is answered: it finds the peak. An open loop sends by a schedule, whatever
the server does, and measures from the time at which a request was to be sent: a slow answer cannot hide those behind
it.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import deque
from typing import Any

import numpy as np


class Connection(asyncio.Protocol):
    """A connection with one question at a time."""

    def __init__(self, load: Load) -> None:
        self.load, self._buffer, self._missing = load, b"", 0
        self.intended = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.load.lost()

    def ask(self, request: bytes, intended: float) -> None:
        self.intended = intended
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        else:
            self._buffer += data
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            at = self._buffer.find(b"content-length: ") + 16
            length = int(self._buffer[at : self._buffer.find(b"\r\n", at)])
            if self._buffer[9:10] != b"2":
                self.load.errors[self._buffer[9:12].decode()] = (
                    self.load.errors.get(self._buffer[9:12].decode(), 0) + 1
                )
            self._missing = end + 4 + length - len(self._buffer)
            self._buffer = b""
        if not self._missing:
            self.load.answered(self)


class Load:
    """Questions to a server.

    Parameters
    ----------
    orders
        port, connections, seconds, rate (None: a closed loop), requests (texts of HTTP), seed.
    """

    def __init__(self, orders: dict[str, Any]) -> None:
        self.orders, self.rate = orders, orders["rate"]
        self.requests = [request.encode() for request in orders["requests"]]
        self._draw = random.Random(orders["seed"])
        self.latencies: list[float] = []
        self.errors: dict[str, int] = {}
        self._idle: deque[Connection] = deque()
        self._waiting: deque[float] = deque()
        self._sent, self._stopped = 0, False

    async def run(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        made = [
            (await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.orders["port"]))[1]
            for _ in range(self.orders["connections"])
        ]
        self._idle.extend(made)
        self.started = time.perf_counter()
        self.until = self.started + self.orders["seconds"]
        if self.rate is None:
            while self._idle:
                self._send(self._idle.popleft(), time.perf_counter())
            await asyncio.sleep(self.orders["seconds"])
        else:
            await self._send_by_schedule()
            patience = time.perf_counter() + 10
            while (self._waiting or len(self._idle) < len(made)) and time.perf_counter() < patience:
                await asyncio.sleep(0.01)
        self._stopped = True
        seconds = time.perf_counter() - self.started
        for connection in made:
            connection.transport.abort()
        return self._figures(seconds)

    async def _send_by_schedule(self) -> None:
        total, n = int(self.rate * self.orders["seconds"]), 0
        while n < total:
            now = time.perf_counter()
            while n < total and self.started + n / self.rate <= now:
                self._waiting.append(self.started + n / self.rate)
                n += 1
            while self._waiting and self._idle:
                self._send(self._idle.popleft(), self._waiting.popleft())
            await asyncio.sleep(max(0.0, self.started + n / self.rate - time.perf_counter()))

    def _send(self, connection: Connection, intended: float) -> None:
        self._sent += 1
        connection.ask(self._draw.choice(self.requests), intended)

    def answered(self, connection: Connection) -> None:
        now = time.perf_counter()
        if self._stopped:
            return
        self.latencies.append(now - connection.intended)
        if self.rate is None:
            if now < self.until:
                self._send(connection, now)
        elif self._waiting:
            self._send(connection, self._waiting.popleft())
        else:
            self._idle.append(connection)

    def lost(self) -> None:
        if not self._stopped:
            self.errors["lost"] = self.errors.get("lost", 0) + 1

    def _figures(self, seconds: float) -> dict[str, Any]:
        found = np.array(self.latencies or [np.nan]) * 1_000
        return {
            "requests": len(self.latencies),
            "a_second": len(self.latencies) / seconds,
            "errors": self.errors,
            "unanswered": self._sent - len(self.latencies) + len(self._waiting) if self.rate else 0,
            **{f"p{q}": float(np.percentile(found, q)) for q in (50, 90, 99)},
            "p999": float(np.percentile(found, 99.9)),
            "most": float(found.max()),
        }


def main() -> None:
    load = Load(json.load(sys.stdin))
    try:
        import uvloop
    except ImportError:
        found = asyncio.run(load.run())
    else:
        found = uvloop.run(load.run())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
