"""The routes /detect and /point."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Any, ClassVar

import msgspec
from litestar import Controller, MediaType, Request, Response, post
from litestar.datastructures import State
from litestar.response import Stream

from app.access.caller import Caller, caller_of
from app.access.gate import NEEDS
from app.correlation import request_id_of
from app.deadlines import AnsweredWithin
from app.idempotency.replays import REPLAYED, Replays, key_of
from app.images.service import ImageService
from app.inference import Inference, disconnection
from app.openapi import problem_responses
from app.spatial.documents import PROBLEMS, SpatialOperation
from app.spatial.requests import SpatialRequest, read_request
from app.spatial.schemas import DetectAnswer, PointAnswer, Task
from app.spatial.service import Keep, Running, events_again

_EVENT_STREAM = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class SpatialController(Controller):
    """Both routes take the same request; the body is read here because it comes in three kinds."""

    tags = ("spatial",)
    opt: ClassVar = {NEEDS: "infer"}

    @post(
        "/detect",
        operation_id="detect",
        status_code=200,
        summary="Boxes around everything that a phrase names",
        operation_class=SpatialOperation,
        responses=problem_responses(*PROBLEMS),
    )
    async def detect(self, request: Request[Any, Any, Any], state: State) -> Response[DetectAnswer]:
        """Send an image and a phrase; get boxes, ordered by phrase."""
        return await _answer("detect", request, state)

    @post(
        "/point",
        operation_id="point",
        status_code=200,
        summary="A point on everything that a phrase names",
        operation_class=SpatialOperation,
        responses=problem_responses(*PROBLEMS),
    )
    async def point(self, request: Request[Any, Any, Any], state: State) -> Response[PointAnswer]:
        """Send an image and a phrase; get points, ordered by phrase."""
        return await _answer("point", request, state)


async def _answer(task: Task, request: Request[Any, Any, Any], state: State) -> Response[Any]:
    key = key_of(request)
    asked = await read_request(request, state.settings)
    caller = caller_of(request)
    async with AsyncExitStack() as stack:
        keep = _forget
        async with AnsweredWithin(asked.remaining_s):  # from here on the ticket sees to it
            if key is not None:
                replays: Replays = state.replays
                print_of = await asyncio.to_thread(asked.fingerprint)
                claim = await replays.claim(caller.tenant, task, key, print_of, asked.remaining_s)
                if isinstance(claim, bytes):
                    return _again(task, claim, asked.stream)
                await stack.enter_async_context(claim)
                keep = claim.keep
            running = await _submit(task, asked, caller, request_id_of(request), state)
        if asked.stream:
            return _event_stream(_events(running, keep, stack.pop_all()))
        inference: Inference = state.inference
        completed = await inference.result(running.ticket, disconnection(request), asked.names)
        answer = msgspec.json.encode(running.answer(completed))
        await keep(answer)
    return Response(answer, media_type=MediaType.JSON, status_code=200)


async def _submit(
    task: Task, asked: SpatialRequest, caller: Caller, request_id: str, state: State
) -> Running:
    images: ImageService = state.images
    inference: Inference = state.inference
    began = time.perf_counter()
    picture = await images.picture(asked.source, caller.tenant, asked.remaining_s)
    intake_ms = 1e3 * (time.perf_counter() - began)
    ticket = await inference.submit(
        task,
        asked.params(picture),
        picture,
        caller,
        model=asked.model,
        timeout_s=asked.remaining_s,
        priority=asked.priority,
        events=asked.stream,
    )
    return Running(ticket, task, asked, picture, intake_ms, request_id)


async def _events(running: Running, keep: Keep, stack: AsyncExitStack) -> AsyncGenerator[bytes, None]:
    async with stack, aclosing(running.events(keep)) as events:
        async for event in events:
            yield event


def _again(task: Task, answer: bytes, stream: bool) -> Response[Any]:
    """An answer that was given before."""
    if not stream:
        return Response(answer, media_type=MediaType.JSON, status_code=200, headers=REPLAYED)
    known = msgspec.json.decode(answer, type=DetectAnswer if task == "detect" else PointAnswer)
    return _event_stream(events_again(known), REPLAYED)


def _event_stream(events: Any, headers: dict[str, str] | None = None) -> Stream:
    headers = {**_EVENT_STREAM, **(headers or {})}
    return Stream(events, media_type="text/event-stream", status_code=200, headers=headers)


async def _forget(answer: bytes) -> None:
    """Where no key asks to keep it."""
