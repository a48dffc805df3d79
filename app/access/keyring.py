"""From the key of a request to its caller, with a short memory so that most requests need no database."""

from __future__ import annotations

import asyncio
import hmac
import time
from dataclasses import dataclass

import structlog

from app.access.caller import BOOTSTRAP_ID, BOOTSTRAP_TENANT, SCOPES, Caller
from app.access.keys import Keys
from app.access.secret import digest_of
from app.db.database import DATABASE_ERRORS, fault_of
from app.problems import ProblemError

MEMORY_S = 2.0
"""A key that was revoked, or whose limits changed, works so long as before."""
REMEMBERED = 10_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a key gives. Limits of None are none."""

    caller: Caller
    rate_per_minute: int | None = None
    concurrency: int | None = None


class Keyring:
    """One per API process."""

    def __init__(self, keys: Keys, bootstrap_key: str) -> None:
        self._keys = keys
        self._bootstrap = bootstrap_key.encode()
        self._known: dict[str, tuple[Grant, float]] = {}
        """By digest, until when; the keys themselves are not kept."""
        self._asked: dict[str, asyncio.Task[Grant]] = {}
        """By digest: of many requests with one key, one asks the database."""

    async def grant(self, key: str | None) -> Grant:
        """Raises ProblemError: unauthenticated, or unavailable when the database is away."""
        if not key:
            raise ProblemError(
                "unauthenticated", "Send a key: `Authorization: Bearer KEY`, or `X-Moondream-Auth: KEY`."
            )
        if self._bootstrap and hmac.compare_digest(key.encode(), self._bootstrap):
            return Grant(Caller(BOOTSTRAP_TENANT, BOOTSTRAP_ID, frozenset(SCOPES)))
        digest = digest_of(key)
        grant, until = self._known.get(digest, (None, 0.0))
        if grant is None or until <= time.monotonic():
            grant = await asyncio.shield(self._asking(digest, key))
        return grant

    def _asking(self, digest: str, key: str) -> asyncio.Task[Grant]:
        if digest not in self._asked:
            task = self._asked[digest] = asyncio.create_task(self._refresh(digest, key), name="access-key")
            task.add_done_callback(lambda _: self._asked.pop(digest))
        return self._asked[digest]

    async def _refresh(self, digest: str, key: str) -> Grant:
        now = time.monotonic()
        self._known.pop(digest, None)
        grant = await self._look_up(key)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[digest] = grant, now + MEMORY_S
        return grant

    async def reachable(self) -> bool:
        """Whether the database answers."""
        try:
            await self._keys.find("")
        except DATABASE_ERRORS as error:
            log.warning("the database cannot be reached", error=fault_of(error))
            return False
        return True

    async def _look_up(self, key: str) -> Grant:
        try:
            row = await self._keys.find(key)
        except DATABASE_ERRORS as error:
            log.warning("the database cannot be reached", error=fault_of(error))
            raise ProblemError("unavailable", "Keys cannot be checked now.", retry_after_s=1) from None
        if row is None:
            raise ProblemError("unauthenticated", "The key is not known, has expired, or was revoked.")
        caller = Caller(row.tenant, row.id, frozenset(row.scopes.split()))
        return Grant(caller, row.rate_per_minute, row.concurrency)
