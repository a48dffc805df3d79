"""Clients for Redis that do exactly what they are told, with as little as possible in between.

redis-py repeats every command up to ten times by default, which enqueues twice when a reply gets lost.
Here nothing is repeated: callers that may repeat do it themselves.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

CONNECT_TIMEOUT_S = 2.0
COMMAND_TIMEOUT_S = 5.0
BLOCK_S = 1.0
"""How long a consumer blocks in one read."""
CONNECTIONS = 16
"""A client has so many at most; further commands wait for one."""

REDIS_ERRORS = (RedisError, OSError)
"""What a command raises when Redis is away."""


class Producer(Redis):
    """For commands that answer at once.

    It holds on to its connections: taking one from the pool and giving it back, with their events and
    measurements, costs more than a command, the more so when the engine has just emptied the caches.

    The time limit is kept here and not by `socket_timeout`, for which redis-py uses asyncio.wait_for: in
    Python 3.11 that loses a cancellation which comes at the wrong moment, and with it any task's end.
    """

    limit_s = COMMAND_TIMEOUT_S

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[AbstractConnection] = []

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Raises redis.exceptions.TimeoutError after `limit_s`; the connection is then dropped."""
        try:
            async with asyncio.timeout(self.limit_s), self._room:
                connection = self._idle.pop() if self._idle else await self.connection_pool.get_connection()
                try:
                    await self.connection_pool.ensure_connection(connection)
                    await connection.send_command(*args)
                    return await self.parse_response(connection, args[0], **options)
                finally:
                    self._idle.append(connection)
        except TimeoutError as error:
            raise RedisTimeoutError(f"no answer within {self.limit_s:g} s") from error


class Consumer(Producer):
    """For one reader that blocks up to BLOCK_S."""

    limit_s = BLOCK_S + COMMAND_TIMEOUT_S


def producer(url: str) -> Redis:
    """A client for commands that answer at once."""
    return Producer.from_pool(_pool(url))


def consumer(url: str) -> Redis:
    """A client for one reader that blocks."""
    return Consumer.from_pool(_pool(url))


def _pool(url: str) -> ConnectionPool:
    return ConnectionPool.from_url(
        url,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=None,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        protocol=2,
    )
