"""Decodes the images of a worker: in fair order, within a limit of memory, only while a request waits."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from app.admission.turns import Turn, Turns
from app.admission.worker_queue import Delivery

DECODE_THREADS = max(2, min(4, os.cpu_count() or 1))
"""One of them is kept from costly pictures."""


class Decoding:
    """Owns the threads that decode, and knows how much memory their pictures take.

    A picture's memory counts from its turn until its pixels are freed: the engine does so once it has
    prepared them. A decode under way cannot be stopped: after a cancellation it keeps its thread and memory
    until it ends.

    Args:
        decode: original bytes -> image, width, height and notes; raises ProblemError.
        memory: bytes that pictures may take at a time.
        most_costly: costly pictures that may wait here.
        on_room: called when there may be room for another costly one.
    """

    def __init__(
        self, decode: Callable[[bytes], Any], memory: int, most_costly: int, on_room: Callable[[], None]
    ) -> None:
        self._decode, self._most_costly, self._on_room = decode, most_costly, on_room
        self._pool = ThreadPoolExecutor(DECODE_THREADS, thread_name_prefix="intake")
        self._turns = Turns(DECODE_THREADS, memory)
        self._waiting: dict[Turn, asyncio.Future[None]] = {}
        self._deadlines: dict[Turn, float] = {}
        """Of those on a thread, time.monotonic() seconds."""
        self._kept: dict[tuple[str, int], Turn] = {}
        """By delivery, while its pixels may be in use."""

    @property
    def costly_room(self) -> int:
        """How many more costly pictures may come."""
        return max(0, self._most_costly - self._turns.costly)

    def late(self, now: float) -> float:
        """For how many seconds a picture has been decoded beyond its request's deadline; 0 when none is."""
        return max((now - deadline for deadline in self._deadlines.values()), default=0.0)

    async def decode(self, delivery: Delivery, fetch: Callable[[], Awaitable[bytes | None]]) -> Any:
        """What `decode` returns; None where there are no bytes.

        When it is cancelled, an image that waits is not decoded, and the result of one under way is dropped.

        Args:
            fetch: gets the original bytes. For a costly picture it is called when its turn has come.
        """
        data = None if delivery.cost.costly else await fetch()
        if data is None and not delivery.cost.costly:
            return None
        turn = Turn(delivery.tenant, delivery.priority, delivery.cost)
        await self._wait_for(turn)
        try:
            data = await fetch() if data is None else data
            if data is None:
                self._release(turn)
                return None
            decoding = self._pool.submit(self._decode, data)
        except BaseException:
            self._release(turn)
            raise
        self._deadlines[turn], self._kept[delivery.key] = delivery.deadline, turn
        loop = asyncio.get_running_loop()
        decoding.add_done_callback(lambda done: _soon(loop, self._decoded, turn, done))
        return await asyncio.wrap_future(decoding)

    def done_with(self, delivery: Delivery) -> None:
        """Its request has ended, and with it the use of its pixels, whatever may still refer to them."""
        turn = self._kept.pop(delivery.key, None)
        if turn is not None and not turn.on_thread:
            self._release(turn)

    def close(self) -> None:
        """Decodes nothing more; what is under way ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _wait_for(self, turn: Turn) -> None:
        self._turns.add(turn)
        self._start_next()
        if turn.on_thread:
            return
        self._waiting[turn] = asyncio.get_running_loop().create_future()
        try:
            await self._waiting[turn]
        except BaseException:
            self._turns.remove(turn)
            self._release(turn)  # its turn may have come in the same moment
            raise
        finally:
            del self._waiting[turn]

    def _start_next(self) -> None:
        while (turn := self._turns.next()) is not None:
            waiting = self._waiting.get(turn)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def _decoded(self, turn: Turn, done: Future[Any]) -> None:
        """The thread is free; the memory is when nobody has the pixels any more."""
        del self._deadlines[turn]
        self._turns.off_thread(turn)
        if done.cancelled() or done.exception() is not None:
            self._release(turn)
            return
        loop = asyncio.get_running_loop()
        gone = weakref.finalize(done.result().image, partial(_soon, loop, self._release, turn))
        gone.atexit = False
        self._start_next()

    def _release(self, turn: Turn) -> None:
        self._turns.off_thread(turn)
        self._turns.out_of_memory(turn)
        self._start_next()
        self._on_room()


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: the worker is on its way out
        loop.call_soon_threadsafe(call, *arguments)
