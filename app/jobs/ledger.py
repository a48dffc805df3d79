"""The rows of jobs: who may run one, how far it is, how it ended."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from app.access.caller import Caller
from app.db.database import Database
from app.db.models import Job, JobShard
from app.jobs.outbox import NOT_ENDED, has_ended
from app.jobs.records import JobSpec, Plan, ShardCount
from app.jobs.schemas import JobRequest

LEASE_S = 30.0
OPEN = ("queued", "running")
ENDED = ("completed", "failed", "cancelled")


class LeaseLost(Exception):
    """Somebody else runs this job, or nobody may: whoever notices stops at once."""


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Sums over the shards that are done."""

    shards: int
    images: int
    errors: int
    objects: int


class Ledger:
    """Jobs belong to tenants: what is another tenant's is not found."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, request: JobRequest, caller: Caller) -> Job:
        """A new job, queued."""
        job = Job(
            id=uuid.uuid4().hex,
            tenant=caller.tenant,
            key_id=caller.key_id or "",
            state="queued",
            reason="",
            request=msgspec.json.encode(request).decode(),
            webhook=request.webhook,
            started_images=0,
            open_images=0,
            open_errors=0,
            created_at=_now(),
        )
        async with self._database.session() as session, session.begin():
            session.add(job)
        return job

    async def find(self, job_id: str, tenant: str) -> Job | None:
        if "\0" in job_id:  # PostgreSQL has no such text
            return None
        async with self._database.session() as session:
            query = select(Job).where(Job.id == job_id, Job.tenant == tenant)
            job: Job | None = await session.scalar(query)
        return job

    async def listed(self, tenant: str, limit: int, before: Job | None) -> list[Job]:
        """Newest first, those older than `before`."""
        query = select(Job).where(Job.tenant == tenant)
        if before is not None:
            older = or_(
                Job.created_at < before.created_at,
                (Job.created_at == before.created_at) & (Job.id < before.id),
            )
            query = query.where(older)
        query = query.order_by(Job.created_at.desc(), Job.id.desc()).limit(limit)
        async with self._database.session() as session:
            return list(await session.scalars(query))

    async def standing(self, job_id: str) -> tuple[Job, JobCounts]:
        """A job and its counts at one moment, so that a shard is under way or done, and never both."""
        columns = (
            func.count(JobShard.number),
            func.coalesce(func.sum(JobShard.images), 0),
            func.coalesce(func.sum(JobShard.errors), 0),
            func.coalesce(func.sum(JobShard.objects), 0),
        )
        shards_done = (JobShard.job_id == Job.id) & JobShard.done
        query = (
            select(Job, *columns).outerjoin(JobShard, shards_done).where(Job.id == job_id).group_by(Job.id)
        )
        async with self._database.session() as session:
            job, *counts = (await session.execute(query)).one()
        return job, JobCounts(*(int(value) for value in counts))

    async def done(self, job_id: str) -> dict[int, ShardCount]:
        """What each finished shard holds, by its number and in order."""
        query = select(JobShard).where(JobShard.job_id == job_id, JobShard.done).order_by(JobShard.number)
        async with self._database.session() as session:
            return {
                row.number: ShardCount(
                    images=row.images,
                    errors=row.errors,
                    objects=row.objects,
                    results_digest=row.results_digest,
                    errors_digest=row.errors_digest,
                )
                for row in await session.scalars(query)
            }

    async def cancel(self, job: Job) -> bool:
        """Whether it was open; its runner stops when it next looks."""
        changes = {"state": "cancelled", "reason": "", "ended_at": _now(), "lease_owner": None}
        return await self._change(job.id, Job.state.in_(OPEN), changes | has_ended(_now()))

    async def resume(self, job: Job, *, damaged: bool = False) -> bool:
        """Whether it had stopped before its end, or was damaged since; it is queued again."""
        states = ("failed", "cancelled", "completed") if damaged else ("failed", "cancelled")
        changes = {"state": "queued", "reason": "", "ended_at": None, "lease_until": None}
        return await self._change(job.id, Job.state.in_(states), changes | NOT_ENDED)

    # --- for runners ---------------------------------------------------------------------------------

    async def take(self, owner: str) -> Job | None:
        """The oldest job that nobody runs, now this owner's for LEASE_S; None when there is none."""
        free = or_(Job.lease_until.is_(None), Job.lease_until < _now())
        oldest = select(Job).where(Job.state.in_(OPEN), free).order_by(Job.created_at).limit(1)
        async with self._database.session() as session:
            job = await session.scalar(oldest)
        if job is None:
            return None
        _, done = await self.standing(job.id)
        changes = {
            "state": "running",
            "lease_owner": owner,
            "lease_until": _lease(),
            "started_at": _now(),
            "started_images": done.images,
            "open_images": 0,
            "open_errors": 0,
        }
        taken = await self._change(job.id, Job.state.in_(OPEN) & free, changes)
        return job if taken else None

    async def renew(self, job_id: str, owner: str, images: int, errors: int) -> None:
        """With the counts of the shard that is being answered.  Raises LeaseLost."""
        changes = {"lease_until": _lease(), "open_images": images, "open_errors": errors}
        await self._as_owner(job_id, owner, changes)

    async def planned(self, job_id: str, owner: str, plan: Plan) -> None:
        """Raises LeaseLost."""
        changes = {
            "spec": msgspec.json.encode(plan.spec).decode(),
            "images": plan.images,
            "shards": plan.shards,
            "lease_until": _lease(),
        }
        await self._as_owner(job_id, owner, changes)

    async def begun(self, job_id: str, owner: str, shard: int) -> None:
        """Counts an attempt.  Raises LeaseLost."""
        async with self._holding(job_id, owner) as session:
            row = await session.get(JobShard, (job_id, shard))
            if row is None:
                row = JobShard(
                    job_id=job_id, number=shard, attempts=0, done=False, images=0, errors=0, objects=0
                )
                session.add(row)
            row.attempts += 1

    async def finished(self, job_id: str, owner: str, shard: int, count: ShardCount) -> None:
        """Also for a shard that somebody began who could not say that it was done.  Raises LeaseLost."""
        async with self._holding(job_id, owner) as session:
            await session.execute(
                update(JobShard)
                .where(JobShard.job_id == job_id, JobShard.number == shard)
                .values(done=True, **msgspec.structs.asdict(count))
            )

    async def undone(self, job_id: str, owner: str, shards: list[int]) -> None:
        """Shards whose results are lost: they do not count any more.  Raises LeaseLost."""
        empty = msgspec.structs.asdict(ShardCount(images=0, errors=0, objects=0))
        async with self._holding(job_id, owner) as session:
            for shard in shards:
                await session.execute(
                    update(JobShard)
                    .where(JobShard.job_id == job_id, JobShard.number == shard)
                    .values(done=False, **empty)
                )

    async def ended(
        self, job_id: str, owner: str, state: str, reason: str = "", notes: Sequence[str] = ()
    ) -> None:
        """Its webhook, if it has one, is to be told from now.  Raises LeaseLost."""
        changes = {
            "state": state,
            "reason": _kept(reason),
            "notes": "\n".join(notes),
            "ended_at": _now(),
            "lease_owner": None,
            "lease_until": None,
        }
        await self._as_owner(job_id, owner, changes | has_ended(_now()))

    async def put_back(self, job_id: str, owner: str, reason: str, after_s: float) -> None:
        """Nobody takes it for so long.  Raises LeaseLost."""
        until = _now() + datetime.timedelta(seconds=after_s)
        changes = {"state": "queued", "reason": _kept(reason), "lease_owner": None, "lease_until": until}
        await self._as_owner(job_id, owner, changes)

    @asynccontextmanager
    async def _holding(self, job_id: str, owner: str) -> AsyncIterator[AsyncSession]:
        """One transaction that renews the lease, with no image of a shard under way.  Raises LeaseLost."""
        changes = {"lease_until": _lease(), "open_images": 0, "open_errors": 0}
        async with self._database.session() as session, session.begin():
            if not await _changed(session, job_id, _mine(owner), changes):
                raise LeaseLost
            yield session

    async def _as_owner(self, job_id: str, owner: str, changes: dict[str, object]) -> None:
        if not await self._change(job_id, _mine(owner), changes):
            raise LeaseLost

    async def _change(self, job_id: str, condition: ColumnElement[bool], changes: dict[str, object]) -> bool:
        async with self._database.session() as session, session.begin():
            return await _changed(session, job_id, condition, changes)


def spec_of(job: Job) -> JobSpec | None:
    """With the revision that its results come from; None before it is planned."""
    return None if job.spec is None else msgspec.json.decode(job.spec, type=JobSpec)


def _kept(reason: str) -> str:
    """As much as a row holds; PostgreSQL has no NUL, which names of images may have."""
    return reason.replace("\0", "\ufffd")[:1000]


def _mine(owner: str) -> ColumnElement[bool]:
    return (Job.lease_owner == owner) & (Job.state == "running")


async def _changed(
    session: AsyncSession, job_id: str, condition: ColumnElement[bool], changes: dict[str, object]
) -> bool:
    """Whether there is such a job that meets the condition; it has the changes now."""
    statement = update(Job).where(Job.id == job_id, condition).values(**changes)
    result = await session.execute(statement.execution_options(synchronize_session=False))
    return bool(result.rowcount)  # type: ignore[attr-defined]


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _lease() -> datetime.datetime:
    return _now() + datetime.timedelta(seconds=LEASE_S)
