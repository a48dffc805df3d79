"""What the routes below /jobs do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import structlog

from app.access.caller import Caller
from app.db.database import DATABASE_ERRORS, Database
from app.db.models import Job
from app.intake.addresses import Policy
from app.jobs.errors import JobError, NoSuchKey, StoreAway
from app.jobs.exports import check_format
from app.jobs.ledger import Ledger
from app.jobs.named import Stores
from app.jobs.places import check_apart
from app.jobs.reports import info_of, request_of
from app.jobs.schemas import JobInfo, JobList, JobRequest
from app.jobs.shards import errors_name, results_name
from app.jobs.stores import Store
from app.jobs.webhook import check_webhook
from app.problems import ProblemError
from app.settings import Settings
from app.spatial.phrases import check_phrases

MAX_LISTED = 100

log = structlog.get_logger(__name__)


class JobService:
    """One per API process that has stores to work on."""

    def __init__(self, settings: Settings, stores: Stores, database: Database) -> None:
        self._database = database
        self._ledger, self._stores = Ledger(self._database), stores
        self._policy: Policy = settings.fetch_policy()

    async def close(self) -> None:
        await self._database.close()

    async def submit(self, request: JobRequest, caller: Caller) -> JobInfo:
        """Raises ProblemError: with the field that is wrong."""
        self._stores.check(request.source, caller.tenant, field="source", write=False)
        self._stores.check(request.out, caller.tenant, field="out", write=True)
        if request.objects or request.source.manifest is None:
            check_phrases(request.objects, field="objects")
        if request.webhook is not None:
            check_webhook(request.webhook, self._policy)
        try:
            check_format(request.format, request.task)
        except JobError as error:
            raise ProblemError("invalid-request", f"This job cannot run: {error}.", field="format") from None
        try:
            check_apart(self._stores.open(request.source), self._stores.open(request.out))
        except JobError:
            detail = "The results would lie inside the source, or one of the stores cannot be opened."
            raise ProblemError("invalid-request", detail, field="out") from None
        async with _database():
            return await info_of(self._ledger, await self._ledger.add(request, caller))

    async def show(self, job_id: str, caller: Caller) -> JobInfo:
        async with _database():
            return await info_of(self._ledger, await self._find(job_id, caller))

    async def listed(self, caller: Caller, limit: int, before: str | None) -> JobList:
        async with _database():
            older = None if before is None else await self._find(before, caller)
            jobs = await self._ledger.listed(caller.tenant, limit + 1, older)
            infos = [await info_of(self._ledger, job) for job in jobs[:limit]]
        return JobList(jobs=infos, next=jobs[limit - 1].id if len(jobs) > limit else None)

    async def cancel(self, job_id: str, caller: Caller) -> JobInfo:
        """A job that has ended stays as it is."""
        async with _database():
            await self._ledger.cancel(await self._find(job_id, caller))
        return await self.show(job_id, caller)

    async def resume(self, job_id: str, caller: Caller) -> JobInfo:
        """A job that runs, or is complete, stays as it is."""
        async with _database():
            await self._ledger.resume(await self._find(job_id, caller))
        return await self.show(job_id, caller)

    async def lines(self, job_id: str, caller: Caller, what: str, shard: int | None) -> AsyncIterator[bytes]:
        """The `results` or `errors` of the shards that are done, as JSON lines, in order.

        Raises ProblemError: not-found, unavailable; once lines were sent, the stream breaks off instead.
        """
        async with _database():
            job = await self._find(job_id, caller)
            done = sorted(await self._ledger.shards_done(job_id))
        if shard is not None:
            if shard not in done:
                raise ProblemError("not-found", f"Shard {shard} of this job is not there.", field="shard")
            done = [shard]
        target = self._stores.open(request_of(job).out).within(job.id)
        name = results_name if what == "results" else errors_name
        first = await _read(target, name(done[0])) if done else b""

        async def rest() -> AsyncGenerator[bytes, None]:
            yield first
            for number in done[1:]:
                yield await _read(target, name(number))

        return rest()

    async def _find(self, job_id: str, caller: Caller) -> Job:
        job = await self._ledger.find(job_id, caller.tenant)
        if job is None:
            raise ProblemError("not-found", "There is no such job.")
        return job


async def _read(target: Store, name: str) -> bytes:
    try:
        return (await asyncio.to_thread(target.get, name))[0]
    except (JobError, NoSuchKey, StoreAway) as error:
        log.warning("results cannot be read", error=str(error))
        raise ProblemError(
            "unavailable", "The store of the results does not answer.", retry_after_s=5
        ) from None


@asynccontextmanager
async def _database() -> AsyncIterator[None]:
    """Whatever the database raises when it is away is told as a problem."""
    try:
        yield
    except DATABASE_ERRORS as error:
        log.warning("the database cannot be reached", error=type(error).__name__)
        raise ProblemError("unavailable", "Jobs cannot be looked up now.", retry_after_s=1) from None
