"""The routes /detect and /point."""

from __future__ import annotations

from typing import Any, ClassVar

from litestar import Controller, Request, Response, post
from litestar.datastructures import State
from litestar.response import Stream

from app.access.caller import caller_of
from app.access.gate import NEEDS
from app.correlation import request_id_of
from app.openapi import problem_responses
from app.settings import Settings
from app.spatial.bodies import read_request
from app.spatial.documents import PROBLEMS, SpatialOperation
from app.spatial.schemas import DetectAnswer, PointAnswer, Task
from app.spatial.service import SpatialService

_EVENT_STREAM = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class SpatialController(Controller):
    """Both routes take the same request; the body is read here because it comes in three kinds."""

    tags = ("spatial",)
    opt: ClassVar = {NEEDS: "infer"}

    @post(
        "/detect",
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
        status_code=200,
        summary="A point on everything that a phrase names",
        operation_class=SpatialOperation,
        responses=problem_responses(*PROBLEMS),
    )
    async def point(self, request: Request[Any, Any, Any], state: State) -> Response[PointAnswer]:
        """Send an image and a phrase; get points, ordered by phrase."""
        return await _answer("point", request, state)


async def _answer(task: Task, request: Request[Any, Any, Any], state: State) -> Response[Any]:
    settings: Settings = state.settings
    service: SpatialService = state.spatial
    asked = await read_request(request, settings)
    running = await service.submit(task, asked, request_id_of(request), caller_of(request))
    if asked.stream:
        return Stream(
            service.stream(running), media_type="text/event-stream", status_code=200, headers=_EVENT_STREAM
        )

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return Response(await service.wait(running, disconnected), status_code=200)
