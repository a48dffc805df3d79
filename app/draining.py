"""The end of an API process: new callers are told, open requests get time, and are told too."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import msgspec
import structlog
import uvicorn
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from app.problems import ProblemError
from app.refusals import refuse

POLL_S = 0.05
LAST_WORDS_S = 1.0
"""Open requests get so long to write the problem that ended them, and as long again once cancelled."""
DETAIL = "The service is shutting down; send the request again."
_ALIVE = "/livez"
_CLOSE = b"connection", b"close"

log = structlog.get_logger(__name__)


class Draining:
    """ASGI middleware inside `Correlation`; the server that ends sets what is below."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.begun = False
        """New requests are refused."""
        self.over = False
        """Open requests are cancelled."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
        elif self.begun and scope["path"] != _ALIVE:
            await refuse(scope, send, _problem(), [_CLOSE])
        else:
            await self._exchange(scope, receive, send)

    async def _exchange(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        started: Message | None = None
        ended = False

        async def send_seen(message: Message) -> None:
            nonlocal started, ended
            if message["type"] == "http.response.start":
                started = message
            elif message["type"] == "http.response.body" and not message.get("more_body", False):
                ended = True
            await send(message)

        try:
            await self._app(scope, receive, send_seen)
        except asyncio.CancelledError:
            if not self.over or ended:
                raise
            if started is None:
                await refuse(scope, send, _problem(), [_CLOSE])
            elif _is_event_stream(started):
                document = msgspec.json.encode(_problem().document(scope["state"]["request_id"]))
                event = b"event: error\ndata: %s\n\n" % document
                await send({"type": "http.response.body", "body": event, "more_body": False})
            else:  # half of another answer can only be cut off
                raise


class DrainingServer(uvicorn.Server):
    """Keeps its port while it drains, and is told twice to end at once.

    Args:
        drain_s: how long open requests may take.
        give_up: ends what they wait for.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        draining: Draining,
        drain_s: float,
        give_up: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(config)
        self._draining = draining
        self._drain_s = drain_s
        self._give_up = give_up

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called for a signal."""
        if self.should_exit:
            self.force_exit = True
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Instead of uvicorn's, which closes the port first."""
        self._draining.begun = True
        for connection in list(self.server_state.connections):
            connection.shutdown()  # closes idle ones; the others end with their answer
        if not await self._answered(self._drain_s) and not self.force_exit:
            log.warning("open requests are given up", requests=len(self.server_state.tasks))
            await self._give_up()
            await self._answered(LAST_WORDS_S)
        self._draining.over = True
        for server in self.servers:
            server.close()
        for task in list(self.server_state.tasks):
            task.cancel()
        await self._answered(LAST_WORDS_S, although_forced=True)
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if not self.force_exit:
            await self.lifespan.shutdown()

    async def _answered(self, within_s: float, although_forced: bool = False) -> bool:
        """Whether all open requests have been; new ones, which are refused, come and go."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while self.server_state.tasks and loop.time() < until and (although_forced or not self.force_exit):
            await asyncio.sleep(POLL_S)
        return not self.server_state.tasks


def ends_in_order() -> None:
    """After the drain uvicorn raises the signal again: the process shall exit with 0, not by the signal."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)


def _exit(*_: Any) -> None:
    raise SystemExit(0)


def _problem() -> ProblemError:
    return ProblemError("unavailable", DETAIL)


def _is_event_stream(start: Message) -> bool:
    headers = dict(start.get("headers", ()))  # type: ignore[call-overload]
    kind: bytes = headers.get(b"content-type", b"")
    return kind.startswith(b"text/event-stream")
