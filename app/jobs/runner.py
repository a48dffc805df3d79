"""Runs the jobs of a service, one after the other, beside a worker's engine."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

import structlog

from app.admission.client import AdmissionClient
from app.admission.errors import AdmissionError
from app.admission.messages import WorkerModel
from app.db.database import DATABASE_ERRORS
from app.db.models import Job
from app.jobs.errors import JobError, ShardsDamaged, StoreAway
from app.jobs.ledger import LEASE_S, LeaseLost, Ledger
from app.jobs.loops import again_and_again
from app.jobs.named import Stores
from app.jobs.queued import QueueAnswerer
from app.jobs.records import JobSpec, Plan, Summary
from app.jobs.reports import request_of
from app.jobs.running import ROUNDS, finish, open_plan, shards_done
from app.jobs.schemas import JobRequest
from app.jobs.shards import ShardRunner
from app.jobs.stores import Store
from app.jobs.threads import Threads

BEAT_S = LEASE_S / 6
CALLS_AT_ONCE = 4
"""To stores. A job makes one at a time; others may hang since they were given up."""
AWAY_S = 30.0
"""A job whose store or model is away is tried again after this long."""

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class OpenShard:
    """How many images of the shard under way are answered."""

    images: int = 0
    errors: int = 0
    booking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the ledger is told: what was counted must not be told after it was reset."""

    def reset(self) -> None:
        self.images = self.errors = 0

    def count(self, good: bool) -> None:
        self.images += 1
        self.errors += not good


class JobRunner:
    """One in a worker process; takes any job that nobody runs, also those of runners that died."""

    def __init__(self, ledger: Ledger, stores: Stores, client: AdmissionClient, default_model: str) -> None:
        self._ledger, self._stores, self._client = ledger, stores, client
        self._default_model = default_model
        self._owner = secrets.token_hex(8)
        self._threads = Threads(CALLS_AT_ONCE)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; what is under way then is left to another runner, its current shard unfinished."""
        await again_and_again("jobs", lambda: self._next(stop), stop)

    async def _next(self, stop: asyncio.Event) -> bool:
        """Run one job as far as it goes; whether there was one."""
        job = await self._ledger.take(self._owner)
        if job is None:
            return False
        log.info("a job is taken", job=job.id)
        work = asyncio.create_task(self._work(job))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
                with suppress(LeaseLost):
                    await self._ledger.put_back(job.id, self._owner, "", 0.0)
        if not work.cancelled():
            work.result()
        return True

    async def _work(self, job: Job) -> None:
        try:
            summary = await self._held(job)
            await self._ledger.ended(job.id, self._owner, "completed", notes=summary.notes)
        except LeaseLost:
            log.info("a job is no longer ours", job=job.id)
        except StoreAway as error:
            await self._settle(self._ledger.put_back(job.id, self._owner, self._told(error, job), AWAY_S))
        except (*DATABASE_ERRORS, AdmissionError):
            raise
        except Exception as error:
            await self._settle(self._ledger.ended(job.id, self._owner, "failed", self._told(error, job)))

    def _told(self, error: Exception, job: Job) -> str:
        """Why a job does not go on, for its caller; what nobody foresaw goes into the log."""
        if isinstance(error, (JobError, StoreAway)):
            return self._stores.in_names(str(error))
        log.exception("a job failed", job=job.id, exc_info=error)
        return "the server could not go on with this job; its log says why"

    async def _settle(self, change: object) -> None:
        with suppress(LeaseLost):
            await change  # type: ignore[misc]

    async def _held(self, job: Job) -> Summary:
        """The whole job, its lease renewed meanwhile: listing a large source takes longer than a lease."""
        open_shard = OpenShard()

        async def beat() -> None:
            while True:
                await asyncio.sleep(BEAT_S)
                async with open_shard.booking:
                    await self._ledger.renew(job.id, self._owner, open_shard.images, open_shard.errors)

        work, beating = asyncio.create_task(self._whole(job, open_shard)), asyncio.create_task(beat())
        try:
            await asyncio.wait({work, beating}, return_when=asyncio.FIRST_COMPLETED)
            if beating.done():
                beating.result()
            return await work
        finally:
            for task in (work, beating):
                task.cancel()
            await asyncio.gather(work, beating, return_exceptions=True)

    async def _whole(self, job: Job, open_shard: OpenShard) -> Summary:
        """From plan to summary.  Raises LeaseLost, JobError, StoreAway."""
        request = request_of(job)
        source = self._stores.open(request.source)
        target = self._stores.open(request.out).within(job.id)
        model = await self._model(request.model)
        spec = _spec(request, source, model)
        plan = await self._with_files(open_plan, job.id, spec, source, target)
        await self._ledger.planned(job.id, self._owner, plan)
        left = await self._left(job, plan, target)
        answerer = QueueAnswerer(self._client, job.tenant, job.key_id, 2 * max(1, model.capacity))

        async def begin(shard: int) -> None:
            async with open_shard.booking:
                open_shard.reset()
                await self._ledger.begun(job.id, self._owner, shard)

        runner = ShardRunner(plan.spec, source, target, answerer, begin, open_shard.count, plan.parts)
        for _ in range(ROUNDS):
            async for number, count in runner.run(left):
                async with open_shard.booking:
                    await self._ledger.finished(job.id, self._owner, number, count)
                    open_shard.reset()
            try:
                return await self._with_files(finish, plan, target)
            except ShardsDamaged as error:
                await self._ledger.undone(job.id, self._owner, error.shards)
                left, damage = error.shards, error
        raise damage

    async def _left(self, job: Job, plan: Plan, target: Store) -> list[int]:
        """Shards without whole results. Those whose runner died before it could say so are booked; what was
        booked and is lost since is not any more.
        """
        done = await self._with_files(shards_done, plan, target)
        booked = await self._ledger.done(job.id)
        lost = [number for number, count in booked.items() if count != done.get(number)]
        if lost:
            await self._ledger.undone(job.id, self._owner, lost)
        for number in sorted(number for number in done if done[number] != booked.get(number)):
            await self._ledger.begun(job.id, self._owner, number)
            await self._ledger.finished(job.id, self._owner, number, done[number])
        return [number for number in range(plan.shards) if number not in done]

    async def _with_files(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Raises JobError for what is wrong with this machine's files: it is no matter of the database's."""
        try:
            return await self._threads.run(call, *arguments, **named)
        except OSError as error:
            raise JobError(f"the server could not keep its files: {error.strerror or error}") from error

    async def _model(self, name: str | None) -> WorkerModel:
        """Raises StoreAway while no worker has it: it may come back."""
        models = {model.name: model for model in await self._client.models()}
        if name is None:
            name = self._default_model if self._default_model in models else min(models, default="")
        if name not in models:
            raise StoreAway(f"no worker serves the model {name!r}")
        return models[name]


def _spec(request: JobRequest, source: Store, model: WorkerModel) -> JobSpec:
    return JobSpec(
        source=source.url,
        manifest=request.source.manifest,
        task=request.task,
        phrases=request.objects,
        model=model.name,
        revision=model.revision,
        max_objects=request.max_objects,
        min_score=request.min_score,
        dedupe=request.dedupe,
        format=request.format,
        shard_size=request.shard_size,
    )
