"""One request inside a worker: fetch, decode, run, tell, finish.

It ends at its deadline, whatever its image or the engine still do.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import structlog

from app.admission import spans
from app.admission.connections import REDIS_ERRORS
from app.admission.decoding import Decoding
from app.admission.messages import Event, Failure, Terminal
from app.admission.translate import Transcript, failure
from app.admission.worker_queue import Delivery, WorkerQueue
from app.problems import ProblemError
from engine.errors import EngineError
from engine.events import Event as EngineEvent
from engine.events import Failed, Finished, Found, PhraseEnded
from engine.request import Request
from engine.stats import Stats
from grammars.types import Place, Task

log = structlog.get_logger(__name__)
T = TypeVar("T")

PATIENCE_S = 5.0
"""Redis may be away this long beyond the deadline before an answer is given up."""


ENGINE_GRACE_S = 0.15
"""The engine ends a request at its deadline itself, unless it is still preparing the image."""
LOST = "The queue lost the image; send the request again."
LATE = "The request was not answered in time."


class EngineDied(Exception):
    """The engine takes no more requests: the worker must end, so that others get what it holds."""


class Handle(Protocol):
    """What the engine gives back for a request."""

    def cancel(self) -> object:
        """The engine still sends a last event."""


class EngineLike(Protocol):
    """The part of engine.engine.Engine that a worker uses."""

    def stats_soon(self) -> Future[Stats]:
        """Open for as long as the engine's thread hangs."""

    def pages_for(self, max_objects: int) -> int:
        """About how many pages of KV one phrase takes at most."""

    @property
    def model_info(self) -> Any:
        """name, family, revision and tasks."""

    def submit(self, request: Request, on_event: Callable[[EngineEvent], None]) -> Handle:
        """Never blocks; `on_event` is called on a thread of the engine."""

    def close(self) -> None:
        """Ends its threads."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What every execution of a worker shares."""

    queue: WorkerQueue
    engine: EngineLike
    decoding: Decoding


class Execution:
    """Owns one delivery until the engine is done with it.

    Objects are told as they come if somebody follows them; those that come with the end are in the answer.
    """

    def __init__(self, delivery: Delivery, tools: Tools) -> None:
        self.delivery = delivery
        self._tools = tools
        self._handle: Handle | None = None
        self._intake: asyncio.Timeout | None = None
        """Open from the first to the last moment of fetching and decoding."""
        self._stopped = False
        self._heard = False
        """The engine has found something or has ended it."""
        self._left = False
        """The engine may still use the image."""

    @property
    def held(self) -> int:
        """What this takes of the worker, in rows."""
        return self.delivery.share if self._handle is None else self.delivery.rows

    def cancel(self) -> None:
        """Stops the work; nothing more is told. In the engine it ends when the engine says so."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
        elif self._intake is not None:
            with contextlib.suppress(RuntimeError):  # it is over already
                self._intake.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Ends after the final answer is in Redis, or at once when somebody else's is."""
        with spans.answering(self.delivery) as span:
            answer = await self._terminal()
            if not self._left:
                self._tools.decoding.done_with(self.delivery)
            if answer is not None:
                spans.concluded(span, answer)
                await self._patiently(lambda: self._tools.queue.finish(self.delivery, answer))

    async def _terminal(self) -> Terminal | None:
        """As `_answer`, with every failure put into words. Raises EngineDied."""
        try:
            return await self._answer()
        except EngineError as error:
            if error.kind == "closed":
                raise EngineDied(str(error)) from error
            return failure(error)
        except ProblemError as problem:
            return Failure(problem=problem.slug, detail=problem.detail, field=problem.field)
        except Exception as error:
            log.exception("request failed", request=self.delivery.id)
            return Failure(problem="internal", detail=f"The worker failed: {type(error).__name__}.")

    async def _answer(self) -> Terminal | None:
        """None: the delivery is not ours any more, or was cancelled."""
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        with spans.part("intake"):
            decoded = await self._decoded()
        intake_ms = (time.monotonic() - began) * 1000
        if decoded is None or self._stopped:
            return None
        transcript = Transcript(self.delivery)
        info = self._tools.engine.model_info
        notes = [*decoded.notes, *info.notes_on(self.delivery.task)]
        size = decoded.width, decoded.height
        with spans.part("engine"):
            arrived = self._submit(decoded.image, loop)
            del decoded  # the engine drops the pixels as soon as it can
            finished = await self._in_time(arrived, transcript)
        if finished is None:
            return None
        return transcript.completed(info.name, *size, notes, intake_ms, finished.metrics)

    async def _decoded(self) -> Any:
        """What `decode` returns; None when the request was cancelled. Raises ProblemError."""
        queue, delivery = self._tools.queue, self.delivery
        left_s = max(0.0, delivery.deadline - time.monotonic())
        try:
            async with asyncio.timeout(left_s) as self._intake:
                decoded = None
                if not self._stopped:
                    fetch = lambda: self._patiently(lambda: queue.image(delivery))  # noqa: E731
                    decoded = await self._tools.decoding.decode(delivery, fetch)
        except TimeoutError:
            if not self._stopped:
                raise ProblemError("deadline-exceeded", LATE) from None
            return None
        if decoded is None and not self._stopped:
            raise ProblemError("unavailable", LOST)
        return decoded

    async def _in_time(self, arrived: asyncio.Queue[EngineEvent], transcript: Transcript) -> Finished | None:
        """As `_follow`, and ends when the engine has not said a word by the deadline."""
        left_s = self.delivery.deadline + ENGINE_GRACE_S - time.monotonic()
        timer = asyncio.get_running_loop().call_later(left_s, self._leave_engine, arrived)
        try:
            return await self._follow(arrived, transcript)
        finally:
            timer.cancel()

    def _leave_engine(self, arrived: asyncio.Queue[EngineEvent]) -> None:
        if self._heard or not arrived.empty() or self._handle is None:
            return
        self._left = True
        self._handle.cancel()
        arrived.put_nowait(Failed(EngineError("deadline-exceeded", LATE)))

    async def _follow(self, arrived: asyncio.Queue[EngineEvent], transcript: Transcript) -> Finished | None:
        """Until the engine's last event; None when nobody waits for it. Raises EngineError."""
        seq = 0
        while True:
            batch, last = await _next_batch(arrived)
            self._heard = True
            told = [_message(event, transcript) for event in batch]
            if told and last is None and self.delivery.events and not self._stopped:
                if await self._patiently(lambda: self._tools.queue.emit(self.delivery, seq, told)):  # noqa: B023
                    seq += len(told)
                else:
                    self.cancel()
            if isinstance(last, Finished) and not self._stopped:
                return last
            if isinstance(last, Failed) and (not self._stopped or last.error.kind == "closed"):
                raise last.error
            if last is not None:
                return None

    def _submit(self, image: Any, loop: asyncio.AbstractEventLoop) -> asyncio.Queue[EngineEvent]:
        params = self.delivery.params
        request = Request(
            task=cast(Task, self.delivery.task),
            image=image,
            phrases=tuple(params.phrases),
            max_objects=params.max_objects,
            region=params.region,
            min_score=params.min_score,
            dedupe=params.dedupe,
            adapter=params.adapter,
            temperature=params.temperature,
            top_p=params.top_p,
            seed=_seed(self.delivery.id),
            spatial_refs=tuple(cast(Place, tuple(place)) for place in params.spatial_refs),
            priority=self.delivery.priority,
            deadline=self.delivery.deadline,
        )
        arrived: asyncio.Queue[EngineEvent] = asyncio.Queue()
        self._handle = self._tools.engine.submit(request, lambda event: _post(loop, arrived, event))
        return arrived

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """Repeats `call` while Redis is away. None when it stayed away until beyond the deadline."""
        pause = 0.05
        while True:
            try:
                return await call()
            except REDIS_ERRORS as error:
                if time.monotonic() > self.delivery.deadline + PATIENCE_S:
                    log.error("gave up a request", request=self.delivery.id, error=str(error))
                    return None
                await asyncio.sleep(pause)
                pause = min(2 * pause, 1.0)


def _seed(name: str) -> int:
    """One request draws the same tokens on every worker, so a stream goes on after a redelivery."""
    return zlib.crc32(name.encode())


def _post(loop: asyncio.AbstractEventLoop, arrived: asyncio.Queue[EngineEvent], event: EngineEvent) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: the worker is on its way out
        loop.call_soon_threadsafe(arrived.put_nowait, event)


async def _next_batch(
    arrived: asyncio.Queue[EngineEvent],
) -> tuple[list[Found | PhraseEnded], Finished | Failed | None]:
    """Waits for an event and takes all that are there, the last one apart."""
    batch: list[Found | PhraseEnded] = []
    event = await arrived.get()
    while True:
        if isinstance(event, Finished | Failed):
            return batch, event
        batch.append(event)
        if arrived.empty():
            return batch, None
        event = arrived.get_nowait()


def _message(event: Found | PhraseEnded, transcript: Transcript) -> Event:
    return transcript.found(event) if isinstance(event, Found) else transcript.phrase_ended(event)
