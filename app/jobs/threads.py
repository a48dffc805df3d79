"""Calls to stores, in threads of their own: one that hangs holds up no other work, and no process's end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Runs up to `at_once` calls; more wait for their turn.

    Whoever is cancelled while a call runs leaves its thread behind, which counts until the call returns. When
    Python ends, it waits for the threads of its pools, but not for these.
    """

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)

    async def run(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What the call gives, or raises."""
        await self._free.acquire()
        loop, context = asyncio.get_running_loop(), copy_context()
        given: asyncio.Future[T] = loop.create_future()

        def tell(result: T | None, error: BaseException | None) -> None:
            self._free.release()
            if given.cancelled():
                return
            if error is not None:
                given.set_exception(error)
            else:
                given.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            result, error = None, None
            try:
                result = context.run(call, *arguments, **named)
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(tell, result, error)

        threading.Thread(target=work, name="pointbox-store", daemon=True).start()
        return await given
