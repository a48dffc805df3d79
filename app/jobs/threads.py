"""Calls to stores, in threads of their own: one that hangs holds up no other work, and no process's end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def call_each(call: Callable[[T], R], items: Sequence[T], at_once: int) -> list[R]:
    """What `call` gives for each item, in their order, from threads that hold up no process's end.

    Raises the first error that a call raises.
    """
    numbers, given, errors = iter(range(len(items))), dict[int, R](), list[BaseException]()

    def work() -> None:
        for number in numbers:
            if errors:
                return
            try:
                given[number] = call(items[number])
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(items)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [given[number] for number in range(len(items))]


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
