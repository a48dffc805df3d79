"""`pointbox batch`: a whole job in this process, with an engine of its own."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass

from app.admission.translate import failure
from app.jobs.answering import EngineAnswerer
from app.jobs.errors import JobError, StoreAway
from app.jobs.exports import check_format
from app.jobs.places import Place, S3Options, check_apart, destination, source
from app.jobs.planning import job_name
from app.jobs.progress import Meter, shown
from app.jobs.records import Format, JobSpec, Plan, Summary
from app.jobs.running import finish, open_plan, read_summary, shards_left
from app.jobs.shards import ShardRunner
from app.jobs.stores import Store
from app.problems import ProblemError
from app.settings import Settings
from app.spatial.phrases import check_phrases
from app.spatial.schemas import Task
from engine.errors import EngineError

INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """What `pointbox batch` was told."""

    task: Task
    phrases: list[str]
    out: str
    job: str | None
    format: Format
    max_objects: int
    min_score: float
    dedupe: bool
    shard_size: int
    s3: S3Options


def run_batch(where: str, options: BatchOptions, settings: Settings) -> int:
    """Run a job, or go on with it; the exit status: 0, 1 for a job that stopped, 130 after Ctrl-C.

    Raises:
        ProblemError: what the caller can mend.
    """
    try:
        place = source(where, options.s3)
        if options.phrases or place.manifest is None:
            check_phrases(options.phrases, field="phrases")
        target = destination(options.out, options.s3)
        check_apart(place.store, target)
        return _with_engine(place, target, options, settings)
    except JobError as error:
        raise ProblemError("invalid-request", str(error)) from error
    except StoreAway as error:
        print(f"pointbox: {error}; run the same command again to go on", file=sys.stderr)
        return 1


def _with_engine(place: Place, target: Store, options: BatchOptions, settings: Settings) -> int:
    """Torch is imported here, when it is known that there is work for it."""
    from engine.engine import Engine

    try:
        engine = Engine.load(
            settings.model, device=settings.device, mode=settings.mode, max_batch=settings.max_batch
        )
    except EngineError as error:
        told = failure(error)
        raise ProblemError(told.problem, told.detail, field=told.field) from error
    with engine:
        info = engine.model_info
        spec = JobSpec(
            source=place.store.url,
            manifest=place.manifest,
            task=options.task,
            phrases=options.phrases,
            model=info.name,
            revision=info.revision,
            max_objects=options.max_objects,
            min_score=options.min_score,
            dedupe=options.dedupe,
            format=options.format,
            shard_size=options.shard_size,
        )
        check_format(spec.format, spec.task)
        job = options.job or job_name(spec)
        folder = target.within(job)
        plan = open_plan(job, spec, place.store, folder)
        if (summary := read_summary(folder)) is None:
            answerer = EngineAnswerer(engine)
            try:
                if not asyncio.run(_until_stopped(plan, place.store, folder, answerer)):
                    print(
                        f"pointbox: stopped; run the same command again to go on with job {job}",
                        file=sys.stderr,
                    )
                    return INTERRUPTED
            finally:
                answerer.close()
            summary = finish(plan, folder)
        _tell(summary, folder)
    return 0


async def _until_stopped(plan: Plan, source: Store, target: Store, answerer: EngineAnswerer) -> bool:
    """Whether every shard has results; False after SIGINT or SIGTERM."""
    left = shards_left(plan, target)
    meter = Meter(plan.images, min(plan.images, (plan.shards - len(left)) * plan.spec.shard_size))
    runner = ShardRunner(plan.spec, source, target, answerer, _nothing, meter.image)
    with shown(meter):
        work = asyncio.ensure_future(_run(runner, left))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        with suppress(asyncio.CancelledError):
            await work
            return True
    return False


async def _run(runner: ShardRunner, shards: list[int]) -> None:
    async for _ in runner.run(shards):
        pass


async def _nothing(shard: int) -> None:
    """Nobody needs to know that a shard begins."""


def _tell(summary: Summary, folder: Store) -> None:
    good = summary.images - summary.errors
    print(
        f"Job {summary.job}: {good} images answered, {summary.errors} with errors, {summary.objects} objects."
    )
    for phrase, count in summary.objects_by_phrase.items():
        print(f"  {phrase}: {count}")
    print(f"Results are in {folder.url}")
