"""Answers a request with a problem document outside of Litestar, whose exception handlers do not see it."""

from __future__ import annotations

import math

import msgspec
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from app.problems import MEDIA_TYPE, ProblemError


async def refuse(scope: HTTPScope, send: Send, problem: ProblemError) -> None:
    """Sends the problem document; `Correlation` must have given the exchange its id."""
    content = msgspec.json.encode(problem.document(scope["state"]["request_id"]))
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(content)).encode())]
    if problem.retry_after_s is not None:
        headers.append((b"retry-after", retry_after(problem.retry_after_s)))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def retry_after(seconds: float) -> bytes:
    """The value of a `Retry-After` header: whole seconds, at least one."""
    return str(max(1, math.ceil(seconds))).encode()


def refusing(problem: ProblemError) -> ASGIApp:
    """An ASGI application that answers every request with this problem."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(scope, send, problem)  # type: ignore[arg-type]

    return app
