"""Clients for Redis that do exactly what they are told.

redis-py repeats every command up to ten times by default, which enqueues twice when a reply gets lost.
Here nothing is repeated: callers that may repeat do it themselves.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

CONNECT_TIMEOUT_S = 2.0
COMMAND_TIMEOUT_S = 5.0
BLOCK_S = 1.0
"""How long a consumer blocks in one read."""

REDIS_ERRORS = (RedisError, OSError)
"""What a command raises when Redis is away."""


class Producer(Redis):
    """For commands that answer at once.

    The time limit is kept here and not by `socket_timeout`, for which redis-py uses asyncio.wait_for: in
    Python 3.11 that loses a cancellation which comes at the wrong moment, and with it any task's end.
    """

    limit_s = COMMAND_TIMEOUT_S

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Raises redis.exceptions.TimeoutError after `limit_s`; the connection is then dropped."""
        try:
            async with asyncio.timeout(self.limit_s):
                return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except TimeoutError as error:
            raise RedisTimeoutError(f"no answer within {self.limit_s:g} s") from error


class Consumer(Producer):
    """For one reader that blocks up to BLOCK_S."""

    limit_s = BLOCK_S + COMMAND_TIMEOUT_S


def producer(url: str, max_connections: int = 16) -> Redis:
    """Waits for a free connection when all are in use."""
    return Producer.from_pool(_pool(url, max_connections))


def consumer(url: str) -> Redis:
    """Has one connection of its own."""
    return Consumer.from_pool(_pool(url, 1))


def _pool(url: str, max_connections: int) -> BlockingConnectionPool:
    return BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=None,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=None,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        protocol=2,
    )
