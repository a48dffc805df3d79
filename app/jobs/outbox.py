"""Webhooks that are to be sent, in the rows of their jobs: none is forgotten when a process ends.

A webhook becomes pending in the transaction that ends its job. One process at a time makes an attempt: taking
it puts the next attempt off until after the longest time that one may take, so an attempt whose process died
is made again. A receiver may therefore get the same job more than once.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection

from sqlalchemy import case, select, update

from app.db.database import Database
from app.db.models import Job

ATTEMPTS = 8
FIRST_PAUSE_S, GROWTH = 2.0, 3.0
"""After the first attempt, and how much longer after each further one: 8 attempts take 36 minutes."""
LEASE_S = 30.0
"""Longer than an attempt takes."""
NOT_ENDED: dict[str, object] = {
    "webhook_state": None,
    "webhook_attempts": 0,
    "webhook_status": None,
    "webhook_error": "",
    "webhook_due": None,
    "webhook_owner": None,
}
"""Of the row of a job that is open."""


def has_ended(now: datetime.datetime) -> dict[str, object]:
    """Changes to the row of a job that ends."""
    told = Job.webhook.is_not(None)
    return NOT_ENDED | {
        "webhook_state": case((told, "pending"), else_=None),
        "webhook_due": case((told, now), else_=None),
    }


class Outbox:
    """Pending webhooks of all tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, owner: str, busy: Collection[str]) -> Job | None:
        """The job whose webhook has waited longest, now this owner's for one attempt; None: none is due.

        Args:
            busy: tenants whose webhooks have to wait.
        """
        now = _now()
        due = (Job.webhook_state == "pending") & (Job.webhook_due <= now)
        query = select(Job).where(due, Job.tenant.not_in(busy)).order_by(Job.webhook_due).limit(1)
        async with self._database.session() as session:
            job = await session.scalar(query)
        if job is None:
            return None
        changes = {
            "webhook_due": now + datetime.timedelta(seconds=LEASE_S),
            "webhook_owner": owner,
            "webhook_attempts": Job.webhook_attempts + 1,
        }
        if not await self._change(job, due & (Job.webhook_attempts == job.webhook_attempts), changes):
            return None
        job.webhook_attempts += 1
        return job

    async def delivered(self, job: Job, owner: str, status: int) -> None:
        """The attempt has succeeded."""
        changes = {"webhook_state": "delivered", "webhook_due": None, "webhook_error": ""}
        await self._told(job, owner, changes | {"webhook_status": status})

    async def failed(self, job: Job, owner: str, status: int | None, error: str) -> None:
        """The attempt has failed: there is another one later, or none."""
        last = job.webhook_attempts >= ATTEMPTS
        pause_s = FIRST_PAUSE_S * GROWTH ** (job.webhook_attempts - 1)
        changes = {
            "webhook_state": "failed" if last else "pending",
            "webhook_due": None if last else _now() + datetime.timedelta(seconds=pause_s),
            "webhook_status": status,
            "webhook_error": error[:200],
        }
        await self._told(job, owner, changes)

    async def _told(self, job: Job, owner: str, changes: dict[str, object]) -> None:
        """Unless another process has taken over, or the job has gone on meanwhile."""
        mine = (Job.webhook_owner == owner) & (Job.webhook_attempts == job.webhook_attempts)
        same_end = (Job.webhook_state == "pending") & (Job.ended_at == job.ended_at)
        await self._change(job, mine & same_end, changes)

    async def _change(self, job: Job, condition: object, changes: dict[str, object]) -> bool:
        async with self._database.session() as session, session.begin():
            statement = update(Job).where(Job.id == job.id, condition).values(**changes)  # type: ignore[arg-type]
            result = await session.execute(statement.execution_options(synchronize_session=False))
        return bool(result.rowcount)  # type: ignore[attr-defined]


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
