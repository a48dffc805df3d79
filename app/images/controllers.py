"""The routes below /images."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import msgspec
from litestar import Controller, Request, Response, delete, post
from litestar.datastructures import State
from litestar.params import Parameter

from app.access.caller import caller_of
from app.access.gate import NEEDS
from app.bodies import invalid, read_body
from app.correlation import request_id_of
from app.idempotency.replays import KEEP_S, REPLAYED, Replays, key_of
from app.images.documents import DELETE_PROBLEMS, UPLOAD_PROBLEMS, ForgetOperation, UploadOperation
from app.images.schemas import ImageBody, UploadedImage
from app.images.service import ImageService
from app.inference import disconnection
from app.intake.sources import Inline, Remote, Stored, read_source
from app.openapi import problem_responses
from app.settings import Settings


class ImageController(Controller):
    """Send an image once and ask about it often."""

    path = "/images"
    tags = ("images",)
    opt: ClassVar = {NEEDS: "infer"}

    @post(
        operation_id="uploadImage",
        summary="Upload an image, to ask about it by its id",
        operation_class=UploadOperation,
        responses=problem_responses(*UPLOAD_PROBLEMS),
    )
    async def upload(self, request: Request[Any, Any, Any], state: State) -> Response[UploadedImage]:
        """The image is decoded and prefilled before this answers, so the first question is already fast."""
        service: ImageService = state.images
        settings: Settings = state.settings
        key = key_of(request)
        body, data = await read_body(request, ImageBody)
        source = read_source({"image": body.image, "image_url": body.image_url}, data)
        assert not isinstance(source, Stored)
        timeout_s = body.timeout_s or settings.default_timeout_s
        if not timeout_s <= settings.max_timeout_s:
            invalid(f"At most {settings.max_timeout_s:g} seconds can be asked for.", "timeout_s")
        caller = caller_of(request)
        async with AsyncExitStack() as held:
            claim = None
            if key is not None:
                replays: Replays = state.replays
                asked = await asyncio.to_thread(_fingerprint, source, body.model, timeout_s)
                claim = await replays.claim(caller.tenant, "images", key, asked, timeout_s)
                if isinstance(claim, bytes):
                    again = msgspec.json.decode(claim, type=UploadedImage)
                    return Response(again, status_code=201, headers=REPLAYED)
                await held.enter_async_context(claim)
            kept, seen = await service.upload(
                source, caller, disconnection(request), model=body.model, timeout_s=timeout_s
            )
            assert kept.id is not None
            answer = UploadedImage(
                request_id=request_id_of(request),
                image_id=kept.id,
                model=seen.model,
                width=seen.width,
                height=seen.height,
                bytes=kept.size,
                expires_in_s=settings.image_ttl_s,
                notes=seen.notes,
            )
            if claim is not None:
                await claim.keep(msgspec.json.encode(answer), min(KEEP_S, settings.image_ttl_s))
            return Response(answer, status_code=201)

    @delete(
        "/{image_id:str}",
        operation_id="deleteImage",
        operation_class=ForgetOperation,
        summary="Forget an uploaded image",
        responses=problem_responses(*DELETE_PROBLEMS),
    )
    async def forget(
        self,
        request: Request[Any, Any, Any],
        state: State,
        image_id: str = Parameter(description="As `POST /v1/images` gave it."),
    ) -> None:
        """Requests about the image that are under way still end well."""
        service: ImageService = state.images
        await service.drop(image_id, caller_of(request).tenant)


def _fingerprint(source: Inline | Remote, model: str | None, timeout_s: float) -> str:
    """Equal for uploads of the same, however they were written."""
    asked = source.identity(), model, timeout_s
    return hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()
