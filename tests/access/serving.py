"""The API with keys, in this process, in front of a real queue and a worker with the fake engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from app.access.keys import Keys, NewKey
from app.access.opening import open_database
from app.db.database import Database
from app.server import create_app, layered
from app.settings import Settings


@dataclass(frozen=True)
class Api:
    """`client` sends no key by itself."""

    client: httpx.AsyncClient
    settings: Settings
    database: Database

    @property
    def keys(self) -> Keys:
        return Keys(self.database)

    async def key(self, tenant: str = "acme", **choices: object) -> dict[str, str]:
        """The header of a new key."""
        _, key = await self.keys.create(NewKey(tenant=tenant, **choices))  # type: ignore[arg-type]
        return {"authorization": f"Bearer {key}"}


@asynccontextmanager
async def serving(settings: Settings) -> AsyncGenerator[Api, None]:
    """Started as `run_api` starts it, without a socket."""
    if settings.keys_needed:
        await open_database(settings)
    app, database, stop = create_app(settings), Database(settings), asyncio.Event()
    started = asyncio.Event()

    async def live() -> None:  # one task from start to end, which a fixture is not
        async with app.lifespan():
            started.set()
            await stop.wait()

    living = asyncio.create_task(live())
    await started.wait()
    transport = httpx.ASGITransport(layered(app))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield Api(client, settings, database)
    stop.set()
    await living
    await database.close()
