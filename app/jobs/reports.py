"""A job's rows as what its caller is told."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from app.db.models import Job
from app.jobs.ledger import Ledger, spec_of
from app.jobs.records import ShardCount
from app.jobs.schemas import JobInfo, JobProgress, JobRequest, State, WebhookInfo


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines of a job's results or errors: a window of one shard, or of all."""

    shard: int | None = None
    offset: int = 0
    limit: int | None = None

    def parts(
        self, done: dict[int, ShardCount], what: Literal["results", "errors"]
    ) -> Iterator[tuple[int, slice]]:
        """Shards that have some of them, and which of their lines."""
        first, left = self.offset, sys.maxsize if self.limit is None else self.limit
        for shard, count in done.items():
            lines = count.errors if what == "errors" else count.images - count.errors
            if self.shard in (None, shard) and left and first < lines:
                taken = min(left, lines - first)
                yield shard, slice(first, first + taken)
                first, left = 0, left - taken
            elif self.shard in (None, shard):
                first -= min(first, lines)


async def info_of(ledger: Ledger, job: Job) -> JobInfo:
    """The job and how far it is, shards under way included."""
    job, counts = await ledger.standing(job.id)
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
        notes=job.notes.splitlines(),
        webhook=_webhook_of(job),
    )


def request_of(job: Job) -> JobRequest:
    """What was asked."""
    return msgspec.json.decode(job.request, type=JobRequest)


def _webhook_of(job: Job) -> WebhookInfo | None:
    if job.webhook_state is None:
        return None
    state: Any = job.webhook_state
    return WebhookInfo(
        state=state, attempts=job.webhook_attempts, status=job.webhook_status, error=job.webhook_error
    )


def _rate(job: Job, done: int) -> float | None:
    """Images per second since the latest start; None before the first."""
    if job.started_at is None or done <= job.started_images:
        return None
    spent = (datetime.datetime.now(datetime.UTC) - job.started_at).total_seconds()
    return round((done - job.started_images) / max(spent, 1e-3), 3)
