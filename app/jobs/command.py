"""`pointbox batch`: a whole job in this process, with an engine of its own or a service that answers."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from app.jobs.answering import EngineAnswerer
from app.jobs.cli import BatchFlags
from app.jobs.errors import JobError, ShardsDamaged, StoreAway
from app.jobs.exports import check_format
from app.jobs.patience import patiently
from app.jobs.places import Place, S3Options, check_apart, check_job, destination, source
from app.jobs.planning import job_name
from app.jobs.progress import Meter, shown
from app.jobs.records import JobSpec, Plan, Summary
from app.jobs.running import ROUNDS, finish, open_plan, read_end, shards_left
from app.jobs.shards import ShardRunner
from app.jobs.stores import Store
from app.loading import load_engine
from app.problems import ProblemError
from app.settings import Settings
from app.spatial.phrases import check_phrases

if TYPE_CHECKING:
    from app.jobs.endpoint import ServiceAnswerer

INTERRUPTED = 130
Work = Callable[[Plan, Store, list[int], Meter], Coroutine[None, None, None]]
"""Answers the shards of a plan that are left, results into a folder, counting images."""


def run_batch(where: str, options: BatchFlags) -> int:
    """Run a job, or go on with it; the exit status: 0, or 130 after Ctrl-C.

    Raises:
        ProblemError: what the caller can mend; unavailable where trying again may do.
    """
    try:
        check_format(options.format, options.task)
        if options.job is not None:
            check_job(options.job)
        s3 = S3Options(options.s3_endpoint, options.s3_path_style, options.s3_allow_http)
        place = source(where, s3)
        if not options.phrases and place.manifest is None:
            raise JobError("say what to look for: --detect or --point, and phrases after it")
        if options.phrases:
            check_phrases(options.phrases, field="phrases")
        target = destination(options.out, s3)
        if place.manifest is None:
            check_apart(place.store, target)
        if options.endpoint is not None:
            return _with_service(place, target, options, options.endpoint)
        if options.ray is not None:
            return _with_ray(place, target, options, options.ray, s3)
        return _with_engine(place, target, options)
    except JobError as error:
        raise ProblemError("invalid-request", str(error)) from error
    except StoreAway as error:
        raise ProblemError("unavailable", f"{error}; run the same command again to go on") from error


def _with_engine(place: Place, target: Store, options: BatchFlags) -> int:
    with load_engine(Settings.load(model=options.model)) as engine:
        info = engine.model_info
        spec = _spec(place, options, info.name, info.revision)
        return _whole(spec, place, target, options, _here(place, lambda: EngineAnswerer(engine)))


def _with_service(place: Place, target: Store, options: BatchFlags, endpoint: str) -> int:
    from app.jobs.endpoint import answerer_at, model_at

    there = model_at(endpoint, options.model)
    spec = _spec(place, options, there.name, there.revision)
    return _whole(spec, place, target, options, _here(place, lambda: answerer_at(endpoint, there)))


def _with_ray(place: Place, target: Store, options: BatchFlags, address: str, s3: S3Options) -> int:
    from app.jobs.cluster import Places, started

    settings, places = Settings.load(model=options.model), Places(place.store.url, target.url, s3)
    with started(address, options.ray_actors, places, settings) as cluster:
        spec = _spec(place, options, *cluster.model())
        return _whole(spec, place, target, options, cluster.run)


def _spec(place: Place, options: BatchFlags, model: str, revision: str) -> JobSpec:
    return JobSpec(
        source=place.store.url,
        manifest=place.manifest,
        task=options.task,
        phrases=options.phrases,
        model=model,
        revision=revision,
        max_objects=options.max_objects,
        min_score=options.min_score,
        dedupe=options.dedupe == "on",
        format=options.format,
        shard_size=options.shard_size,
    )


def _whole(spec: JobSpec, place: Place, target: Store, options: BatchFlags, work: Work) -> int:
    """From plan to summary; the exit status."""
    job = options.job or job_name(spec)
    folder = target.within(job)
    plan = open_plan(job, spec, place.store, folder)
    left = shards_left(plan, folder)
    summary = None if left else read_end(plan, folder)
    for round_ in range(ROUNDS):
        if summary is not None:
            break
        if not asyncio.run(_until_stopped(plan, folder, left, work)):
            print(f"pointbox: stopped; run the same command again to go on with job {job}", file=sys.stderr)
            return INTERRUPTED
        try:
            summary = patiently(finish, plan, folder)
        except ShardsDamaged as error:
            if round_ == ROUNDS - 1:
                raise
            left = error.shards
    assert summary is not None
    _tell(summary, folder)
    return 0


async def _until_stopped(plan: Plan, folder: Store, left: list[int], work: Work) -> bool:
    """Whether the shards that were left have results; False after SIGINT or SIGTERM."""
    meter = Meter(plan.images, min(plan.images, (plan.shards - len(left)) * plan.spec.shard_size))
    with shown(meter):
        working = asyncio.ensure_future(work(plan, folder, left, meter))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
        try:
            await working
        except asyncio.CancelledError:
            return False
    return True


def _here(place: Place, answerer: Callable[[], EngineAnswerer | ServiceAnswerer]) -> Work:
    """In this process, one shard after the other."""

    async def work(plan: Plan, folder: Store, left: list[int], meter: Meter) -> None:
        answering = answerer()
        try:
            runner = ShardRunner(plan.spec, place.store, folder, answering, _nothing, meter.image, plan.parts)
            async for _ in runner.run(left):
                pass
        finally:
            await answering.close()

    return work


async def _nothing(shard: int) -> None:
    """Nobody needs to know that a shard begins."""


def _tell(summary: Summary, folder: Store) -> None:
    good = summary.images - summary.errors
    print(
        f"Job {summary.job}: {good} images answered, {summary.errors} with errors, {summary.objects} objects."
    )
    for phrase, count in summary.objects_by_phrase.items():
        print(f"  {phrase}: {count}")
    for note in summary.notes:
        print(f"Note: {note}")
    print(f"Results are in {folder.url}")
