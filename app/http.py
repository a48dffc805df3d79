"""How requests are read off the wire: uvicorn's protocol, with limits and with problem documents.

Rejects malformed requests, oversized heads, slow clients and whatever exceeds the limits of `Connections`
before the application sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
import structlog
from litestar.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.connections import Connections
from app.correlation import Correlation, new_id
from app.problems import ProblemError
from app.refusals import last_answer, refusing
from app.sending import Sending
from app.upgrades import head_without_upgrade

HEAD_BYTES = 65_536
"""Of the URL and the header fields of a request, together."""
UNREAD_BYTES = 512 * 1024
"""That may come for a head before it is whole: also the end of the request before it, which came with it."""
HEAD_S = 60.0
"""Within which a head must be whole."""
PAUSE_S = 60.0
"""The longest pause in a body that is being sent."""
LINGER_S = 2.0
"""How long a refused client may go on sending: closing at once would reset the connection, and with it the
answer."""
_PROBE = b"/livez"
"""Answered above the connection limit too, so that a supervisor does not take this process for hung."""
_NO_HTTP = ProblemError("invalid-request", "This is no HTTP request that can be read.", status=400)
_TARGET = ProblemError(
    "invalid-request", "The target of a request must be a path that begins with a slash.", status=400
)
_HOSTS = ProblemError("invalid-request", "A request must have one Host header.", status=400)
_LATE = ProblemError(
    "invalid-request", "The request stopped half-way, or took too long to begin.", status=408
)
_HEAD = ProblemError(
    "invalid-request",
    f"The URL and the headers are longer than the {HEAD_BYTES:,} bytes that this server reads.",
    status=431,
)


log = structlog.get_logger("pointbox.http")


class HttpProtocol(HttpToolsProtocol):
    """For uvicorn's `http`, through `protocol`; one per connection."""

    _head_bytes = 0
    _received = 0
    _in_head = False
    _problem = _NO_HTTP
    """What is wrong when the parser fails."""
    _refused = False
    _held = 0
    """Bytes of bodies of this connection that `Connections` counts."""
    _body_until = 0.0
    """By the loop's clock: when the body of the current request must be complete."""
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def __init__(self, all_connections: Connections, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._all = all_connections
        self._routes = self.app

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the loop; the time for the first head begins."""
        super().connection_made(transport)
        self._restart_timer(HEAD_S, self._late)
        self._all.opened(self, self._abort)
        if self._all.beyond_spare:
            self._refuse(self._all.no_connection())

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._stop_timer()
        self._stop_write_timer()
        self._release()
        self._all.lost(self)
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
        """Raises ValueError, which ends the parsing, for a head that is refused."""
        if not self.url.startswith(b"/"):
            self._fail(_TARGET)
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            self._fail(_HOSTS)
        if self.parser.should_upgrade():  # `_parse` starts again without that
            return
        self._in_head = False
        self._stop_timer()
        self._all.began(self)
        self._body_until = self.loop.time() + self._all.body_timeout_s
        self.app = self._application()  # type: ignore[assignment]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Raises ValueError, which ends the parsing, where the body does not fit."""
        if not self.parser.should_upgrade() and not self.cycle.response_complete:
            if not self._all.fits(self, len(body)):
                self._fail(self._all.no_memory())
            self._held += len(body)
            self._all.body_comes(self, len(body), self._give_up)
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._all.body_whole(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Called by a cycle: the last byte of an answer is with the transport."""
        super().on_response_complete()
        if self.cycle.response_complete:  # else there are pipelined requests
            self._release()
            self._all.rested(self, self._abort)
        if self.transport.get_write_buffer_size():
            self._restart_write_timer()

    def data_received(self, data: bytes) -> None:
        """The parser keeps a field until it is whole, so an endless one is noticed by what came for it."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._parse(data)
        if self._refused or self.transport.is_closing():
            return
        if self._body_is_coming:
            left_s = self._body_until - self.loop.time()
            self._restart_timer(min(PAUSE_S, max(left_s, 0)), self._body_paused)
        elif self._is_working:
            self._stop_timer()
        elif self._timer is None:  # bytes that begin no request
            self._restart_timer(HEAD_S, self._late)
        if self._in_head:
            self._received += len(data)
            if self._received > UNREAD_BYTES:
                self._refuse(_HEAD)

    def pause_writing(self) -> None:
        """Called by the transport: the client does not read as fast as its answer is written."""
        super().pause_writing()
        self._restart_write_timer()

    def resume_writing(self) -> None:
        """Called by the transport."""
        self._stop_write_timer()
        super().resume_writing()

    def _parse(self, data: bytes) -> None:
        """Feeds the parser. It takes everything after a head that asks for an upgrade for another protocol.

        No upgrade is offered here, so such a head is parsed again without the fields that ask for it.
        """
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    return
                except httptools.HttpParserUpgrade as upgrade:
                    version = self.parser.get_http_version().encode()
                    first = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)
                    data = head_without_upgrade(first, self.headers) + data[upgrade.args[0] :]
                    self.parser = httptools.HttpRequestParser(self)
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        except httptools.HttpParserError:
            self._refuse(self._problem)

    def _application(self) -> ASGIApp:
        """What answers the request whose head is complete."""
        problem = None
        if self._all.over and self.url.partition(b"?")[0] != _PROBE:
            problem = self._all.no_connection()
        elif not self._all.fits_whole(self, self._length):
            problem = self._all.no_memory()
        routes: Any = self._routes if problem is None else Correlation(refusing(problem))
        return routes  # type: ignore[no-any-return]

    def _should_upgrade(self) -> bool:
        """Of a head for which the parser says so: then uvicorn leaves it to `_parse`."""
        return True

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        super()._start_asgi_task(cycle, Sending(app, cycle))

    def _refuse(self, problem: ProblemError) -> None:
        """Instead of uvicorn's plain text; nothing more is read."""
        self._refused = True
        self._release()
        if self.transport.is_closing():
            return
        if self._is_working:
            if self.cycle.response_started:
                self.transport.close()
                return
            self.cycle.disconnected = True  # for the application
            self.cycle.message_event.set()
        self.transport.write(last_answer(problem, new_id(), self.server_state.default_headers))
        self.transport.write_eof()
        self.flow.resume_reading()
        self._restart_timer(LINGER_S, self.transport.close)

    def _fail(self, problem: ProblemError) -> None:
        """Raises ValueError."""
        self._problem = problem
        raise ValueError(problem.detail)

    def _count(self, size: int) -> None:
        """Raises ValueError, which ends the parsing."""
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES:
            self._fail(_HEAD)

    @property
    def _length(self) -> int:
        """Of the body, as its sender says; 0 where it does not."""
        return next((int(value) for name, value in self.headers if name == b"content-length"), 0)

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
            self._body_until += PAUSE_S
            self._restart_timer(PAUSE_S, self._body_paused)
        else:
            self._refuse(_LATE)

    def _late(self) -> None:
        if self.cycle is None or self._in_head or self._is_working:
            self._refuse(_LATE)
        else:  # there was an answer already
            self.transport.close()

    def _give_up(self) -> None:
        self._refuse(self._all.no_memory())

    def _unread(self) -> None:
        if self.transport.get_write_buffer_size():
            log.info("a client does not read its answer and is disconnected", client=self.client)
            self._abort()

    def _abort(self) -> None:
        self.transport.abort()

    def _release(self) -> None:
        """The bodies of this connection are not needed any more."""
        self._all.body_gone(self, self._held)
        self._held = 0

    def _restart_timer(self, after_s: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(after_s, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _restart_write_timer(self) -> None:
        self._stop_write_timer()
        self._write_timer = self.loop.call_later(self._all.unread_timeout_s, self._unread)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def protocol(all_connections: Connections) -> Any:
    """For uvicorn's `http`: makes the protocol object of each connection."""
    return partial(HttpProtocol, all_connections)
