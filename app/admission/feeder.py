"""Takes requests from Redis as the engine has room, and answers them.

Four loops share one asyncio loop: `_feed` takes requests, `_beat` keeps them ours, `_listen` hears of
cancellations and new work, `_guard` notices a hanging engine. The engine has a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any

import structlog
from redis.exceptions import ReadOnlyError

from app.admission.connections import BLOCK_S, REDIS_ERRORS, consumer, producer
from app.admission.decoding import Decoding
from app.admission.execution import EngineDied, EngineLike, Execution, Tools
from app.admission.faults import FaultLog
from app.admission.messages import EngineCounts, WorkerInfo
from app.admission.registry import BEAT_S
from app.admission.room import Room
from app.admission.unreadable import FAULTS, READINGS
from app.admission.watchdog import Watchdog
from app.admission.worker_queue import Delivery, WorkerQueue, handed_over
from app.settings import Settings
from app.supervised import RESTARTS, supervised

log = structlog.get_logger(__name__)

POLL_S = 0.5
"""A missed wake-up costs at most this."""
LINGER_S = 1.0
"""A caller who asks again and again is never quite gone: for so long batch requests keep to their share."""


class Feeder:
    """Owns the requests in flight.

    Args:
        settings: `redis_url` is set.
        engine: already loaded; the worker does not close it.
        decode: original bytes -> image, width, height and notes; raises ProblemError.
    """

    def __init__(self, settings: Settings, engine: EngineLike, decode: Callable[[bytes], Any]) -> None:
        assert settings.redis_url is not None
        self.id = settings.worker_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._settings = settings
        self._info = engine.model_info
        self._room = Room(settings.max_batch, settings.batch_share, settings.flood_share, engine.pages_for)
        self._watchdog = Watchdog(engine, settings.stall_s)
        self._began = time.monotonic()
        self._redis = producer(settings.redis_url)
        self._listening = consumer(settings.redis_url)
        self._queue = WorkerQueue(self._redis, settings.namespace, self.id, self._info.name)
        self._stirred = asyncio.Event()
        memory = settings.decode_mb * 1_000_000
        self._decoding = Decoding(decode, memory, self._room.costly, self._stirred.set)
        self._tools = Tools(self._queue, engine, self._decoding)
        self._running: dict[tuple[str, int], tuple[Execution, asyncio.Task[None]]] = {}
        self._alone = False
        """The one request in flight was lost by another worker; nothing may run beside it."""
        self._lost = False
        """A dead worker left requests, and it is for us to run them, each alone, before anything new."""
        self._faults = FaultLog()
        self._more = True
        """Requests may be waiting in Redis."""
        self._idle = False
        """Redis hands us the next request, as far as we know."""
        self._interactive_at = float("-inf")
        """When the last interactive request ended."""
        self._broken: BaseException | None = None
        """Why this worker cannot go on; what it holds is left to others."""

    @property
    def load(self) -> int:
        """Phrases in flight."""
        return sum(delivery.rows for delivery in self._deliveries())

    def _deliveries(self) -> list[Delivery]:
        return [execution.delivery for execution, _ in self._running.values()]

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop`, then finishes what is in flight, at most `drain_s`, and gives back the rest.

        Raises EngineDied.
        """
        try:
            async with asyncio.TaskGroup() as group:
                await self._look()
                await self._beat_once()
                loops = [
                    group.create_task(supervised(f"worker-{loop.__name__.strip('_')}", loop))
                    for loop in (self._beat, self._listen, self._guard)
                ]
                stirrer = group.create_task(self._stir_on(stop))
                await supervised("worker-feed", partial(self._feed, stop))
                await self._drain()
                for task in (*loops, stirrer):
                    task.cancel()
            if self._broken is not None:
                raise self._broken
            await self._leave()
        finally:
            for _, task in self._running.values():
                task.cancel()
            self._decoding.close()
            await self._listening.aclose()
            await self._redis.aclose()

    async def _feed(self, stop: asyncio.Event) -> None:
        pause = 0.05
        while not stop.is_set() and self._broken is None:
            self._stirred.clear()
            try:
                progress = await self._take()
                pause = 0.05
            except REDIS_ERRORS:
                self._more = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, 1.0)
                continue
            if not progress and not await _wait(self._stirred, POLL_S):
                self._more = True

    async def _take(self) -> bool:
        """Starts what may be started. False: nothing can be done until something changes."""
        if self._lost:
            return await self._take_lost()
        pages = self._watchdog.stats.pages_total if self._watchdog.stats else 0
        lately = time.monotonic() < self._interactive_at + LINGER_S
        rows, batch_rows = self._room.left(self._deliveries(), pages, lately)
        if self._alone or not (rows or batch_rows):
            return False
        if self._idle and not self._more:
            return False
        self._more = False  # before the command: what wakes us while it runs may be too late for it
        held = Counter[str]()
        for execution, _ in self._running.values():
            held[execution.delivery.tenant] += execution.held
        flood, costly = (self._room.capacity, self._room.flood_rows), self._decoding.costly_room
        deliveries, more = await self._queue.take(rows, batch_rows, *flood, held, costly)
        for delivery in deliveries:
            self._start(delivery)
        self._more = self._more or more
        self._idle = not (deliveries or more)
        return bool(deliveries)

    async def _take_lost(self) -> bool:
        if self._running:
            return False
        delivery = await self._queue.reclaim()
        if delivery is None:
            self._lost = False
            return True
        log.info("redelivered", request=delivery.id, attempt=delivery.attempt)
        self._alone = True
        self._start(delivery)
        return False

    def _start(self, delivery: Delivery) -> None:
        execution = Execution(delivery, self._tools)
        task = asyncio.create_task(execution.run(), name=f"request-{delivery.id}")
        self._running[delivery.key] = execution, task
        task.add_done_callback(lambda task: self._ended(delivery, task))

    def _ended(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._broken = task.exception()
        self._running.pop(delivery.key, None)
        if delivery.priority == "interactive":
            self._interactive_at = time.monotonic()
        self._alone = self._alone and bool(self._running)
        self._stirred.set()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._beat_once()

    async def _beat_once(self) -> None:
        executions = {execution.delivery.id: execution for execution, _ in self._running.values()}
        try:
            self._lost, gone = await self._queue.beat(self._describe(), list(self._running))
        except REDIS_ERRORS as error:
            self._faults.failed(error)
            if isinstance(error, ReadOnlyError):
                self._listening.renew()
            return
        self._faults.worked()
        self._idle = self._idle and not self._lost
        for name in gone:
            executions[name].cancel()
        if self._lost:
            self._stirred.set()

    async def _guard(self) -> None:
        while self._broken is None:
            await asyncio.sleep(BEAT_S)
            await self._look()

    async def _look(self) -> None:
        """An engine that hangs, or an image whose decoding does, ends this worker."""
        try:
            await self._watchdog.look()
            now = time.monotonic()
            for delivery in self._deliveries():
                if delivery.deadline < now - self._settings.stall_s:
                    raise EngineDied(f"request {delivery.id} goes on and on after its deadline")
            if self._decoding.late(now) > self._settings.stall_s:
                raise EngineDied("the decoding of an image goes on and on after its deadline")
        except EngineDied as error:
            self._broken = self._broken or error
            self._stirred.set()

    def _describe(self) -> WorkerInfo:
        stats = self._watchdog.stats
        return WorkerInfo(
            id=self.id,
            version=version("pointbox-server"),
            name=self._info.name,
            family=self._info.family,
            revision=self._info.revision,
            tasks=list(self._info.tasks),
            adapters=list(self._info.adapters),
            capacity=self._room.capacity,
            load=self.load,
            runs_jobs=self._settings.runs_jobs,
            uptime_s=time.monotonic() - self._began,
            engine=EngineCounts(**asdict(stats)) if stats else None,
            unreadable=dict(READINGS),
            restarts=dict(RESTARTS),
        )

    async def _listen(self) -> None:
        inbox, wake = self._queue.inbox, self._queue.wake
        last: dict[Any, Any] = {inbox: "0-0", wake: "0-0"}
        while True:
            try:
                answer: Any = await self._listening.xread(last, block=round(BLOCK_S * 1000))
            except REDIS_ERRORS:
                await asyncio.sleep(POLL_S)
                self._more = True
                continue
            for stream, entries in answer or []:
                last[stream.decode()] = entries[-1][0].decode()
                if stream.decode() == wake:
                    self._more = True
                    continue
                for _, fields in entries:
                    try:
                        self._hear(fields)
                    except FAULTS as error:
                        with contextlib.suppress(*REDIS_ERRORS):  # then its deadline ends it
                            await self._queue.end_unreadable(fields, error)
            self._stirred.set()
            await asyncio.sleep(0)  # what was started asks for its image before we listen again

    def _hear(self, fields: dict[bytes, bytes]) -> None:
        delivery = handed_over(fields)
        if delivery is None:
            self._cancel(fields[b"id"].decode(), int(fields[b"attempt"]))
        else:
            self._idle = False
            self._start(delivery)

    def _cancel(self, name: str, attempt: int) -> None:
        running = self._running.get((name, attempt))
        if running is not None:
            running[0].cancel()

    async def _stir_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stirred.set()

    async def _drain(self) -> None:
        until = time.monotonic() + self._settings.drain_s
        with contextlib.suppress(*REDIS_ERRORS):  # then it is given back in the end, if Redis is there
            await self._queue.refuse()
        if self._running:
            log.info("draining", requests=len(self._running))
        while self._running and self._broken is None and (left := until - time.monotonic()) > 0:
            await asyncio.wait([task for _, task in self._running.values()], timeout=left)

    async def _leave(self) -> None:
        try:
            await self._queue.leave()
        except REDIS_ERRORS as error:
            log.warning("left without goodbye", error=str(error))


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    """Whether it came."""
    try:
        async with asyncio.timeout(seconds):  # wait_for of Python 3.11 can swallow a cancellation
            return await event.wait()
    except TimeoutError:
        return False
