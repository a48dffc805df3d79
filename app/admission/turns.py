"""Whose image is decoded next, and how many at a time."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import get_args

from app.admission.messages import Priority
from app.intake.cost import Cost

RESERVE = 4
"""One part in so many of the memory is kept from costly pictures."""


@dataclass(eq=False, slots=True)
class Turn:
    """The place of one image in the queue, then on a thread, then in memory."""

    tenant: str
    priority: Priority
    cost: Cost
    on_thread: bool = False
    in_memory: bool = False


@dataclass(slots=True)
class Lane:
    """The turns of one tenant that wait, in order.

    served: virtual time, at which its next turn is due: each turn moves it on by its price.
    """

    served: float = 0.0
    costly: deque[Turn] = field(default_factory=deque)
    others: deque[Turn] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.costly or self.others)


class Turns:
    """Chooses the next turn: interactive before batch, then the tenant that had the least, by price.

    A costly picture never takes the last thread, nor the last part of the memory: an ordinary one waits for
    ordinary ones only. One that needs more memory than the limit runs when no other costly one does.

    Args:
        threads: turns on a thread at a time, at least 2.
        memory: bytes that pictures in memory may take together.
    """

    def __init__(self, threads: int, memory: int) -> None:
        self._threads, self._memory = threads, memory
        self._lanes: dict[Priority, dict[str, Lane]] = {priority: {} for priority in get_args(Priority)}
        self._clocks: dict[Priority, float] = dict.fromkeys(get_args(Priority), 0.0)
        self._on_thread = 0
        self._costly = 0
        """Costly pictures from the start of their decoding until they leave the memory."""
        self._used = {True: 0, False: 0}
        """Bytes, of costly pictures and of others."""

    @property
    def costly(self) -> int:
        """Costly pictures that wait or are in memory."""
        return self._costly + sum(
            len(lane.costly) for lanes in self._lanes.values() for lane in lanes.values()
        )

    def add(self, turn: Turn) -> None:
        """From now on it waits."""
        lane = self._lanes[turn.priority].setdefault(turn.tenant, Lane())
        if not lane:  # what it did not use before is not saved up
            lane.served = max(lane.served, self._clocks[turn.priority])
        (lane.costly if turn.cost.costly else lane.others).append(turn)

    def remove(self, turn: Turn) -> None:
        """It waits no longer, if it did."""
        lane = self._lanes[turn.priority].get(turn.tenant)
        if lane is not None:
            for waiting in (lane.costly, lane.others):
                with suppress(ValueError):
                    waiting.remove(turn)
            self._forget_idle(turn.priority)

    def next(self) -> Turn | None:
        """Starts a turn, if one may start now."""
        for priority, lanes in self._lanes.items():
            for lane in sorted(filter(None, lanes.values()), key=lambda lane: lane.served):
                for waiting in (lane.others, lane.costly):
                    if waiting and self._fits(waiting[0].cost):
                        self._clocks[priority] = lane.served
                        lane.served += waiting[0].cost.price
                        turn = waiting.popleft()
                        self._start(turn)
                        self._forget_idle(priority)
                        return turn
        return None

    def off_thread(self, turn: Turn) -> None:
        """It is decoded, or failed. Harmless when repeated, as is the next one."""
        self._on_thread -= turn.on_thread
        turn.on_thread = False
        for lanes in self._lanes.values():
            if self._on_thread == 0 and not any(lanes.values()):
                lanes.clear()

    def out_of_memory(self, turn: Turn) -> None:
        """Its pixels are gone."""
        if turn.in_memory:
            self._used[turn.cost.costly] -= turn.cost.memory
            self._costly -= turn.cost.costly
            turn.in_memory = False

    def _start(self, turn: Turn) -> None:
        turn.on_thread = turn.in_memory = True
        self._on_thread += 1
        self._costly += turn.cost.costly
        self._used[turn.cost.costly] += turn.cost.memory

    def _forget_idle(self, priority: Priority) -> None:
        """Tenants that have nothing more, once the clock has passed what they had."""
        lanes, clock = self._lanes[priority], self._clocks[priority]
        for tenant in [name for name, lane in lanes.items() if not lane and lane.served <= clock]:
            del lanes[tenant]

    def _fits(self, cost: Cost) -> bool:
        if self._on_thread >= self._threads:
            return False
        reserve = self._memory // RESERVE
        costly, others = self._used[True], self._used[False]
        if cost.costly:
            within = costly + others + cost.memory <= self._memory
            alone = self._costly == 0 and others <= reserve
            return self._costly < self._threads - 1 and (within or alone)
        rest = reserve if self._costly_waits() else self._memory - costly
        return others == 0 or others + cost.memory <= rest

    def _costly_waits(self) -> bool:
        return any(lane.costly for lanes in self._lanes.values() for lane in lanes.values())
