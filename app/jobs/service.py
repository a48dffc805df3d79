"""What the routes below /jobs do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import chain, starmap
from typing import Literal, ParamSpec, TypeVar

import structlog

from app.access.caller import Caller
from app.db.database import DATABASE_ERRORS, Database, fault_of
from app.db.models import Job
from app.intake.addresses import Policy
from app.jobs.errors import Damaged, JobError, NoSuchKey, StoreAway
from app.jobs.exports import check_format
from app.jobs.ledger import Ledger
from app.jobs.lines import check_whole, read_pieces
from app.jobs.named import Stores
from app.jobs.places import check_apart
from app.jobs.planning import lost_lists, read_plan
from app.jobs.records import ShardCount
from app.jobs.reports import Wanted, info_of, request_of
from app.jobs.running import read_end, shards_left
from app.jobs.samples import read_picture, read_results, spread
from app.jobs.schemas import JobInfo, JobList, JobRequest, Sample, SampleList, StoreList, StorePlace
from app.jobs.shards import errors_name, results_name
from app.jobs.stores import Store
from app.jobs.threads import Threads
from app.jobs.webhook import check_webhook
from app.problems import ProblemError
from app.settings import Settings
from app.spatial.phrases import check_phrases

MAX_LISTED = 100
MAX_SAMPLES = 50
DECODED_AT_ONCE = 2
"""Pictures of samples: each may take some hundred megabytes."""
READS_AT_ONCE = 8
READ_S = 30.0
"""A store that has not given what a caller waits for by then counts as away."""
P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger(__name__)


class JobService:
    """One per API process that has stores to work on."""

    def __init__(self, settings: Settings, stores: Stores, database: Database) -> None:
        self._database = database
        self._ledger, self._stores = Ledger(self._database), stores
        self._policy: Policy = settings.fetch_policy()
        self._picture_bytes = settings.body_limit_bytes
        self._decoding = asyncio.Semaphore(DECODED_AT_ONCE)
        self._threads = Threads(READS_AT_ONCE)

    async def close(self) -> None:
        await self._database.close()

    def stores(self, caller: Caller) -> StoreList:
        """Those that the caller's jobs may name."""
        return StoreList(stores=self._stores.listed(caller.tenant))

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
        """A job that runs stays as it is, and so does a complete one whose files are whole."""
        async with _database():
            job = await self._find(job_id, caller)
        damaged = job.state == "completed" and await self._damaged(job, caller)
        async with _database():
            await self._ledger.resume(job, damaged=damaged)
        return await self.show(job_id, caller)

    async def lines(
        self, job_id: str, caller: Caller, what: Literal["results", "errors"], wanted: Wanted
    ) -> AsyncIterator[bytes]:
        """The wanted ones of the shards that are done, as JSON lines, in order.

        Raises ProblemError: not-found, unavailable; once lines were sent, the stream breaks off instead.
        """
        job, done = await self._with_shards(job_id, caller)
        if wanted.shard is not None and wanted.shard not in done:
            raise ProblemError("not-found", f"Shard {wanted.shard} of this job is not there.", field="shard")
        name = results_name if what == "results" else errors_name
        parts = list(wanted.parts(done, what))
        target = self._target(job, caller)

        def pieces_of(shard: int, part: slice) -> Iterator[bytes]:
            expected, count = done[shard].errors_digest, done[shard].errors
            if what == "results":
                expected, count = done[shard].results_digest, done[shard].images - count
            check_whole(target, name(shard), expected, count)
            yield from read_pieces(target, name(shard), part)

        pieces = chain.from_iterable(starmap(pieces_of, parts))

        def following() -> bytes:
            return next(pieces, b"")

        first = await self._from_stores(following)

        async def all_of_them() -> AsyncGenerator[bytes, None]:
            """A piece is read when the one before it is with the client, however slowly that reads."""
            piece = first
            while piece:
                yield piece
                piece = await self._from_stores(following)

        return all_of_them()

    async def samples(self, job_id: str, caller: Caller, limit: int) -> SampleList:
        """Some results of the shards that are done.  Raises ProblemError: not-found, unavailable."""
        job, done = await self._with_shards(job_id, caller)
        places, size = spread(done, limit), request_of(job).shard_size
        results = await self._from_stores(read_results, self._target(job, caller), places, done)
        return SampleList(
            samples=[
                Sample(
                    number=shard * size + line,
                    key=result.key,
                    image=result.image,
                    objects=result.objects,
                    points=result.points,
                    phrases=result.phrases,
                    picture=f"/v1/jobs/{job.id}/samples/{shard * size + line}",
                )
                for (shard, line), result in zip(places, results, strict=True)
            ]
        )

    async def picture(self, job_id: str, caller: Caller, number: int) -> bytes:
        """Of a sample, as JPEG.  Raises ProblemError: also when it is gone from its store."""
        job, done = await self._with_shards(job_id, caller)
        shard, line = divmod(number, request_of(job).shard_size)
        if shard not in done or line >= done[shard].images - done[shard].errors:
            raise ProblemError("not-found", "There is no such sample.")
        source, target = self._open(request_of(job).source, caller), self._target(job, caller)
        async with _answering(), self._decoding:
            return await self._from_stores(
                read_picture, source, target, shard, line, done[shard], self._picture_bytes
            )

    async def _damaged(self, job: Job, caller: Caller) -> bool:
        """Whether files of a complete job are gone or cut; False if its stores do not answer now."""

        def look(target: Store) -> bool:
            plan = read_plan(target)
            if plan is None or lost_lists(plan, target) or shards_left(plan, target):
                return True
            return read_end(plan, target) is None

        try:
            return await self._from_stores(look, self._target(job, caller))
        except ProblemError:
            return False

    async def _with_shards(self, job_id: str, caller: Caller) -> tuple[Job, dict[int, ShardCount]]:
        async with _database():
            job = await self._find(job_id, caller)
            return job, await self._ledger.done(job_id)

    async def _from_stores(self, read: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What reading from stores gives; it happens in a thread.  Raises ProblemError: unavailable."""
        async with _answering():
            return await self._threads.run(read, *arguments, **named)

    def _target(self, job: Job, caller: Caller) -> Store:
        return self._open(request_of(job).out, caller).within(job.id)

    def _open(self, place: StorePlace, caller: Caller) -> Store:
        """As long as the caller may name it.  Raises ProblemError: forbidden."""
        if not any(store.name == place.store for store in self._stores.listed(caller.tenant)):
            raise ProblemError("forbidden", f"The store {place.store!r} of this job is not yours any more.")
        return self._stores.open(place)

    async def _find(self, job_id: str, caller: Caller) -> Job:
        job = await self._ledger.find(job_id, caller.tenant)
        if job is None:
            raise ProblemError("not-found", "There is no such job.")
        return job


@asynccontextmanager
async def _answering() -> AsyncIterator[None]:
    """A store that cannot be read, or not in time, is told as a problem."""
    try:
        async with asyncio.timeout(READ_S):
            yield
    except Damaged as error:
        log.warning("a job's files are damaged", error=str(error))
        detail = (
            "What this job wrote is gone or damaged in its store. Resume the job: it computes that again."
        )
        raise ProblemError("unavailable", detail, retry_after_s=5) from None
    except (JobError, NoSuchKey, StoreAway, TimeoutError) as error:
        log.warning("a job's stores cannot be read", error=str(error) or f"no answer in {READ_S:g} s")
        raise ProblemError(
            "unavailable", "A store of this job does not answer, or what it holds is gone.", retry_after_s=5
        ) from None


@asynccontextmanager
async def _database() -> AsyncIterator[None]:
    """Whatever the database raises when it is away is told as a problem."""
    try:
        yield
    except DATABASE_ERRORS as error:
        log.warning("the database cannot be reached", error=fault_of(error))
        raise ProblemError("unavailable", "Jobs cannot be looked up now.", retry_after_s=1) from None
