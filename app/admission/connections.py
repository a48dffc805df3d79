"""Clients for Redis that do exactly what they are told, with as little as possible in between.

redis-py repeats every command up to ten times by default, which enqueues twice when a reply gets lost.
Here nothing is repeated: callers that may repeat do it themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError, RedisError

from app.admission.wire import Command, Wire

COMMAND_TIMEOUT_S = 5.0
BLOCK_S = 1.0
"""How long a consumer blocks in one read."""
CONNECTIONS = 8
"""A client has so many at most; further commands queue up behind others."""

REDIS_ERRORS = (RedisError, OSError)
"""What a command raises when Redis is away."""


class Producer(Redis):
    """For commands that answer at once. Pipelines still go through redis-py's own connections."""

    limit_s = COMMAND_TIMEOUT_S

    def __init__(self, url: str) -> None:
        never_again = Retry(NoBackoff(), 0)
        super().__init__(connection_pool=ConnectionPool.from_url(url, protocol=2, retry=never_again))
        self._url = url
        self._wires: list[Wire] = []
        self._opening: asyncio.Task[Wire] | None = None

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Raises redis.exceptions.TimeoutError after `limit_s`; the connection is then dropped."""
        wire = self._free() or await self._wire()
        command, *rest = args
        try:
            answer = await wire.send((*command.split(), *rest), self.limit_s)
        except ReadOnlyError:
            self.renew()
            raise
        options.pop("keys", None)
        parse = self.response_callbacks.get(command)
        return parse(answer, **options) if parse else answer

    async def execute_both(self, first: Command, second: Callable[[], Awaitable[Command]]) -> Any:
        """Sends a command and then, without waiting for its answer, the one that `second` makes up meanwhile.

        Returns the answer to the second as Redis gave it.
        """
        wire = self._free() or await self._wire()
        before = wire.send(first, self.limit_s)
        try:
            return await wire.send(await second(), self.limit_s)
        except ReadOnlyError:
            self.renew()
            raise
        finally:
            if before.done():
                before.result()  # when it failed, the second does not count
            else:
                before.cancel()

    def renew(self) -> None:
        """Drops its connections: a primary that became a replica keeps them, and another one has its name."""
        for wire in self._wires:
            wire.drop()

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Ends its connections; commands that wait for an answer fail."""
        if self._opening is not None:
            self._opening.cancel()
        for wire in self._wires:
            wire.drop()
        await super().aclose(close_connection_pool=True)

    def _free(self) -> Wire | None:
        for wire in self._wires:
            if not (wire.load or wire.closed):
                return wire
        return None

    async def _wire(self) -> Wire:
        """A new one; where there may be no more, or one is on its way, the one with the least before us."""
        self._wires = [wire for wire in self._wires if not wire.closed]
        if self._wires and (self._opening or len(self._wires) == CONNECTIONS):
            return min(self._wires, key=lambda wire: wire.load)
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._opening)  # for all who wait for it, whoever of them goes away

    async def _open(self) -> Wire:
        try:
            wire = await Wire.open(self._url)
        finally:
            self._opening = None
        self._wires.append(wire)
        return wire


class Consumer(Producer):
    """For one reader that blocks up to BLOCK_S."""

    limit_s = BLOCK_S + COMMAND_TIMEOUT_S


def producer(url: str) -> Producer:
    """A client for commands that answer at once."""
    return Producer(url)


def consumer(url: str) -> Consumer:
    """A client for one reader that blocks."""
    return Consumer(url)
