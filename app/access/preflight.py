"""CORS preflights that are refused get a problem document that names what to change."""

from __future__ import annotations

from litestar.config.cors import CORSConfig
from litestar.constants import DEFAULT_ALLOWED_CORS_HEADERS
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from app.problems import ProblemError
from app.refusals import refuse

_SIMPLE = frozenset(name.lower() for name in DEFAULT_ALLOWED_CORS_HEADERS)


class Preflights:
    """ASGI middleware around Litestar, which answers what is refused with plain text.

    Args:
        cors: None: no other site's pages may call.
    """

    def __init__(self, app: ASGIApp, cors: CORSConfig | None) -> None:
        self._app = app
        self._cors = cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and scope["method"] == "OPTIONS" and (fault := self._fault(scope)):
            await refuse(scope, send, ProblemError("forbidden", fault))
        else:
            await self._app(scope, receive, send)

    def _fault(self, scope: HTTPScope) -> str | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin, method = headers.get(b"origin"), headers.get(b"access-control-request-method")
        if origin is None or method is None:  # no preflight
            return None
        if self._cors is None or not self._cors.is_origin_allowed(origin):
            return f"Pages of {origin[:200]} may not use this server; see POINTBOX_CORS_ORIGINS."
        if method not in self._cors.allow_methods:
            allowed = ", ".join(self._cors.allow_methods)
            return f"Pages of other sites may not send {method[:50]}; they may send {allowed}."
        asked = headers.get(b"access-control-request-headers", "").lower().split(",")
        known = _SIMPLE.union(name.lower() for name in self._cors.allow_headers)
        foreign = [name.strip() for name in asked if name.strip() and name.strip() not in known]
        if foreign:
            allowed = ", ".join(sorted(known))
            return (
                f"Pages of other sites may not send the header {foreign[0][:100]}; they may send {allowed}."
            )
        return None
