"""The rows of jobs, in both kinds of database."""

from __future__ import annotations

import pytest

from app.access.caller import ANONYMOUS
from app.db.database import Database
from app.db.migrations import upgrade
from app.jobs.ledger import Ledger
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
