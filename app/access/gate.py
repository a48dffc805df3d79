"""What stands between a request and the routes while keys are needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Request

from app.access.caller import Caller
from app.access.keyring import Keyring
from app.access.keys import Keys
from app.access.limits import Limits
from app.access.usage import record_usage
from app.admission.connections import producer
from app.correlation import add_answer_header
from app.db.database import Database
from app.problems import ProblemError
from app.settings import Settings
from app.supervised import supervised

NEEDS = "needs"
"""In the `opt` of a route: the scope that a key must have for it."""


class Gate:
    """One per API process. Owns its connections to the database and to Redis."""

    def __init__(self, settings: Settings) -> None:
        assert settings.redis_url is not None
        self._database = Database(settings)
        self._redis = producer(settings.redis_url)
        self._namespace = settings.namespace
        self._keyring = Keyring(Keys(self._database), settings.bootstrap_key)
        self._limits = Limits(self._redis, settings.namespace)

    @asynccontextmanager
    async def opened(self, _app: object) -> AsyncGenerator[None, None]:
        """While the application runs: leases are kept and usage is written down."""
        tasks = [
            asyncio.create_task(supervised("access-leases", self._limits.keep)),
            asyncio.create_task(supervised("access-usage", self._record_usage)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._redis.aclose()
            await self._database.close()

    @asynccontextmanager
    async def admitted(self, request: Request[Any, Any, Any]) -> AsyncGenerator[Caller, None]:
        """While one request is worked on.

        Raises:
            ProblemError: unauthenticated, forbidden, rate-limited or unavailable.
        """
        grant = await self._keyring.grant(_key_of(request))
        needed = request.scope["route_handler"].opt.get(NEEDS)
        if needed is not None and needed not in grant.caller.scopes:
            raise ProblemError("forbidden", f"This key does not have the scope {needed}.")
        async with self._limits.entered(grant) as headers:
            for name, value in headers.items():
                add_answer_header(request, name, value)
            yield grant.caller

    async def _record_usage(self) -> None:
        await record_usage(self._redis, self._namespace, self._database)

    async def reachable(self) -> bool:
        """Whether keys can be checked."""
        return await self._keyring.reachable()


def _key_of(request: Request[Any, Any, Any]) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return request.headers.get("x-moondream-auth")
