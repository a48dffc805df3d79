"""The image of a request, wherever it is; and images that are kept for many requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from app.access.caller import Caller
from app.admission.messages import Completed, SpatialParams
from app.bodies import INLINE_BYTES
from app.deadlines import AnsweredWithin
from app.images.picture import Picture
from app.images.store import ImageStore
from app.inference import Inference
from app.intake.fetch import Fetcher
from app.intake.sniff import check
from app.intake.sources import Inline, Remote, Source, Stored
from app.problems import ProblemError

_WARM_UP = SpatialParams(phrases=["object"], max_objects=1)
"""The shortest question there is: it makes a worker decode the image and prefill it."""


class ImageService:
    """One per API process. Its methods raise AdmissionError as well when Redis is away or full."""

    def __init__(self, store: ImageStore, fetcher: Fetcher, inference: Inference) -> None:
        self._store = store
        self._fetcher = fetcher
        self._inference = inference

    async def picture(self, source: Source, tenant: str, within_s: float) -> Picture:
        """The image with its size, nothing decoded yet.

        Args:
            within_s: how long the caller will wait for its whole request.

        Raises:
            ProblemError: with the field that named the image.
        """
        if isinstance(source, Stored):
            return await self._store.use(tenant, source.image_id)
        if isinstance(source, Remote):
            source = Inline(await self._fetcher.fetch(source, tenant, within_s), source.field)
        if len(source.data) <= INLINE_BYTES:
            return _picture(source)
        return await asyncio.to_thread(_picture, source)

    async def upload(
        self,
        source: Inline | Remote,
        caller: Caller,
        disconnected: Callable[[], Awaitable[None]],
        *,
        model: str | None,
        timeout_s: float,
    ) -> tuple[Picture, Completed]:
        """Keep an image once a worker has prefilled it.

        Raises:
            ProblemError: the image or the model is not usable, the deadline passed. ClientGone.
        """
        until = asyncio.get_running_loop().time() + timeout_s
        async with AnsweredWithin(timeout_s):
            sent = await self.picture(source, caller.tenant, timeout_s)
            assert isinstance(sent.data, bytes)
            kept = await self._store.keep(caller.tenant, sent.data, sent.width, sent.height, sent.cost)
        assert kept.id is not None
        try:
            left_s = max(until - asyncio.get_running_loop().time(), 0.001)
            async with AnsweredWithin(left_s):
                ticket = await self._inference.submit(
                    "detect", _WARM_UP, kept, caller, model=model, timeout_s=left_s
                )
            return kept, await self._inference.result(ticket, disconnected, {"image": source.field})
        except BaseException:
            await self._store.forget(caller.tenant, kept.id)
            raise

    async def drop(self, image_id: str, tenant: str) -> None:
        """Forget a kept image; requests about it that are under way still end well.

        Raises:
            ProblemError: not-found: it never existed, has expired, or is another tenant's.
        """
        await self._store.drop(tenant, image_id)


def _picture(source: Inline) -> Picture:
    try:
        header = check(source.data)
    except ProblemError as problem:
        problem.field = source.field
        raise
    return Picture(source.data, header.width, header.height, cost=header.cost)
