"""`client.jobs`, for both clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal, Unpack

from pointbox.arguments import Phrases
from pointbox.config import Config
from pointbox.jobs import (
    Job,
    JobFailure,
    JobOptions,
    JobResult,
    L,
    Lines,
    change,
    lines,
    listed,
    show,
    submit,
)
from pointbox.sending import Sender
from pointbox.sending_async import AsyncSender

PAGE = 100
POLL_S = 1.0


class Jobs:
    """The same question about every image of a bucket, answered by the service on its own."""

    def __init__(self, config: Config, sender: Sender) -> None:
        self._config = config
        self._sender = sender

    def submit(self, source: str, out: str, phrases: Phrases = (), **options: Unpack[JobOptions]) -> Job:
        """Leave a job with the service.

        Args:
            source: a store of the service, as `store` or `store/prefix`.
            out: the same, for the results; they get a folder that is named after the job.
            phrases: one, or up to 32; asked about every image for which a manifest names none.
            options: see `JobOptions`.

        Raises:
            PointboxError: it is not accepted.
            TypeError: an option is not known.
        """
        return self._sender.send(submit(self._config, source, out, phrases, options))

    def list(self) -> Iterator[Job]:
        """The tenant's jobs, newest first."""
        before: str | None = None
        while True:
            page = self._sender.send(listed(self._config, before, PAGE))
            yield from page.jobs
            if (before := page.next) is None:
                return

    def get(self, job: Job | str) -> Job:
        """A job as it is now."""
        return self._sender.send(show(self._config, job))

    def cancel(self, job: Job | str) -> Job:
        """Stop it; what is done stays."""
        return self._sender.send(change(self._config, job, "cancel"))

    def resume(self, job: Job | str) -> Job:
        """Go on with one that failed or was cancelled."""
        return self._sender.send(change(self._config, job, "resume"))

    def results(self, job: Job | str, *, shard: int | None = None) -> Iterator[JobResult]:
        """One for each image that is answered, of the shards that are done; read as they come."""
        return self._lines(JobResult, job, "results", shard)

    def errors(self, job: Job | str, *, shard: int | None = None) -> Iterator[JobFailure]:
        """One for each image without a result, of the shards that are done."""
        return self._lines(JobFailure, job, "errors", shard)

    def wait(
        self,
        job: Job | str,
        *,
        timeout: float | None = None,
        progress: Callable[[Job], object] | None = None,
        poll_s: float = POLL_S,
    ) -> Job:
        """The job when it has ended; `state` says how.

        Args:
            timeout: seconds; None waits as long as it takes.
            progress: called with the job each time that it was looked at.
            poll_s: seconds between two looks.

        Raises:
            TimeoutError: it has not ended; the job itself goes on.
        """
        until = _until(timeout)
        while True:
            now = self.get(job)
            if progress is not None:
                progress(now)
            if now.ended:
                return now
            time.sleep(_pause(now, until, poll_s))

    def _lines(
        self, kind: type[L], job: Job | str, what: Literal["results", "errors"], shard: int | None
    ) -> Iterator[L]:
        call = lines(job, what, shard)
        reading = Lines(kind, call.id)
        pieces = self._sender.stream(call)
        try:
            while piece := pieces.next():
                yield from reading.feed(piece)
            yield from reading.feed(b"")
        finally:
            pieces.close()


class AsyncJobs:
    """`Jobs` for asyncio."""

    def __init__(self, config: Config, sender: AsyncSender) -> None:
        self._config = config
        self._sender = sender

    async def submit(
        self, source: str, out: str, phrases: Phrases = (), **options: Unpack[JobOptions]
    ) -> Job:
        """As `Jobs.submit`."""
        return await self._sender.send(submit(self._config, source, out, phrases, options))

    async def list(self) -> AsyncIterator[Job]:
        """The tenant's jobs, newest first."""
        before: str | None = None
        while True:
            page = await self._sender.send(listed(self._config, before, PAGE))
            for job in page.jobs:
                yield job
            if (before := page.next) is None:
                return

    async def get(self, job: Job | str) -> Job:
        """A job as it is now."""
        return await self._sender.send(show(self._config, job))

    async def cancel(self, job: Job | str) -> Job:
        """Stop it; what is done stays."""
        return await self._sender.send(change(self._config, job, "cancel"))

    async def resume(self, job: Job | str) -> Job:
        """Go on with one that failed or was cancelled."""
        return await self._sender.send(change(self._config, job, "resume"))

    def results(self, job: Job | str, *, shard: int | None = None) -> AsyncIterator[JobResult]:
        """As `Jobs.results`."""
        return self._lines(JobResult, job, "results", shard)

    def errors(self, job: Job | str, *, shard: int | None = None) -> AsyncIterator[JobFailure]:
        """As `Jobs.errors`."""
        return self._lines(JobFailure, job, "errors", shard)

    async def wait(
        self,
        job: Job | str,
        *,
        timeout: float | None = None,
        progress: Callable[[Job], object] | None = None,
        poll_s: float = POLL_S,
    ) -> Job:
        """As `Jobs.wait`."""
        until = _until(timeout)
        while True:
            now = await self.get(job)
            if progress is not None:
                progress(now)
            if now.ended:
                return now
            await asyncio.sleep(_pause(now, until, poll_s))

    async def _lines(
        self, kind: type[L], job: Job | str, what: Literal["results", "errors"], shard: int | None
    ) -> AsyncIterator[L]:
        call = lines(job, what, shard)
        reading = Lines(kind, call.id)
        pieces = await self._sender.stream(call)
        try:
            while piece := await pieces.next():
                for record in reading.feed(piece):
                    yield record
            for record in reading.feed(b""):
                yield record
        finally:
            await pieces.close()


def _until(timeout: float | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout


def _pause(job: Job, until: float, poll_s: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"The job {job.id} has not ended yet: it is {job.state}.")
    return min(poll_s, left)
