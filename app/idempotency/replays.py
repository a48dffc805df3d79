"""Answers kept under the key that a caller chose for its request, for a day."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from importlib.resources import files
from types import TracebackType
from typing import Any

import structlog
from litestar import Request
from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from app.admission.connections import REDIS_ERRORS
from app.admission.faults import unavailable
from app.admission.scripts import prefix
from app.deadlines import LATE_S
from app.problems import ProblemError
from app.supervised import supervised

HEADER = "Idempotency-Key"
REPLAYED = {"Idempotent-Replayed": "true"}
"""On an answer that was given before."""
KEEP_S = 24 * 3600
PAUSES_S = (0.05, 0.1, 0.2, 0.4)
SETTLE_S = 60.0
LEASE_S = 10.0
"""A key whose holder died is free again after this long."""
_ACCEPTABLE = re.compile(r"[\x21-\x7e]{1,255}")
_SETTLING: set[asyncio.Task[None]] = set()
_LUA = files("app.idempotency").joinpath("lua")

log = structlog.get_logger(__name__)


def key_of(request: Request[Any, Any, Any]) -> str | None:
    """The Idempotency-Key of a request, None when it has none.

    Raises:
        ProblemError: invalid-request: it cannot be a key, or there are two.
    """
    keys = request.headers.getall(HEADER, [])
    if len(keys) > 1:
        raise ProblemError("invalid-request", f"The header {HEADER} is given twice.", field=HEADER)
    key = keys[0] if keys else None
    if key is not None and not _ACCEPTABLE.fullmatch(key):
        detail = "An Idempotency-Key has 1 to 255 visible ASCII characters."
        raise ProblemError("invalid-request", detail, field=HEADER)
    return key


class Claim:
    """The right to answer for a key. An async context manager: left without `keep`, the key is free again."""

    def __init__(self, settle: AsyncScript, key: str, token: str, until: float) -> None:
        self._script = settle
        self._until = until
        """time.monotonic() until which the caller waits; what is being settled goes on without it."""
        self._key = key
        self._token = token
        self._renewing: asyncio.Task[None] | None = None
        self._kept = False

    async def keep(self, answer: bytes, keep_s: float = KEEP_S) -> None:
        """From now on this is the answer. Its caller gets it even when Redis is away and cannot keep it."""
        self._kept = True
        await self._settle_in_time("keep", round(keep_s * 1000), answer)

    async def __aenter__(self) -> Claim:
        self._renewing = asyncio.create_task(supervised("idempotency-renewal", self._renew))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._renewing is not None
        self._renewing.cancel()
        if not self._kept:
            await self._settle_in_time("free")

    async def _settle_in_time(self, *what: str | bytes | int) -> None:
        """In a task of its own, which neither the caller's hanging up nor its deadline ends."""
        settling = asyncio.create_task(self._settle(*what))
        _SETTLING.add(settling)
        settling.add_done_callback(_SETTLING.discard)
        await asyncio.wait({settling}, timeout=max(self._until - time.monotonic(), 0.0))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 3)
            await self._settle("renew", round(LEASE_S * 1000))

    async def _settle(self, *what: str | bytes | int) -> None:
        """Tried again for a while: were an answer not kept, its request would run once more."""
        for pause in (*PAUSES_S, None):
            try:
                await self._script(keys=[self._key], args=[self._token, *what])
                return
            except REDIS_ERRORS as error:
                if pause is None:
                    log.warning("an idempotency key could not be settled", what=what[0], error=str(error))
                else:
                    await asyncio.sleep(pause)


class Replays:
    """One per API process."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._prefix = prefix(namespace)
        self._claim, self._settle = (
            redis.register_script(_LUA.joinpath(f"{name}.lua").read_text(encoding="utf-8"))
            for name in ("claim", "settle")
        )

    async def claim(
        self, tenant: str, route: str, key: str, fingerprint: str, within_s: float = SETTLE_S
    ) -> Claim | bytes:
        """The answer that was given under this key, or the right to give it.

        Args:
            fingerprint: equal for equal requests.
            within_s: how long the caller will wait for its answer.

        Raises:
            ProblemError: idempotency-in-flight: it is being worked on; idempotency-mismatch: the key was used
                for something else. Unavailable.
        """
        name = f"{self._prefix}idempotency:{tenant}:{route}:{hashlib.sha256(key.encode()).hexdigest()}"
        token = secrets.token_hex(16)
        try:
            kind, *answer = await self._claim(keys=[name], args=[fingerprint, token, round(LEASE_S * 1000)])
        except REDIS_ERRORS as error:
            told = unavailable(error, "What keeps Idempotency-Keys")
            log.warning("an idempotency key could not be looked up", reason=told.detail, error=str(error))
            raise told from error
        if kind == b"answered":
            return bytes(answer[0])
        if kind == b"running":
            detail = "The first request with this key is still running; ask again."
            raise ProblemError("idempotency-in-flight", detail, field=HEADER, retry_after_s=1.0)
        if kind == b"mismatch":
            detail = "This key was used for another request; use a new key for a new request."
            raise ProblemError("idempotency-mismatch", detail, field=HEADER)
        return Claim(self._settle, name, token, time.monotonic() + within_s + LATE_S)
