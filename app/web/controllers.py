"""The pages and what they load. They hold no data, so nobody needs a key for them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from litestar import Controller, MediaType, Request, Response, get
from litestar.exceptions import NotFoundException
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

PAGES = {"/": "index.html"}
"""Path -> file beside this one."""
SHARED = {"/jobs": "jobs.html"}
"""The same for paths at which programs get something else: see `SharedPages`."""

# Nothing from elsewhere, nothing inline, no frame around it; `blob:` is the picture that its user chose.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # ask each time whether it is still the same
}
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".jpg": "image/jpeg",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str

    @classmethod
    def of(cls, name: str, content: bytes) -> _File:
        return cls(content, _TYPES[PurePath(name).suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')

    def answer(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        headers = {**_HEADERS, "etag": self.etag}
        if request.headers.get("if-none-match") == self.etag:
            return Response(b"", status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def _read() -> tuple[dict[str, _File], dict[str, _File]]:
    """The pages by their path, the assets by their name."""
    folder = files(__package__)
    pages = {path: _File.of(name, (folder / name).read_bytes()) for path, name in (PAGES | SHARED).items()}
    assets = {entry.name: _File.of(entry.name, entry.read_bytes()) for entry in (folder / "assets").iterdir()}
    return pages, assets


_PAGES, _ASSETS = _read()


class PageController(Controller):
    """Read once, at import: a page and its scripts are always of one version."""

    include_in_schema = False

    @get(list(PAGES))
    async def page(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        """One of `PAGES`."""
        return _PAGES[request.url.path].answer(request)

    @get("/assets/{name:str}")
    async def asset(self, request: Request[Any, Any, Any], name: str) -> Response[bytes]:
        """A script, a style or a picture of the pages."""
        if name not in _ASSETS:
            raise NotFoundException
        return _ASSETS[name].answer(request)


class SharedPages(ASGIMiddleware):
    """In front of routes, and of the question who calls: who reads HTML gets a page from their path.

    Browsers ask for `text/html` when they open an address; scripts and programs take anything.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Called by Litestar once the route is known."""
        request: Request[Any, Any, Any] = Request(scope)
        page = _PAGES.get(scope["path"]) if request.method == "GET" else None
        if page is None or request.accept.best_match([MediaType.JSON, MediaType.HTML]) != MediaType.HTML:
            await next_app(scope, receive, send)
            return
        answer = page.answer(request)
        answer.headers["vary"] = "accept"
        await answer.to_asgi_response(None, request)(scope, receive, send)
