"""A job's rows as what its caller is told."""

from __future__ import annotations

import datetime

import msgspec

from app.db.models import Job
from app.jobs.ledger import Ledger, spec_of
from app.jobs.schemas import JobInfo, JobProgress, JobRequest, State


async def info_of(ledger: Ledger, job: Job) -> JobInfo:
    """The job and how far it is, shards under way included."""
    counts = await ledger.counts(job.id)
    running = job.state == "running"
    done = counts.images + (job.open_images if running else 0)
    rate = _rate(job, done) if running else None
    left = None if rate is None or job.images is None else max(0, job.images - done) / rate
    spec = spec_of(job)
    state: State = job.state  # type: ignore[assignment]
    return JobInfo(
        id=job.id,
        state=state,
        reason=job.reason,
        request=request_of(job),
        model=spec.model if spec else None,
        revision=spec.revision if spec else None,
        progress=JobProgress(
            images=job.images,
            done=done,
            errors=counts.errors + (job.open_errors if running else 0),
            objects=counts.objects,
            images_per_s=rate,
            seconds_left=left,
        ),
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
    )


def request_of(job: Job) -> JobRequest:
    """What was asked."""
    return msgspec.json.decode(job.request, type=JobRequest)


def _rate(job: Job, done: int) -> float | None:
    """Images per second since the latest start; None before the first."""
    if job.started_at is None or done <= job.started_images:
        return None
    spent = (datetime.datetime.now(datetime.UTC) - job.started_at).total_seconds()
    return round((done - job.started_images) / max(spent, 1e-3), 3)
