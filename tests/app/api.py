"""An API process's application behind a real socket, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from app.correlation import Correlation
from app.http import HttpProtocol
from app.listening import free_port
from app.server import create_app
from app.settings import Settings
from tests.admission.fakes import until


@asynccontextmanager
async def serving_api(settings: Settings) -> AsyncIterator[str]:
    """The URL of an API in front of the Redis of `settings`."""
    port = free_port()
    config = uvicorn.Config(
        Correlation(create_app(settings)),
        host="127.0.0.1",
        port=port,
        http=HttpProtocol,
        log_config=None,
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started or serving.done())
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving
