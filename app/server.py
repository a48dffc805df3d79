"""The API process: a Litestar application in front of the queue. It never imports torch."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import uvicorn
from litestar import Litestar, Request, Router
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.exceptions import NotFoundException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.types import ASGIApp

from app import errors, logs, tracing
from app.access.gate import Gate
from app.access.hosts import KnownHosts
from app.access.middleware import Access
from app.access.opening import open_database
from app.access.preflight import Preflights
from app.admission.client import AdmissionClient, Limits
from app.admission.connections import producer
from app.admission.faults import refuse_evicting
from app.connections import Connections
from app.correlation import Correlation
from app.draining import Draining, DrainingServer, ends_in_order
from app.heads import HeadAsGet
from app.http import protocol
from app.idempotency.replays import HEADER, Replays
from app.images.controllers import ImageController
from app.images.service import ImageService
from app.images.store import ImageStore, Room
from app.inference import Inference
from app.intake.fetch import Fetcher
from app.jobs.controllers import JobController, StoreController
from app.jobs.opening import check_stores, open_jobs
from app.listening import claim_port
from app.misspelt import warn_misspelt
from app.observed import HttpFigures, Observed
from app.openapi import SECURITY
from app.settings import Settings, SettingsError
from app.spatial.controllers import SpatialController
from app.supervised import supervised
from app.system.controllers import HealthController, MetricsController, ModelController
from app.web.controllers import PageController, SharedPages

SCHEMA = "/schema"
KEEP_ALIVE_S = 75
"""An idle connection stays open longer than our client, and most proxies, would use it again."""
RATE_HEADERS = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
_SCHEMA_PATHS = ["/", "/openapi.json"]
Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]


def create_app(settings: Settings) -> Litestar:
    """Assemble the application. The routes without `/v1` are the same ones, left out of the schema.

    Raises:
        SettingsError: there is no Redis to admit requests to.
    """
    if settings.redis_url is None:
        raise SettingsError("POINTBOX_REDIS_URL must be set: the API needs the Redis of its workers")
    subjects = [SpatialController, ImageController, JobController, StoreController, ModelController]
    gate = Gate(settings) if settings.keys_needed else None
    access = [Access()]
    return Litestar(
        route_handlers=[
            HealthController,
            MetricsController,
            PageController,
            Router("/v1", route_handlers=subjects, middleware=access),
            Router(
                "/",
                route_handlers=subjects,
                middleware=[SharedPages(), *access],
                include_in_schema=False,
            ),
        ],
        cors_config=_cors(settings.allowed_origins),
        state=State({"settings": settings, "gate": gate, "http": HttpFigures()}, deep_copy=False),
        lifespan=[_services(settings, settings.redis_url), *([gate.opened] if gate else [])],
        exception_handlers=errors.handlers(),
        request_max_body_size=settings.body_limit_bytes,
        openapi_config=_openapi(with_keys=gate is not None),
        logging_config=None,
        debug=False,
    )


def _services(settings: Settings, redis_url: str) -> Lifespan:
    """What the routes use, in the application's state while it runs."""

    @asynccontextmanager
    async def running(app: Litestar) -> AsyncGenerator[None, None]:
        client = await AdmissionClient.connect(redis_url, settings.namespace, Limits.of(settings))
        redis = producer(redis_url)
        room = Room(settings.images_bytes, settings.tenant_images_bytes, settings.image_ttl_s)
        store = ImageStore(redis, settings.namespace, room)
        fetcher = Fetcher(settings.fetch_policy(), settings.body_limit_bytes, settings.fetch_timeout_s)
        app.state.client = client
        app.state.inference = inference = Inference(client, settings)
        app.state.images = ImageService(store, fetcher, inference)
        app.state.replays = Replays(redis, settings.namespace)
        app.state.jobs = jobs = await open_jobs(settings)
        sweeping = asyncio.create_task(supervised("uploaded-images", store.keep_swept))
        try:
            yield
        finally:
            sweeping.cancel()
            if jobs is not None:
                await jobs.close()
            await redis.aclose()
            await client.close()

    return running


def _openapi(*, with_keys: bool) -> OpenAPIConfig:
    return OpenAPIConfig(
        title="Pointbox",
        version=version("pointbox-server"),
        description="An image and a phrase in, boxes and points out.",
        components=SECURITY,
        security=[{"bearer": []}, {"moondream": []}] if with_keys else None,
        openapi_router=Router(
            SCHEMA, route_handlers=[], include_in_schema=False, before_request=_schema_only
        ),
        render_plugins=[JsonRenderPlugin(path=_SCHEMA_PATHS)],
    )


def _cors(origins: frozenset[str]) -> CORSConfig | None:
    """Lets web pages of these origins call the service; credentials go in headers, never in cookies."""
    if not origins:
        return None
    return CORSConfig(
        allow_origins=sorted(origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type", HEADER, "X-Moondream-Auth", "X-Request-Id"],
        expose_headers=["Idempotent-Replayed", "Retry-After", "X-Request-Id", *RATE_HEADERS],
    )


def _schema_only(request: Request[Any, Any, Any]) -> None:
    """Litestar answers other paths beside the schema with a page; ours get the problem document."""
    if request.url.path.removeprefix(SCHEMA) not in ("", *_SCHEMA_PATHS):
        raise NotFoundException


def layered(app: Litestar) -> ASGIApp:
    """The application as it is served: every exchange has an id and is measured, and may be ended.

    Where no key is needed, only programs that mean this server may use it: see `KnownHosts`.
    """
    settings: Settings = app.state.settings
    routes = Preflights(HeadAsGet(app), app.cors_config)
    inner = routes if settings.keys_needed else KnownHosts(routes, settings)
    app.state.draining = draining = Draining(inner)
    return Correlation(Observed(draining, app.state.http))


def wired(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """How the application is served."""
    # Pages that CORS lets in may also show what they fetch without it: pictures of samples.
    owner = "cross-origin" if settings.allowed_origins else "same-origin"
    served: Any = app
    return uvicorn.Config(
        served,
        host=settings.host,
        port=settings.port,
        http=protocol(Connections(settings)),
        headers=[("x-content-type-options", "nosniff"), ("cross-origin-resource-policy", owner)],
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",  # there are no web sockets
        timeout_keep_alive=KEEP_ALIVE_S,
    )


def run_api(settings: Settings) -> int:
    """Serve until SIGTERM or Ctrl-C, then finish what is in flight for at most `drain_s`; the exit status.

    Raises:
        SettingsError: a setting, or the version of the database, does not allow to serve.
        ProblemError: the port is taken.
    """
    logs.configure(settings.log_level, "api")
    warn_misspelt(os.environ)
    tracing.configure("api")
    check_stores(settings)
    if settings.redis_url is not None:
        refuse_evicting(settings.redis_url)
    if settings.keys_needed or settings.stores:
        asyncio.run(open_database(settings))
    settings = replace(settings, port=claim_port(settings.host, settings.port))
    app = create_app(settings)
    served = layered(app)

    async def give_up() -> None:
        await app.state.client.give_up()

    server = DrainingServer(wired(served, settings), app.state.draining, settings.drain_s, give_up)
    ends_in_order()
    gc.freeze()  # or every full collection walks all that was imported, in the middle of a request
    server.run()
    return 0 if server.started else 1
