"""How requests are read off the wire: uvicorn's protocol, with limits and with problem documents.

What is not HTTP, has a head without end or never comes does not reach the application, so it is refused here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.correlation import new_id
from app.problems import MEDIA_TYPE, ProblemError

HEAD_BYTES = 65_536
"""Of the URL and the header fields of a request, together."""
UNREAD_BYTES = 512 * 1024
"""That may come for a head before it is whole: also the end of the request before it, which came with it."""
HEAD_S = 60.0
"""Within which a head must be whole."""
PAUSE_S = 60.0
"""The longest pause in a body that is being sent."""
_REASONS = {
    400: ("Bad Request", "This is no HTTP request that can be read."),
    408: ("Request Timeout", "The request stopped half-way, or took too long to begin."),
    431: (
        "Request Header Fields Too Large",
        f"The URL and the headers are longer than the {HEAD_BYTES:,} bytes that this server reads.",
    ),
}


class HttpProtocol(HttpToolsProtocol):
    """For uvicorn's `http`; one per connection."""

    _head_bytes = 0
    _received = 0
    _in_head = False
    _status = 400
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the loop; the time for the first head begins."""
        super().connection_made(transport)
        self._restart_timer(HEAD_S, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Called by the parser, like all that follow, with what it found."""
        super().on_message_begin()
        self._head_bytes, self._received, self._in_head = 0, 0, True
        if self._timer is None:
            self._restart_timer(HEAD_S, self._late)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """The parser keeps a field until it is whole, so an endless one is noticed by what came for it."""
        super().data_received(data)
        if self._body_is_coming:
            self._restart_timer(PAUSE_S, self._body_paused)
        elif self._is_working:
            self._stop_timer()
        elif self._timer is None:  # bytes that begin no request
            self._restart_timer(HEAD_S, self._late)
        if self._in_head and not self.transport.is_closing():
            self._received += len(data)
            if self._received > UNREAD_BYTES:
                self._refuse(431)

    def send_400_response(self, msg: str) -> None:
        """Instead of uvicorn's plain text."""
        self._refuse(self._status)

    def _refuse(self, status: int) -> None:
        self._stop_timer()
        reason, detail = _REASONS[status]
        request_id = new_id()
        problem = ProblemError("invalid-request", detail, status=status)
        content = msgspec.json.encode(problem.document(request_id))
        head = (
            f"HTTP/1.1 {status} {reason}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(content)}\r\n"
            f"x-request-id: {request_id}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.close()

    def _count(self, size: int) -> None:
        """Raises ValueError, which ends the parsing."""
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES:
            self._status = 431
            raise ValueError("the head is too long")

    @property
    def _is_working(self) -> bool:
        return not self._in_head and self.cycle is not None and not self.cycle.response_complete

    @property
    def _body_is_coming(self) -> bool:
        return self._is_working and self.cycle.more_body

    def _body_paused(self) -> None:
        if not self._body_is_coming:
            return
        if self.flow.read_paused:  # the pause is ours
            self._restart_timer(PAUSE_S, self._body_paused)
        elif self.cycle.response_started:
            self.transport.close()
        else:
            self._late()

    def _late(self) -> None:
        if self.cycle is None or self._in_head or self._is_working:
            self._refuse(408)
        else:  # there was an answer already
            self.transport.close()

    def _restart_timer(self, after_s: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(after_s, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
