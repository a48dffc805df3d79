"""Images of one shard after the other: read ahead, answered, written as one object."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import structlog

from app.intake.sniff import check
from app.jobs.answering import Answerer
from app.jobs.errors import NoSuchKey
from app.jobs.patience import patiently_async
from app.jobs.planning import read_part
from app.jobs.records import Item, JobSpec, Result, ShardCount, Stage, Trouble, digest, to_lines
from app.jobs.seals import seal, seal_name
from app.jobs.stores import Store
from app.jobs.threads import Threads
from app.problems import ProblemError

READERS = 16
BYTES_AHEAD = 256 * 1024 * 1024
"""Of image files that were read and are not answered yet."""
UNKNOWN_BYTES = 1024 * 1024
"""Counted for an image of a manifest until it is read."""
BYTES_DECODED = 512 * 1024 * 1024
log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
UNFORESEEN = "the server could not answer about this image; its log says why"
_OF_THE_IMAGE = (ArithmeticError, LookupError, MemoryError, TypeError, ValueError)
"""What code raises that cannot handle some data. Other errors have to do with what is around it."""
_UNDECODABLE = {"invalid-image", "unsupported-media", "image-too-large"}


@dataclass(slots=True)
class Read:
    """An image whose bytes are there."""

    item: Item
    data: bytes


class ShardRunner:
    """Runs shards of a job in order; one at a time, so that a kill costs one shard at most.

    The results of a shard are written last, so whoever has results is done.

    Images of the next shard are read while the last of the current one are answered.

    on_begin: awaited before the images of a shard are answered.
    on_image: called after each image, with whether it has a result.
    parts: digests of the lists of images, as the plan has them.
    """

    def __init__(
        self,
        spec: JobSpec,
        source: Store,
        target: Store,
        answerer: Answerer,
        on_begin: Callable[[int], Awaitable[None]],
        on_image: Callable[[bool], None],
        parts: Sequence[str] = (),
    ) -> None:
        self._spec, self._source, self._target, self._parts = spec, source, target, parts
        self._answerer, self._on_begin, self._on_image = answerer, on_begin, on_image
        self._ahead, self._decoded = Room(BYTES_AHEAD), Room(BYTES_DECODED)
        self._gate = asyncio.Semaphore(READERS)
        self._threads = Threads(READERS)

    async def run(self, shards: Iterable[int]) -> AsyncIterator[tuple[int, ShardCount]]:
        """The number and the counts of each shard when it is written.  Raises JobError, StoreAway."""
        ahead: deque[tuple[int, str, list[asyncio.Task[Read | Trouble]]]] = deque()
        numbers = iter(shards)
        try:
            while True:
                while len(ahead) < 2 and (number := next(numbers, None)) is not None:
                    expected = self._parts[number] if self._parts else ""
                    items, part = await self._patiently(read_part, self._target, number, expected)
                    ahead.append((number, part, [asyncio.create_task(self._read(item)) for item in items]))
                if not ahead:
                    return
                number, part, reads = ahead[0]
                await self._on_begin(number)
                yield number, await self._answer(number, part, reads)
                ahead.popleft()
        finally:
            reading = [task for _, _, reads in ahead for task in reads]
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    async def _answer(self, number: int, part: str, reads: list[asyncio.Task[Read | Trouble]]) -> ShardCount:
        free = asyncio.Semaphore(self._answerer.at_once)
        tasks = []
        try:
            async with asyncio.TaskGroup() as group:
                for read in reads:
                    await free.acquire()
                    task = group.create_task(self._outcome(read))
                    task.add_done_callback(lambda _: free.release())
                    tasks.append(task)
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        outcomes = [task.result() for task in tasks]
        results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
        errors = [outcome for outcome in outcomes if isinstance(outcome, Trouble)]
        files = {errors_name(number): to_lines(errors), results_name(number): to_lines(results)}
        count = ShardCount(
            images=len(outcomes),
            errors=len(errors),
            objects=sum(len(result.objects or result.points or ()) for result in results),
            results_digest=digest(files[results_name(number)]),
            errors_digest=digest(files[errors_name(number)]),
        )
        await self._patiently(self._target.put, seal_name(number), seal(count, self._spec, part))
        for name, data in files.items():
            await self._patiently(self._target.put, name, data)
        return count

    async def _outcome(self, reading: asyncio.Task[Read | Trouble]) -> Result | Trouble:
        read = await reading
        if isinstance(read, Trouble):
            outcome: Result | Trouble = read
        else:
            outcome = await self._answered(read)
            self._ahead.leave(len(read.data))
            read.data = b""  # the task that read it lives until the shard is written
        self._on_image(isinstance(outcome, Result))
        return outcome

    async def _answered(self, read: Read) -> Result | Trouble:
        try:
            header = check(read.data)
            async with self._decoded.held(header.width * header.height * 3):
                phrases = read.item.phrases or self._spec.phrases
                return await self._answerer.answer(read.item.key, read.data, phrases, self._spec)
        except ProblemError as problem:
            stage: Stage = "decode" if problem.slug in _UNDECODABLE else "model"
            return Trouble(key=read.item.key, stage=stage, reason=problem.detail)
        except _OF_THE_IMAGE:
            log.exception("an image could not be answered", key=read.item.key)
            return Trouble(key=read.item.key, stage="model", reason=UNFORESEEN)

    async def _read(self, item: Item) -> Read | Trouble:
        """Bytes that stay counted until the image is answered.

        One gate for all, passed in the order of the plan: whoever is waited for has room before those
        that come later.
        """
        expected = item.size or UNKNOWN_BYTES
        async with self._gate:
            await self._ahead.enter(expected)
            try:
                data, etag = await self._patiently(self._source.get, item.key)
                if item.etag in ("", etag):
                    self._ahead.leave(expected - len(data))
                    return Read(item, data)
                reason = "the image changed after the job was planned"
            except NoSuchKey as error:
                reason = str(error)
        self._ahead.leave(expected)
        return Trouble(key=item.key, stage="read", reason=reason)

    async def _patiently(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What a call to a store gives, tried again while the store is away."""

        async def in_a_thread() -> T:
            return await self._threads.run(call, *arguments, **named)

        return await patiently_async(in_a_thread)


class Room:
    """Bytes that may be in use at once; first come, first served, and one alone always fits."""

    def __init__(self, size: int) -> None:
        self._size, self._used = size, 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, weight: int) -> None:
        if not self._waiting and (not self._used or self._used + weight <= self._size):
            self._used += weight
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((weight, turn))
        await turn

    def leave(self, weight: int) -> None:
        self._used -= weight
        while self._waiting:
            weight, turn = self._waiting[0]
            if self._used and self._used + weight > self._size:
                return
            self._waiting.popleft()
            if not turn.cancelled():
                self._used += weight
                turn.set_result(None)

    @asynccontextmanager
    async def held(self, weight: int) -> AsyncIterator[None]:
        await self.enter(weight)
        try:
            yield
        finally:
            self.leave(weight)


def results_name(shard: int) -> str:
    return f"results/{shard:05}.jsonl"


def errors_name(shard: int) -> str:
    return f"errors/{shard:05}.jsonl"
