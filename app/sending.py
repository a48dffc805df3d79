"""How answers are written to the wire: in pieces, and without chunks to HTTP/1.0."""

from __future__ import annotations

import sys
from typing import Any

from litestar.types import ASGIApp, Message, Receive, Scope, Send

PIECE_BYTES = 64 * 1024
"""Longer bodies are split, and each piece waits until the transport has room: it buffers what the client has
not read."""


class Sending:
    """ASGI middleware between uvicorn's cycle of one request and the application.

    An HTTP/1.0 client does not know chunks: an answer without a length ends there with the connection.
    """

    def __init__(self, app: ASGIApp, cycle: Any) -> None:
        self._app = app
        self._cycle = cycle
        self._until_closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_pieces(message: Message) -> None:
            if message["type"] == "http.response.start":
                if scope["http_version"] == "1.0":  # type: ignore[typeddict-item]
                    self._without_chunks(message["headers"])
            elif message["type"] == "http.response.body":
                body, last = message["body"], not message.get("more_body", False)
                end = max(len(body) - 1, 0) // PIECE_BYTES * PIECE_BYTES
                for start in range(0, end, PIECE_BYTES):
                    piece = body[start : start + PIECE_BYTES]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                message["body"] = body[end:] if end else body
                if last and self._until_closed:
                    self._cycle.expected_content_length = len(message["body"])
            await send(message)

        await self._app(scope, receive, send_in_pieces)

    def _without_chunks(self, headers: Any) -> None:
        """uvicorn counts down a length; this one has no end before the last piece."""
        if not any(name.lower() == b"content-length" for name, _ in headers):
            self._cycle.chunked_encoding = False
            self._cycle.expected_content_length = sys.maxsize
            self._until_closed = True
