"""One connection to Redis: commands go out as they come, and answers come back in the same order.

redis-py knows the commands; its way to the socket (a pool, a stream, several coroutines) costs more than most
of them. So `connections.py` sends over this what redis-py builds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import hiredis
from redis.asyncio.connection import SSLConnection, parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

CONNECT_TIMEOUT_S = 2.0
Command = tuple[bytes | str | int | float, ...]
_KINDS = {"NOSCRIPT": NoScriptError, "READONLY": ReadOnlyError}


class Wire(asyncio.Protocol):
    """Made by `open`. Once it is closed it stays so, and what it had not answered has failed."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(replyError=_error)
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        """The answers to come, the oldest first, and until when."""
        self._watched = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self.closed = False

    @classmethod
    async def open(cls, url: str) -> Wire:
        """Connects and logs in.

        Args:
            url: redis://, rediss:// or unix://, as redis-py reads it.

        Raises:
            OSError, RedisError: nobody is there, or lets us in.
        """
        options: dict[str, Any] = dict(parse_url(url))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if "path" in options:
                    _, wire = await loop.create_unix_connection(cls, options["path"])
                else:
                    place = options.get("host", "localhost"), options.get("port", 6379)
                    _, wire = await loop.create_connection(cls, *place, ssl=_tls(options))
        except TimeoutError:
            raise RedisTimeoutError(f"no connection within {CONNECT_TIMEOUT_S:g} s") from None
        try:
            await wire._log_in(options)
        except BaseException:
            wire.drop()
            raise
        return wire

    @property
    def load(self) -> int:
        """Commands that have no answer yet."""
        return len(self._waiting)

    def send(self, command: Command, limit_s: float) -> asyncio.Future[Any]:
        """The answer to come: bytes, numbers and lists of them. Whoever waits for it may be cancelled.

        After `limit_s` without it the connection is dropped, since later answers could not come either.
        It fails with RedisError.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.closed:
            answer.set_exception(RedisConnectionError("the connection is closed"))
            return answer
        self._waiting.append((answer, self._loop.time() + limit_s))
        if not self._watched:
            self._watch()
        self._transport.write(hiredis.pack_command(command))
        return answer

    def drop(self) -> None:
        """Ends it at once; what is not answered fails."""
        self._transport.abort()
        self._close(RedisConnectionError("the connection was dropped"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop, as are the two below."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without being derived from it

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not False:
                self._take(answer)
        except hiredis.ProtocolError:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._close(RedisConnectionError(f"the connection was lost: {exc or 'closed by the server'}"))

    def _take(self, answer: Any) -> None:
        waiting, _ = self._waiting.popleft()
        if waiting.done():  # its caller has gone
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def _watch(self) -> None:
        """One timer for all: of answers that come in order the oldest is late first."""
        self._watched = bool(self._waiting)
        if self._watched:
            until = self._waiting[0][1]
            if until <= self._loop.time():
                self._transport.abort()
                self._close(RedisTimeoutError("no answer in time"))
            else:
                self._loop.call_at(until, self._watch)

    def _close(self, error: RedisError) -> None:
        self.closed = True
        while self._waiting:
            self._take(type(error)(*error.args))  # each its own, since raising one changes it

    async def _log_in(self, options: dict[str, Any]) -> None:
        if "username" in options or "password" in options:
            names = (options["username"],) if "username" in options else ()
            await self.send(("AUTH", *names, options.get("password", "")), CONNECT_TIMEOUT_S)
        if options.get("db"):
            await self.send(("SELECT", options["db"]), CONNECT_TIMEOUT_S)


def _tls(options: dict[str, Any]) -> Any:
    """The context for rediss://, with the options of redis-py."""
    if options.get("connection_class") is not SSLConnection:
        return None
    named = {name: value for name, value in options.items() if name.startswith("ssl_")}
    return SSLConnection(**named).ssl_context.get()


def _error(message: str) -> RedisError:
    word = message.partition(" ")[0]
    return _KINDS.get(word, ResponseError)(message)
