"""Without keys, web pages from elsewhere must not use a server that only their visitor can reach.

A page can have its own name resolve to 127.0.0.1 (DNS rebinding): then `Host` names the page's site. It can
send a form across sites: then `Origin` does. Programs send the name they were given and no `Origin`.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from app.problems import ProblemError
from app.refusals import refuse
from app.settings import Settings


class KnownHosts:
    """ASGI middleware inside `Correlation`; refuses a foreign `Host` or `Origin` with 403 on every path.

    Addresses are known, since no page's site is named by one that it could rebind; so are localhost, the host
    that the server listens on, and `allowed_hosts`. An `Origin` must be the `Host` itself, or be allowed by
    `allowed_hosts` or `cors_origins`.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._allowed = {name.strip().lower() for name in settings.allowed_hosts.split(",") if name.strip()}
        self._origins = settings.allowed_origins
        self._names = self._allowed | {"localhost", settings.host.lower()}
        self._known: str | None = None
        """The last `Host` that was; nearly always it is the next one, too."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and (problem := self._problem(scope)):
            await refuse(scope, send, problem)
        else:
            await self._app(scope, receive, send)

    def _problem(self, scope: HTTPScope) -> ProblemError | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        origin = headers.get(b"origin")
        if not self._is_known(host):
            return ProblemError("forbidden", "This server has another name; see POINTBOX_ALLOWED_HOSTS.")
        if origin is not None and not self._is_ours(origin.decode("latin-1").lower(), host):
            return ProblemError(
                "forbidden", "Pages of other sites may not use this server; see POINTBOX_CORS_ORIGINS."
            )
        return None

    def _is_known(self, host: str) -> bool:
        if host == self._known:
            return True
        name = _name_of(host)
        known = name is not None and (name in self._names or _is_address(name))
        if known:
            self._known = host
        return known

    def _is_ours(self, origin: str, host: str) -> bool:
        """Of this server's own pages, or let in; other ports of a machine are other sites."""
        if origin in self._origins or "*" in self._origins:
            return True
        scheme, _, place = origin.partition("://")
        return scheme in ("http", "https") and (place == host or _name_of(place) in self._allowed)


def _name_of(host: str) -> str | None:
    """Without its port; None when it cannot be read."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
