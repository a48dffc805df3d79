"""Sends calls and waits: connections, tries and pauses of the asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

import httpx

from pointbox.calls import Call
from pointbox.config import Config
from pointbox.errors import PointboxError
from pointbox.refusals import refusal
from pointbox.sending import LIMITS, LOOPBACK
from pointbox.tries import SILENCE_S, Tries

T = TypeVar("T")


class AsyncPieces:
    """The body of a response as it comes in. Keeps the connection until `close`."""

    def __init__(self, response: httpx.Response, tries: Tries, held: AsyncExitStack) -> None:
        self._pieces = response.aiter_bytes()
        self._tries = tries
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._cut_off = False

    async def next(self) -> bytes:
        """The next piece; none is empty but the last.

        Raises:
            PointboxError: the connection broke, the service was silent too long, or the client was closed.
        """
        try:
            if not self._cut_off:
                with self._tries.named(), self._tries.waiting():
                    return await anext(self._pieces, b"")
        except Exception:
            if not self._cut_off:  # else this is how a read ends whose connection is closed under it
                raise
        raise self._tries.client_closed()

    async def cut_off(self) -> None:
        """Hang up because the client is closed; a task that waits for the next piece gets an error."""
        if self._loop is not asyncio.get_running_loop():
            return
        self._cut_off = True
        await self.close()

    async def close(self) -> None:
        """Hang up, if the body has not ended. May be called more than once."""
        await self._held.aclose()


class AsyncSender:
    """One per client. Each event loop has connections of its own, so a forked process has them as well."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pools: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
        self._streams: WeakValueDictionary[int, AsyncPieces] = WeakValueDictionary()

    def __reduce__(self) -> tuple[type[AsyncSender], tuple[Config]]:
        """As with `Sender`."""
        return type(self), (self._config,)

    async def send(self, call: Call[T]) -> T:
        """The answer, after as many tries as it takes.

        Raises:
            PointboxError: there is none.
        """
        tries = Tries(call.id, self._config, call.limit_s)
        while True:
            try:
                return call.read(await self._body(call, tries))
            except PointboxError as error:
                pause_s = tries.pause_s(error)
            await asyncio.sleep(pause_s)

    async def stream(self, call: Call[T]) -> AsyncPieces:
        """The pieces of an answer as they come, once the service has begun to answer.

        Raises:
            PointboxError: it does not begin to.
        """
        tries = Tries(call.id, self._config, call.limit_s)
        while True:
            async with AsyncExitStack() as held:
                try:
                    async with asyncio.timeout(tries.remaining_s):
                        answered = self._answered(call, tries, read_s=SILENCE_S)
                        response = await held.enter_async_context(answered)
                except PointboxError as error:
                    pause_s = tries.pause_s(error)
                except TimeoutError as error:
                    raise tries.timed_out() from error
                else:
                    pieces = AsyncPieces(response, tries, held.pop_all())
                    self._streams[id(pieces)] = pieces
                    return pieces
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Close the connections of this event loop; its streams that are open end with ConnectionFailed."""
        for reference in self._streams.valuerefs():
            pieces = reference()
            if pieces is not None:
                await pieces.cut_off()
        await self._pool().aclose()

    async def _body(self, call: Call[T], tries: Tries) -> bytes:
        try:
            async with asyncio.timeout(tries.remaining_s), self._answered(call, tries) as response:
                return await response.aread()
        except TimeoutError as error:
            raise tries.timed_out() from error

    @asynccontextmanager
    async def _answered(
        self, call: Call[T], tries: Tries, *, read_s: float | None = None
    ) -> AsyncIterator[httpx.Response]:
        """A response that says that all is well; its body is not read yet."""
        with tries.named():
            async with self._pool().stream(
                call.method,
                call.path,
                headers=call.headers(),
                files=call.files,
                data=call.fields,
                json=call.json,
                timeout=tries.timeout(read_s=read_s),
            ) as response:
                if not response.is_success:
                    body = await response.aread()
                    raise refusal(response.status_code, response.headers, body, call.id)
                yield response

    def _pool(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for ended in [other for other in list(self._pools) if other.is_closed()]:
                self._pools.pop(ended, None)
            config = self._config
            pool = self._pools[loop] = httpx.AsyncClient(
                base_url=config.url, headers=config.headers(), limits=LIMITS, mounts=dict.fromkeys(LOOPBACK)
            )
        return pool
