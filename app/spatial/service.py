"""The way of a request through the queue: admit, wait or stream, and cancel when nobody waits any more."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import msgspec
import structlog

from app.access.caller import Caller
from app.admission.client import AdmissionClient, Ticket
from app.admission.errors import AdmissionError, UnknownModel
from app.admission.messages import Completed, Failure, ObjectEvent
from app.problems import ProblemError
from app.settings import Settings
from app.spatial.answers import build_answer, build_object
from app.spatial.bodies import SpatialRequest
from app.spatial.schemas import DetectAnswer, PointAnswer, Task

HEARTBEAT_S = 15.0
MODELS_AGE_S = 1.0
"""Requests are sent to models as they were so long ago."""
_T = TypeVar("_T")


class ClientGone(Exception):
    """The caller hung up; its work is cancelled and nobody reads an answer."""


@dataclass(frozen=True, slots=True)
class Running:
    """An admitted request, with what is needed to word its answer."""

    ticket: Ticket
    task: Task
    request: SpatialRequest
    request_id: str

    def answer(self, completed: Completed) -> DetectAnswer | PointAnswer:
        """The answer document."""
        return build_answer(
            self.task,
            completed,
            request_id=self.request_id,
            phrases=self.request.params.phrases,
            units=self.request.units,
        )


class SpatialService:
    """One per API process; holds nothing of any single request."""

    def __init__(self, client: AdmissionClient, settings: Settings) -> None:
        self._client = client
        self._default = settings.default_model
        """The name last found for callers who name no model. It outlives a worker that is starting again."""

    async def submit(self, task: Task, request: SpatialRequest, request_id: str, caller: Caller) -> Running:
        """Put a request in the queue, as work of the caller's tenant.

        Raises:
            ProblemError: unknown-model, unsupported-task, queue-full, tenant-queue-full or unavailable.
        """
        try:
            ticket = await self._client.submit(
                # The caller may choose `request_id`, and choose it twice: the queue needs one of our own.
                request_id=uuid.uuid4().hex,
                model=await self._model(task, request.model),
                task=task,
                params=request.params,
                image=request.image,
                timeout_s=request.timeout_s,
                events=request.stream,
                tenant=caller.tenant,
                key_id=caller.key_id or "",
            )
        except UnknownModel as error:
            if request.model is None:  # the caller named none: nothing is wrong with the request
                raise ProblemError("unavailable", "No worker is running.", retry_after_s=5) from None
            raise ProblemError(error.problem, error.detail, field="model") from None
        except AdmissionError as error:
            raise ProblemError(error.problem, error.detail, retry_after_s=error.retry_after_s) from None
        structlog.contextvars.bind_contextvars(ticket=ticket.id)
        return Running(ticket, task, request, request_id)

    async def _model(self, task: Task, asked: str | None) -> str:
        """The name of the model to use: the one asked for, else the one this server was started with."""
        models = {model.name: model for model in await self._client.models(MODELS_AGE_S)}
        if models and self._default not in models:
            self._default = min(models)
        name = self._default if asked is None else asked
        if name in models and task not in models[name].tasks:
            raise ProblemError("unsupported-task", f"The model {name} does not {task}.", field="model")
        return name

    async def wait(
        self, running: Running, disconnected: Callable[[], Awaitable[None]]
    ) -> DetectAnswer | PointAnswer:
        """The whole answer. `disconnected` returns when the caller hangs up.

        Raises:
            ProblemError: the request failed. ClientGone: its caller hung up.
        """
        result = asyncio.ensure_future(running.ticket.result())
        gone = asyncio.ensure_future(disconnected())
        try:
            await asyncio.wait({result, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise ClientGone
            outcome = result.result()
        finally:
            gone.cancel()
            if not result.done():
                result.cancel()
                await _cancel(running.ticket)
        if isinstance(outcome, Failure):
            raise problem_of(outcome, running.request.names)
        return running.answer(outcome)

    async def stream(self, running: Running) -> AsyncGenerator[bytes, None]:
        """Server-sent events: `object` for each one found, then `done` or `error`; comments keep it alive."""
        size = (running.request.header.width, running.request.header.height)
        phrases, units = running.request.params.phrases, running.request.units
        ended = False
        try:
            async for event in with_silences(running.ticket.events(), HEARTBEAT_S):
                if event is None:
                    yield b": keep-alive\n\n"
                elif isinstance(event, ObjectEvent):
                    yield _sse("object", build_object(running.task, event, phrases, units, size))
                elif isinstance(event, Completed):
                    ended = True
                    yield _sse("done", running.answer(event))
                elif isinstance(event, Failure):
                    ended = True
                    yield _sse("error", problem_of(event, running.request.names).document(running.request_id))
        finally:
            if not ended:
                await _cancel(running.ticket)


def problem_of(failure: Failure, names: Mapping[str, str]) -> ProblemError:
    """A failure of the worker or the queue, as its caller is told; `names` are those of its fields."""
    if failure.problem == "cancelled":
        return ProblemError("unavailable", "The request was cancelled by the server; send it again.")
    field = names.get(failure.field, failure.field) if failure.field else None
    return ProblemError(failure.problem, failure.detail, field=field, retry_after_s=failure.retry_after_s)


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


async def _cancel(ticket: Ticket) -> None:
    """Cancel a request although the task that asks for it is itself being cancelled."""
    with anyio.CancelScope(shield=True):
        await ticket.cancel()


def _sse(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))
