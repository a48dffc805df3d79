"""What is wrong with Redis, in words that callers and operators can act on."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.admission.connections import REDIS_ERRORS, producer
from app.admission.errors import Unavailable
from app.setting_values import SettingsError

ASK_S = 3.0
"""How long a process that starts waits for a Redis to tell its policy."""
_FAULTS = {
    "READONLY": ("is a read-only replica now", 1.0),
    "OOM": ("has no memory left", 5.0),
    "LOADING": ("is still being loaded into memory", 2.0),
    "MISCONF": ("cannot write to its disk and takes nothing", 5.0),
    "BUSY": ("is held up by a script", 2.0),
    "MASTERDOWN": ("has lost its primary", 2.0),
    "CLUSTERDOWN": ("is a cluster that is down", 2.0),
    "NOAUTH": ("does not accept the service's password", 5.0),
    "WRONGPASS": ("does not accept the service's password", 5.0),
    "NOPERM": ("does not let the service do this", 5.0),
}
"""By the first word of an error of Redis: what is the matter, and in how many seconds to ask again."""

log = structlog.get_logger(__name__)


def unavailable(error: BaseException, what: str = "The queue") -> Unavailable:
    """An error of Redis as its caller is told; the message itself, which may name an address, is not shown.

    Args:
        what: that Redis is used for here.
    """
    matter, retry_after_s = _fault(error)
    return Unavailable(f"{what} {matter}.", retry_after_s=retry_after_s)


def _fault(error: BaseException) -> tuple[str, float]:
    for word in str(error).split(maxsplit=2)[:2]:  # redis-py may have put its own word before
        if word in _FAULTS:
            return _FAULTS[word]
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return "does not answer", 1.0
    if isinstance(error, RedisConnectionError | OSError):
        return "cannot be reached", 1.0
    if isinstance(error, ResponseError):
        return "answers with an error", 1.0
    return "cannot be used", 1.0


class FaultLog:
    """Writes a line when the state of Redis changes, not for each command that failed."""

    def __init__(self) -> None:
        self.detail: str | None = None
        """What was wrong at last; None: nothing."""

    def failed(self, error: BaseException) -> Unavailable:
        """Notes an error of Redis, and returns it as `unavailable` does."""
        told = unavailable(error)
        if told.detail != self.detail:
            log.warning("Redis cannot be used", reason=told.detail, error=str(error))
        self.detail = told.detail
        return told

    def worked(self) -> None:
        """A command that writes was done."""
        if self.detail is not None:
            log.info("Redis can be used again")
        self.detail = None


async def may_evict(redis: Redis) -> str | None:
    """Why this Redis may drop what is still needed; None when it does not. Raises RedisError or OSError.

    INFO tells it; CONFIG, which managed services forbid, is not needed.
    """
    memory: Any = await redis.info("memory")
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction" or not int(memory.get("maxmemory", 0)):
        return None
    return (
        f"Redis drops keys when its memory is full (maxmemory-policy {policy}), and requests with them: "
        "set maxmemory-policy to noeviction"
    )


def refuse_evicting(url: str) -> None:
    """Before a process of the service starts. A Redis that is away is looked at once it is there.

    Raises:
        SettingsError: it may evict.
    """
    reason = asyncio.run(_policy(url))
    if reason is not None:
        raise SettingsError(reason)


async def _policy(url: str) -> str | None:
    redis = producer(url)
    try:
        async with asyncio.timeout(ASK_S):
            return await may_evict(redis)
    except (*REDIS_ERRORS, TimeoutError):
        return None
    finally:
        await redis.aclose()
