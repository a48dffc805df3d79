"""Notices an engine that hangs, so that its worker ends and others get what it holds."""

from __future__ import annotations

import asyncio
import time

from app.admission.execution import EngineDied, EngineLike
from engine.errors import EngineError
from engine.stats import Stats


class Watchdog:
    """Asks the engine's thread for its counts and watches that they move.

    Args:
        stall_s: how long the thread may be silent, or have sequences and launch no step.
    """

    def __init__(self, engine: EngineLike, stall_s: float) -> None:
        self._engine = engine
        self._stall_s = stall_s
        self._steps = -1
        self._moved = time.monotonic()
        """When a step was last launched, or there was no need for one."""
        self.stats: Stats | None = None
        """As of the last look."""

    async def look(self) -> None:
        """Raises EngineDied."""
        try:
            async with asyncio.timeout(self._stall_s):
                stats = await asyncio.wrap_future(self._engine.stats_soon())
        except EngineError as error:
            raise EngineDied(str(error)) from error
        except TimeoutError:
            raise EngineDied(f"its thread has been silent for {self._stall_s:g} seconds") from None
        now = time.monotonic()
        if stats.steps != self._steps or not stats.rows_active + stats.waiting:
            self._steps, self._moved = stats.steps, now
        elif now > self._moved + self._stall_s:
            raise EngineDied(f"it has work and launched no step for {self._stall_s:g} seconds")
        self.stats = stats
