"""In front of every route below `/v1`: finds the caller."""

from __future__ import annotations

from litestar import Request
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from app.access.caller import ANONYMOUS, remember
from app.access.gate import Gate


class Access(ASGIMiddleware):
    """Where the application's state has no gate everyone is the anonymous tenant."""

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Called by Litestar once the route is known."""
        gate: Gate | None = scope["litestar_app"].state.gate
        if gate is None:
            remember(scope, ANONYMOUS)
            await next_app(scope, receive, send)
            return
        async with gate.admitted(Request(scope)) as caller:
            remember(scope, caller)
            await next_app(scope, receive, send)
