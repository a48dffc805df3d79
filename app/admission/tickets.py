"""A request as its caller sees it: each object once, then one final answer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from app.admission.messages import Completed, Event, ObjectEvent, PhraseEvent, Terminal

Cancel = Callable[["Ticket"], Awaitable[None]]


class Ticket:
    """An admitted request. Several readers may follow it; each sees every event from the start.

    Events come numbered by (attempt, seq). When a worker dies, another attempt tells the same objects again
    from the first: the decoder is greedy, so the n-th object of a phrase is the same, and the ones already
    delivered are left out.
    """

    def __init__(self, request_id: str, timeout_s: float, cancel: Cancel) -> None:
        self.id = request_id
        self.deadline = time.monotonic() + timeout_s
        self.admitted = False
        self._cancel = cancel
        self._events: list[Event] = []
        self._terminal: Terminal | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._ending: list[asyncio.Future[Terminal]] = []
        self._attempt = 0
        self._next_seq = 0
        self._told = Counter[int]()
        """Objects of the current attempt, per phrase."""
        self._delivered = Counter[int]()
        self._ended: set[int] = set()
        self._late: asyncio.TimerHandle | None = None

    @property
    def terminal(self) -> Terminal | None:
        """The final answer, once there is one."""
        return self._terminal

    async def events(self) -> AsyncIterator[Event]:
        """Objects as they are found; ends after Completed or Failure."""
        position = 0
        while True:
            if self._terminal is not None:
                self._tell_the_rest(self._terminal)
            while position < len(self._events):
                event = self._events[position]
                position += 1
                yield event
            if self._terminal is None:
                await self._change()
            elif self._events and self._events[-1] is self._terminal:
                return

    async def result(self) -> Terminal:
        """Waits for the final answer; finite, since every request has a deadline."""
        return await self.ending()

    def ending(self) -> asyncio.Future[Terminal]:
        """Gets the final answer; one of its own for each caller, who may cancel it."""
        ending: asyncio.Future[Terminal] = asyncio.get_running_loop().create_future()
        if self._terminal is None:
            self._ending.append(ending)
        else:
            ending.set_result(self._terminal)
        return ending

    def end_late(self, late_s: float, end: Callable[[], None]) -> None:
        """Calls `end` so many seconds after the deadline unless there is an answer then."""
        if self._terminal is None and self._late is None:
            left = self.deadline + late_s - time.monotonic()
            self._late = asyncio.get_running_loop().call_later(max(left, 0.0), end)

    async def cancel(self) -> None:
        """Stops the work, unless the final answer came first. Never raises; a second call does nothing."""
        if self._terminal is None:
            await self._cancel(self)

    def feed(self, attempt: int, seq: int, event: Event) -> None:
        """An event from the reply stream, in any order of attempts."""
        if self._terminal is not None or attempt < self._attempt:
            return
        if attempt > self._attempt:
            self._attempt, self._next_seq = attempt, 0
            self._told.clear()
        if seq < self._next_seq:
            return
        self._next_seq = seq + 1
        if isinstance(event, ObjectEvent):
            self._told[event.phrase_index] += 1
            if self._told[event.phrase_index] > self._delivered[event.phrase_index]:
                self._deliver(event)
        elif isinstance(event, PhraseEvent):
            self._end_phrase(event)

    def conclude(self, terminal: Terminal) -> None:
        """The final answer. To readers of events, what they were not told before comes first."""
        if self._terminal is not None:
            return
        self._terminal = terminal
        if self._late is not None:
            self._late.cancel()
        for ending in self._ending:
            if not ending.done():
                ending.set_result(terminal)
        self._wake()

    def _tell_the_rest(self, terminal: Terminal) -> None:
        if self._events and self._events[-1] is terminal:
            return
        if isinstance(terminal, Completed):
            self._deliver_missing(terminal)
        self._append(terminal)

    def _deliver_missing(self, completed: Completed) -> None:
        told = Counter[int]()
        for item in completed.objects:
            told[item.phrase_index] += 1
            if told[item.phrase_index] > self._delivered[item.phrase_index]:
                self._deliver(item)
        for index, reason in enumerate(completed.finish_reasons):
            self._end_phrase(PhraseEvent(index, reason))

    def _end_phrase(self, event: PhraseEvent) -> None:
        if event.phrase_index not in self._ended:
            self._ended.add(event.phrase_index)
            self._append(event)

    def _deliver(self, event: ObjectEvent) -> None:
        self._delivered[event.phrase_index] += 1
        self._append(event)

    def _append(self, event: Event) -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def _change(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting
