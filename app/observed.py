"""Around every HTTP exchange: its span, and how long it took by route and status."""

from __future__ import annotations

import asyncio
import time

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send
from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.status import StatusCode
from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector

from app.tracing import continued, span

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: from an answer out of the cache to the usual deadline."""
CLIENT_GONE = 499


class HttpFigures:
    """The figures of one API process. Routes go by their pattern, so that ids make no new ones."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.seconds = Histogram(
            "pointbox_http_request_seconds",
            "Time from the request to the last byte of its answer.",
            ("method", "route", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.open = Gauge(
            "pointbox_http_requests_open", "Requests without an answer.", registry=self.registry
        )


class Observed:
    """ASGI middleware inside `Correlation` and outside of all that may refuse a request."""

    def __init__(self, app: ASGIApp, figures: HttpFigures) -> None:
        self._app = app
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            await self._exchange(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _exchange(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        started, status = time.perf_counter(), CLIENT_GONE

        async def send_seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        sent = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self._figures.open.inc()
        with span(scope["method"], continued(sent), SpanKind.SERVER) as around:
            try:
                await self._app(scope, receive, send_seen)
            finally:
                # later, since the answer leaves at the end of this round of the loop
                seconds = time.perf_counter() - started
                asyncio.get_running_loop().call_soon(self._count, scope, status, seconds)
                if around.is_recording():
                    _describe(around, scope, status)

    def _count(self, scope: HTTPScope, status: int, seconds: float) -> None:
        self._figures.open.dec()
        self._figures.seconds.labels(scope["method"], _route(scope), status).observe(seconds)


def _describe(around: Span, scope: HTTPScope, status: int) -> None:
    around.update_name(f"{scope['method']} {_route(scope)}")
    around.set_attribute("http.request.method", scope["method"])
    around.set_attribute("http.route", _route(scope))
    around.set_attribute("http.response.status_code", status)
    around.set_attribute("pointbox.request_id", scope["state"]["request_id"])
    if status >= 500:
        around.set_status(StatusCode.ERROR)


def _route(scope: HTTPScope) -> str:
    return scope.get("path_template") or "(none)"
