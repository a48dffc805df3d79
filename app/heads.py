"""HEAD: every route that answers GET answers it as well, with the same headers and no body."""

from __future__ import annotations

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send


class HeadAsGet:
    """ASGI middleware right around Litestar, which would answer 405."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and scope["method"] == "HEAD":
            await self._head(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _head(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        async def send_no_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message["body"] = b""
            await send(message)

        inner: HTTPScope = {**scope, "method": "GET"}
        try:
            await self._app(inner, receive, send_no_body)
        finally:
            if "path_template" in inner:  # the route, for those around us who count
                scope["path_template"] = inner["path_template"]
