"""Jobs in a process of the service: the database is there, and so is what they need of it.

Stores, boto3 and the database are imported late: a service without stores starts without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from app.settings import Settings

if TYPE_CHECKING:
    from app.db.database import Database
    from app.jobs.service import JobService

log = structlog.get_logger(__name__)


def check_stores(settings: Settings) -> None:
    """Before anything is started.  Raises SettingsError."""
    if settings.stores:
        from app.jobs.named import Stores

        Stores.read(settings.stores)


async def open_jobs(settings: Settings) -> JobService | None:
    """For an API process; None without stores.  Raises SettingsError."""
    if not settings.stores:
        return None
    from app.jobs.named import Stores
    from app.jobs.service import JobService

    return JobService(settings, Stores.read(settings.stores), await _database(settings))


@asynccontextmanager
async def jobs_beside(settings: Settings, stop: asyncio.Event) -> AsyncIterator[None]:
    """For a worker process: jobs run and webhooks are sent from now until `stop`; the block waits for it.

    Raises SettingsError.
    """
    if not settings.runs_jobs:
        yield
        return
    from app.admission.client import AdmissionClient, Limits
    from app.jobs.ledger import Ledger
    from app.jobs.named import Stores
    from app.jobs.outbox import Outbox
    from app.jobs.runner import JobRunner
    from app.jobs.webhook import Webhooks

    assert settings.redis_url is not None
    stores, database = Stores.read(settings.stores), await _database(settings)
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace, Limits.of(settings))
    ledger = Ledger(database)
    webhooks = Webhooks(Outbox(database), ledger, settings.fetch_policy())
    runner = JobRunner(ledger, stores, client, settings.default_model)
    running = [
        asyncio.create_task(runner.run(stop), name="jobs"),
        asyncio.create_task(webhooks.run(stop), name="webhooks"),
    ]
    try:
        yield
    finally:
        if not stop.is_set():
            for task in running:
                task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await client.close()
        await database.close()


async def _database(settings: Settings) -> Database:
    """One that is away is no reason not to start: jobs wait until it is there.  Raises SettingsError."""
    from app.db.database import DATABASE_ERRORS, Database, fault_of
    from app.db.migrations import prepare

    database = Database(settings)
    try:
        await prepare(database)
    except DATABASE_ERRORS as error:
        log.warning("the database cannot be reached", error=fault_of(error))
    return database
