"""Around every HTTP exchange: a request id in and out, and one log line."""

from __future__ import annotations

import asyncio
import os
import re
import time
from functools import partial
from typing import Any, cast

import structlog
from litestar import Request
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from app.logs import EXCHANGE

HEADER = b"x-request-id"
_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
PATH_CHARS = 200
"""Of a path that is logged: a caller chooses it."""
_PROBES = frozenset({"/livez", "/readyz"})

log = structlog.get_logger("pointbox.http")


def request_id_of(request: Request[Any, Any, Any]) -> str:
    """The id of this exchange: the caller's `X-Request-Id` where it is usable, else one made up here."""
    return cast(str, request.scope["state"]["request_id"])


def new_id() -> str:
    """An id that nobody can guess, for one request."""
    return os.urandom(16).hex()


def add_answer_header(request: Request[Any, Any, Any], name: str, value: str) -> None:
    """Send a header with whatever answers this request, a success or a problem (RateLimit-Remaining, ...)."""
    request.scope["state"]["answer_headers"].append((name.lower().encode(), value.encode()))


def _in_log(raw_path: bytes) -> str:
    """A path with its percent escapes as they were sent; bytes that no URL has are escaped as well."""
    cut = raw_path[:PATH_CHARS] + b"..." if len(raw_path) > PATH_CHARS else raw_path
    return "".join(chr(byte) if 0x20 < byte < 0x7F else f"%{byte:02X}" for byte in cut)


class Correlation:
    """ASGI middleware. It stands outside Litestar, whose own middleware does not see a 404 or a 405."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            await self._exchange(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _exchange(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        sent = dict(scope["headers"]).get(HEADER, b"")
        request_id = sent.decode() if _ACCEPTABLE.fullmatch(sent) else new_id()
        added: list[tuple[bytes, bytes]] = [(HEADER, request_id.encode())]
        scope.setdefault("state", {}).update(request_id=request_id, answer_headers=added)
        started, status = time.perf_counter(), 499

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        token = EXCHANGE.set({"request_id": request_id})
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            write = log.debug if scope["path"] in _PROBES else log.info
            elapsed_ms = round((time.perf_counter() - started) * 1000, 1)
            method, path = scope["method"], _in_log(scope["raw_path"])
            line = partial(write, "request", method=method, path=path, status=status, ms=elapsed_ms)
            # later, since the answer leaves at the end of this round of the loop
            asyncio.get_running_loop().call_soon(line)
            EXCHANGE.reset(token)
