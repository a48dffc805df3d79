"""In front of every route below `/v1`: finds the caller."""

from __future__ import annotations

from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from app.access.caller import ANONYMOUS, remember


class Access(ASGIMiddleware):
    """Without authentication everyone is the anonymous tenant."""

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Called by Litestar once the route is known."""
        remember(scope, ANONYMOUS)
        await next_app(scope, receive, send)
