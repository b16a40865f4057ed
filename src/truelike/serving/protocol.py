"""The HTTP protocol of uvicorn, with limits of the time in which headers arrive and answers are read, and of numbers.

uvicorn waits for both forever and keeps all headers, so that slow clients would keep their connections and their
answers, and others could fill the memory. What is not HTTP is answered as all errors are: in JSON.
"""

from __future__ import annotations

import asyncio
import secrets

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from truelike.serving.gate import error_body

LONGEST_HEADERS = 65_536  # bytes that are waited for: what one read brings may be more
SLOWEST = 10_000  # bytes of an answer that a client must read in a second


def protocol_class(timeout: float, most: int) -> type[asyncio.Protocol]:
    """The class of a connection, which is closed if the headers of a request take longer than `timeout` seconds.

    So it is if the client reads next to nothing of an answer in that time. If there are more than `most` connections,
    the one without a request for longest is closed.
    """
    return type("Connection", (_Timed,), {"timeout": timeout, "most": most})


class _Timed(HttpToolsProtocol):
    """A connection whose headers must arrive in time."""

    timeout, most = 10.0, 1_000
    _deadline: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _in_headers, _header_bytes = False, 0
    since, _unread = 0.0, 0  # when the last request began

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        self._expect()
        if len(self.connections) > self.most:
            idle = [each for each in self.connections if isinstance(each, _Timed) and each.is_idle()]
            min(idle, key=lambda each: each.since).transport.abort()

    def is_idle(self) -> bool:
        """Whether there is no request to be answered."""
        return self.cycle is None or self.cycle.response_complete

    # --- answers that are not read --------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(self.timeout, self._look_at_reader)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _look_at_reader(self) -> None:
        """Give up a client that does not read its answer."""
        unread = self.transport.get_write_buffer_size()
        if self._unread - unread < SLOWEST * self.timeout:
            self.transport.abort()
            return
        self._unread = unread
        self._reading = self.loop.call_later(self.timeout, self._look_at_reader)

    # --- headers --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._deadline is None and (self._in_headers or self.cycle is None or self.cycle.response_complete):
            self._expect()
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > LONGEST_HEADERS:
                text = f"the headers have more than {LONGEST_HEADERS:,} bytes"
                self._refuse(431, "headers_too_large", text)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "not_http", "this is not a request of HTTP/1.1")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer and close, before there is a request that the application could answer."""
        self._in_headers = False
        if self.transport.is_closing():
            return
        body = error_body(secrets.token_hex(8), code, message)
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: the request is answered as if no upgrade had been asked for."""

    def on_message_begin(self) -> None:
        self._in_headers, self._header_bytes, self.since = True, 0, self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._arrived()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._deadline = self.loop.call_later(self.timeout, self._expired)

    def _arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expired(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()
