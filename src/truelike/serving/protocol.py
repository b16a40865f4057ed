"""The HTTP protocol of uvicorn, with a limit of the time in which a request's headers arrive.

uvicorn waits for them forever, so that slow clients would keep their connections.
"""

from __future__ import annotations

import asyncio
from typing import Any

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as _Base
except ImportError:  # no httptools, e.g. on Windows
    _Base = None  # type: ignore[assignment, misc]


def protocol_class(timeout: float) -> Any:
    """The class of a connection, which is closed if the headers of a request take longer than `timeout` seconds."""
    return "h11" if _Base is None else type("Connection", (_Timed,), {"header_timeout": timeout})


class _Timed(_Base or object):  # type: ignore[misc]
    """A connection whose headers must arrive in time."""

    header_timeout = 10.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._expect()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._arrived()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._deadline = self.loop.call_later(self.header_timeout, self._expired)

    def _arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expired(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()
