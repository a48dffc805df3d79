"""Uploaded images in Redis, each known to its tenant only, until nobody used it for a while."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis

from app.admission.connections import REDIS_ERRORS
from app.admission.errors import QueueFull, TenantQueueFull, Unavailable
from app.admission.faults import unavailable
from app.admission.images import ImageRef
from app.admission.scripts import prefix
from app.images.picture import Picture
from app.intake.cost import ORDINARY, Cost, unknown_cost
from app.problems import ProblemError

SWEEP_S = 5.0
FORGET_S = 0.05
_LUA = files("app.images").joinpath("lua")


@dataclass(frozen=True, slots=True)
class Room:
    """How much is kept, in bytes, and for how many seconds after the last use."""

    bytes: int
    tenant_bytes: int
    ttl_s: float


class ImageStore:
    """Every method raises `Unavailable` when Redis is away."""

    def __init__(self, redis: Redis, namespace: str, room: Room) -> None:
        self._redis = redis
        self._prefix = prefix(namespace)
        self._room = room
        self._dropping: set[asyncio.Task[None]] = set()
        common = _LUA.joinpath("common.lua").read_text(encoding="utf-8")
        self._scripts = {
            name: redis.register_script(common + _LUA.joinpath(f"{name}.lua").read_text(encoding="utf-8"))
            for name in ("drop", "keep", "sweep", "use")
        }

    async def keep(self, tenant: str, data: bytes, width: int, height: int, cost: Cost = ORDINARY) -> Picture:
        """Keep an image under a new id that nobody can guess.

        Args:
            width, height: of the upright image, in pixels.
            cost: of decoding it.

        Raises:
            TenantQueueFull, QueueFull: there is no room for it.
        """
        image_id, sha = secrets.token_urlsafe(18), hashlib.sha256(data).hexdigest()
        room = self._room
        kind, *seconds = await self._run(
            *("keep", tenant, image_id, sha, len(data), width, height, round(room.ttl_s * 1000)),
            *(room.bytes, room.tenant_bytes, data, cost.price, cost.memory),
        )
        if kind == b"tenant-queue-full":
            detail = f"Your uploaded images may have {room.tenant_bytes} bytes in all; delete some, or wait."
            raise TenantQueueFull(detail, retry_after_s=float(seconds[0]))
        if kind == b"queue-full":
            raise QueueFull(
                "There is no room for more uploaded images; wait.", retry_after_s=float(seconds[0])
            )
        return self._picture(tenant, image_id, sha, len(data), width, height, cost)

    async def use(self, tenant: str, image_id: str) -> Picture:
        """The image, kept for another while.

        Raises:
            ProblemError: not-found: it never existed, has expired, or is another tenant's.
        """
        found = await self._run("use", tenant, image_id, round(self._room.ttl_s * 1000))
        if not found:
            raise unknown_image()
        sha, size, width, height, price, memory = found
        # handles of versions without prices have none
        cost = Cost(price, memory) if price else unknown_cost(width, height, size)
        return self._picture(tenant, image_id, sha.decode(), size, width, height, cost)

    async def drop(self, tenant: str, image_id: str) -> None:
        """Forget the image; requests about it that are under way still end well.

        Raises:
            ProblemError: not-found, as for `use`.
        """
        if not await self._run("drop", tenant, image_id):
            raise unknown_image()

    async def forget(self, tenant: str, image_id: str) -> None:
        """Drop it although the task that asks for it may be being cancelled; without Redis it expires.

        A Redis that takes its time is not waited for.
        """
        dropping = asyncio.create_task(self._drop_if_there(tenant, image_id))
        self._dropping.add(dropping)
        dropping.add_done_callback(self._dropping.discard)
        await asyncio.wait({dropping}, timeout=FORGET_S)

    async def _drop_if_there(self, tenant: str, image_id: str) -> None:
        with contextlib.suppress(Unavailable, ProblemError):
            await self.drop(tenant, image_id)

    async def keep_swept(self) -> None:
        """Until cancelled: bytes go at the end of their time also when nobody asks for an image any more."""
        while True:
            await asyncio.sleep(SWEEP_S)
            with contextlib.suppress(Unavailable):  # Redis forgets them by itself, later
                await self._run("sweep")

    def _picture(
        self, tenant: str, image_id: str, sha: str, size: int, width: int, height: int, cost: Cost
    ) -> Picture:
        async def load() -> bytes:
            try:
                data: Any = await self._redis.get(f"{self._prefix}image:{tenant}:{sha}")
            except REDIS_ERRORS as error:
                raise unavailable(error, "The image store") from error
            if data is None:
                raise unknown_image()
            return bytes(data)

        return Picture(ImageRef(sha, size, load), width, height, image_id, cost)

    async def _run(self, name: str, *arguments: Any) -> Any:
        try:
            return await self._scripts[name](keys=[self._prefix], args=list(arguments))
        except REDIS_ERRORS as error:
            raise unavailable(error, "The image store") from error


def unknown_image() -> ProblemError:
    """The same for an id that never was, one that expired, and one of another tenant."""
    return ProblemError("not-found", "There is no image with this id; upload it again.", field="image_id")
