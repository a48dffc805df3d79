"""The engine workers of `pointbox serve`: one that cannot start does not end the others."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from redis.asyncio import Redis

from app.admission.connections import REDIS_ERRORS
from app.admission.failed import KEEP_MS, FailedWorker, publish, reason_of, withdraw
from app.child import Child, GaveUp

PUBLISH_S = KEEP_MS / 4000

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Slots:
    """Knows which workers fail, and tells the service.

    Args:
        redis: of the service.
        count: of all its workers.
    """

    redis: Redis
    namespace: str
    count: int
    _failed: dict[str, tuple[GaveUp, FailedWorker]] = field(default_factory=dict)
    _run: str = field(default_factory=lambda: secrets.token_hex(4))

    def failed(self, child: Child) -> bool:
        """Whether this worker has failed and has not been ready since."""
        return child.slot in self._failed

    async def on_failure(self, child: Child, model: str, error: GaveUp, worker: str) -> None:
        """Notes it. Raises `error` when no worker is left that works or may still start.

        Args:
            worker: the name of the process that ended last.
        """
        reason = await self._reason(worker) or str(error)
        name = Path(model).resolve().name if Path(model).is_dir() else model
        record = FailedWorker(model=name, reason=reason, deaths=child.early_deaths)
        self._failed[child.slot] = error, record
        log.error("an engine worker failed", model=name, reason=reason, deaths=child.early_deaths)
        if len(self._failed) == self.count:
            raise max((failed for failed, _ in self._failed.values()), key=lambda failed: failed.status)
        await self._publish()

    async def on_ready(self, child: Child) -> None:
        """It works."""
        failed = self._failed.pop(child.slot, None)
        if failed is not None:
            log.info("an engine worker that had failed is ready", model=failed[1].model)
            with contextlib.suppress(*REDIS_ERRORS):  # then it is forgotten by itself
                await withdraw(self.redis, self.namespace, f"{self._run}-{child.slot}")

    async def keep_published(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(PUBLISH_S)
            await self._publish()

    async def _publish(self) -> None:
        records = {f"{self._run}-{slot}": record for slot, (_, record) in self._failed.items()}
        with contextlib.suppress(*REDIS_ERRORS):  # soon again
            await publish(self.redis, self.namespace, records)

    async def _reason(self, worker: str) -> str | None:
        with contextlib.suppress(*REDIS_ERRORS):
            return await reason_of(self.redis, self.namespace, worker)
        return None
