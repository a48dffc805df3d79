"""Jobs in a process of the service: the database is there, and so is what they need of it.

Stores, boto3 and the database are imported late: a service without stores starts without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from app.settings import Settings

if TYPE_CHECKING:
    from app.jobs.service import JobService


async def open_jobs(settings: Settings) -> JobService | None:
    """For an API process; None without stores.  Raises SettingsError."""
    if not settings.stores:
        return None
    from app.db.database import Database
    from app.db.migrations import prepare
    from app.jobs.named import Stores
    from app.jobs.service import JobService

    stores = Stores.read(settings.stores)
    database = Database(settings)
    await prepare(database)
    return JobService(settings, stores, database)


@asynccontextmanager
async def jobs_beside(settings: Settings, stop: asyncio.Event) -> AsyncIterator[None]:
    """For a worker process: jobs run from now until `stop`, which the block waits for too.

    Raises SettingsError.
    """
    if not settings.runs_jobs:
        yield
        return
    from app.admission.client import AdmissionClient, Limits
    from app.db.database import Database
    from app.db.migrations import prepare
    from app.jobs.ledger import Ledger
    from app.jobs.named import Stores
    from app.jobs.runner import JobRunner
    from app.jobs.webhook import Webhooks

    assert settings.redis_url is not None
    stores, database = Stores.read(settings.stores), Database(settings)
    await prepare(database)
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace, Limits.of(settings))
    ledger = Ledger(database)
    webhooks = Webhooks(ledger, settings.fetch_policy())
    runner = JobRunner(ledger, stores, client, webhooks, settings.default_model)
    running = asyncio.create_task(runner.run(stop), name="jobs")
    try:
        yield
    finally:
        if not stop.is_set():
            running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()
        await database.close()
