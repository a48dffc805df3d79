"""Answers a request with a problem document outside of Litestar, whose exception handlers do not see it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from http import HTTPStatus

import msgspec
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from app.problems import MEDIA_TYPE, ProblemError

Header = tuple[bytes, bytes]


async def refuse(scope: HTTPScope, send: Send, problem: ProblemError, more: Iterable[Header] = ()) -> None:
    """Sends the problem document; `Correlation` must have given the exchange its id.

    Args:
        more: further headers.
    """
    content = msgspec.json.encode(problem.document(scope["state"]["request_id"]))
    headers = [*_headers(problem, content), *more]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def refusing(problem: ProblemError) -> ASGIApp:
    """An ASGI application that answers every request with this problem."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(scope, send, problem)  # type: ignore[arg-type]

    return app


def last_answer(problem: ProblemError, request_id: str, more: Iterable[Header]) -> bytes:
    """The problem document as HTTP/1.1, for a connection that is closed then.

    Args:
        more: further headers.
    """
    content = msgspec.json.encode(problem.document(request_id))
    headers = [
        *_headers(problem, content),
        (b"x-request-id", request_id.encode()),
        (b"connection", b"close"),
        *more,
    ]
    status = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}".encode()
    return b"\r\n".join((status, *(b"%s: %s" % header for header in headers), b"", content))


def _headers(problem: ProblemError, content: bytes) -> list[Header]:
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(content)).encode())]
    if problem.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(problem.retry_after_s))).encode()))
    return headers
