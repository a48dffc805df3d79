"""The rows of jobs, in both kinds of database."""

from __future__ import annotations

import pytest

from app.access.caller import ANONYMOUS
from app.db.database import Database
from app.db.migrations import upgrade
from app.jobs.ledger import Ledger
from app.jobs.records import ShardCount
from app.jobs.reports import info_of
from app.jobs.schemas import JobRequest, SourcePlace, StorePlace
from tests.db.conftest import database, postgres_url

__all__ = ["database", "postgres_url"]


@pytest.mark.parametrize("job_id", ["\0", "a\0b", "", "😀", "x" * 10_000, "'; DROP TABLE job; --", "%"])
async def test_an_id_that_cannot_be_is_not_found(database: Database, job_id: str) -> None:
    await upgrade(database)
    ledger = Ledger(database)
    request = JobRequest(source=SourcePlace(store="in"), out=StorePlace(store="out"), objects=["cat"])
    job = await ledger.add(request, ANONYMOUS)
    assert await ledger.find(job_id, ANONYMOUS.tenant) is None
    found = await ledger.find(job.id, ANONYMOUS.tenant)
    assert found is not None


async def test_a_shard_counts_once_under_way_and_done(database: Database) -> None:
    await upgrade(database)
    ledger = Ledger(database)
    request = JobRequest(source=SourcePlace(store="in"), out=StorePlace(store="out"), objects=["cat"])
    job = await ledger.add(request, ANONYMOUS)

    async def done() -> tuple[int, int, int]:
        progress = (await info_of(ledger, job)).progress
        return progress.done, progress.errors, progress.objects

    assert await done() == (0, 0, 0)
    assert await ledger.take("me") is not None
    for shard in (0, 1):
        await ledger.begun(job.id, "me", shard)
        await ledger.renew(job.id, "me", 5, 1)
        assert await done() == (8 * shard + 5, 2 * shard + 1, 20 * shard)
        await ledger.finished(job.id, "me", shard, ShardCount(images=8, errors=2, objects=20))
        assert await done() == (8 * shard + 8, 2 * shard + 2, 20 * shard + 20)
