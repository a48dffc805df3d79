"""How often and how much at once a key may ask, counted in Redis for all API processes together."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Any

import anyio
import structlog
from redis.asyncio import Redis

from app.access.keyring import Grant
from app.admission.connections import REDIS_ERRORS
from app.admission.faults import unavailable
from app.admission.scripts import prefix
from app.problems import ProblemError

LEASE_S = 30.0
"""A request of an API process that died holds its place at most so long."""
PLACE_S = 2.0
"""A Redis that takes longer to give a place counts as away: callers have deadlines."""
log = structlog.get_logger(__name__)
_FOLDER = files("app.access").joinpath("lua")
_DETAILS = {
    "rate": "This key may send {rate_per_minute} requests a minute.",
    "concurrency": "This key may have {concurrency} requests open at a time.",
}
Headers = dict[str, str]


class Limits:
    """One per API process; `keep` runs beside it."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._redis = redis
        self._prefix = prefix(namespace)
        self._enter = redis.register_script(_FOLDER.joinpath("enter.lua").read_text())
        self._keep = redis.register_script(_FOLDER.joinpath("keep.lua").read_text())
        self._held: set[tuple[str, str]] = set()

    @asynccontextmanager
    async def entered(self, grant: Grant) -> AsyncGenerator[Headers, None]:
        """Holds a place for one request. Yields what to tell the caller of its limits.

        Raises:
            ProblemError: rate-limited, with `retry_after_s`. Unavailable: Redis is away.
        """
        key = grant.caller.key_id
        if key is None or (grant.rate_per_minute is None and grant.concurrency is None):
            yield {}
            return
        member = secrets.token_hex(8)
        headers = await self._take_place(grant, key, member)
        self._held.add((key, member))
        try:
            yield headers
        finally:
            self._held.discard((key, member))
            if grant.concurrency is not None:
                await self._leave(key, member)

    async def keep(self) -> None:
        """Keeps the places of open requests until cancelled."""
        while True:
            await asyncio.sleep(LEASE_S / 3)
            held = [part for pair in self._held for part in pair]
            try:
                await self._keep(keys=[self._prefix], args=[round(LEASE_S * 1000), *held])
            except REDIS_ERRORS as error:  # the next round is early enough
                log.warning("places of requests are not kept", error=type(error).__name__)

    async def _take_place(self, grant: Grant, key: str, member: str) -> Headers:
        rate, concurrency = grant.rate_per_minute or 0, grant.concurrency or 0
        arguments = [key, member, rate, concurrency, round(LEASE_S * 1000)]
        try:
            async with asyncio.timeout(PLACE_S):
                answer: Any = await self._enter(keys=[self._prefix], args=arguments)
        except REDIS_ERRORS as error:
            raise unavailable(error) from None
        if not answer[0]:
            detail = _DETAILS[answer[1].decode()].format(rate_per_minute=rate, concurrency=concurrency)
            raise ProblemError("rate-limited", detail, retry_after_s=answer[2] / 1000)
        return _headers(rate, answer[1], answer[2]) if rate else {}

    async def _leave(self, key: str, member: str) -> None:
        """Although the task that asks for it is itself being cancelled."""
        with anyio.CancelScope(shield=True), suppress(*REDIS_ERRORS):  # then the lease ends it
            await self._redis.zrem(f"{self._prefix}key-held:{key}", member)


def _headers(rate: int, left: int, full_in_ms: int) -> Headers:
    return {
        "ratelimit-limit": str(rate),
        "ratelimit-remaining": str(left),
        "ratelimit-reset": str(math.ceil(full_in_ms / 1000)),
    }
