"""An answer for /detect and /point: at once, as events while it is found, or once more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import structlog

from app.admission.client import Ticket
from app.admission.messages import Completed, Failure, ObjectEvent
from app.images.picture import Picture
from app.inference import cancel, problem_of
from app.problems import ProblemError
from app.spatial.answers import build_answer, build_object
from app.spatial.requests import SpatialRequest
from app.spatial.schemas import DetectAnswer, PointAnswer, Task

HEARTBEAT_S = 15.0
Answer = DetectAnswer | PointAnswer
Keep = Callable[[bytes], Awaitable[None]]
_T = TypeVar("_T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    """An admitted request, with what is needed to word its answer."""

    ticket: Ticket
    task: Task
    request: SpatialRequest
    picture: Picture
    intake_ms: float
    """What it took here to get the picture and to look at its header."""
    request_id: str

    def answer(self, completed: Completed) -> Answer:
        """The answer document."""
        return build_answer(
            self.task,
            completed,
            request_id=self.request_id,
            phrases=self.request.phrases,
            units=self.request.units,
            image_id=self.picture.id,
            intake_ms=self.intake_ms,
            own_id=self.request.id,
        )

    async def events(self, keep: Keep) -> AsyncGenerator[bytes, None]:
        """Server-sent events: `object` for each one found, then `done` or `error`; comments keep it alive.

        When nobody reads to the end, the work is cancelled.

        Args:
            keep: gets the answer, encoded, before anybody hears that it is there.
        """
        size = self.picture.width, self.picture.height
        phrases, units = self.request.phrases, self.request.units
        ended = False
        try:
            async for event in with_silences(self.ticket.events(), HEARTBEAT_S):
                if event is None:
                    yield b": keep-alive\n\n"
                elif isinstance(event, ObjectEvent):
                    yield _sse("object", build_object(self.task, event, phrases, units, size))
                elif isinstance(event, Completed):
                    ended = True
                    answer = self.answer(event)
                    await keep(msgspec.json.encode(answer))
                    yield _sse("done", answer)
                elif isinstance(event, Failure):
                    ended = True
                    yield _sse("error", problem_of(event, self.request.names).document(self.request_id))
        except Exception:  # the head of the answer is gone, so the stream itself says it
            log.exception("a stream failed", request_id=self.request_id)
            failed = ProblemError("internal", "Something went wrong here; the log has the details.")
            yield _sse("error", failed.document(self.request_id))
        finally:
            if not ended:
                await cancel(self.ticket)


def events_again(answer: Answer) -> Iterator[bytes]:
    """The events of an answer that is known already."""
    for found in answer.objects if isinstance(answer, DetectAnswer) else answer.points:
        yield _sse("object", found)
    yield _sse("done", answer)


async def with_silences(events: AsyncIterator[_T], every_s: float) -> AsyncGenerator[_T | None, None]:
    """The events, and None each time that `every_s` pass without one."""
    following: asyncio.Future[_T] | None = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait({following}, timeout=every_s)
            if not done:
                yield None
                continue
            try:
                event = following.result()
            except StopAsyncIteration:
                return
            following = None
            yield event
    finally:
        if following is not None:
            following.cancel()


def _sse(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))
