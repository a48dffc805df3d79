"""An API process's application behind a real socket, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import uvicorn

from app.correlation import Correlation
from app.listening import free_port
from app.server import create_app, wired
from app.settings import Settings
from tests.admission.fakes import until


@asynccontextmanager
async def serving_api(settings: Settings) -> AsyncIterator[str]:
    """The URL of an API in front of the Redis of `settings`."""
    config = wired(Correlation(create_app(settings)), replace(settings, port=free_port(), drain_s=1.0))
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started or serving.done())
    try:
        yield f"http://127.0.0.1:{config.port}"
    finally:
        server.should_exit = True
        await serving
