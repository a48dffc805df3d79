"""Tasks that live as long as their process: none ends without a word, none ends for one bad item."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import structlog

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
CALM_S = 30.0
"""A task that ran for so long begins again with the first pause."""

RESTARTS: Counter[str] = Counter()
"""How often each task of this process was begun again."""

log = structlog.get_logger(__name__)


async def supervised(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Runs a task until it returns or is cancelled. After an exception it is begun again, later each time.

    `run` itself handles what may be expected, so that an exception that comes here is a fault of ours: it is
    logged with its traceback and counted.

    Args:
        name: for the log and the figures.
    """
    pause = FIRST_PAUSE_S
    while True:
        began = time.monotonic()
        try:
            return await run()
        except Exception:
            if time.monotonic() > began + CALM_S:
                pause = FIRST_PAUSE_S
            RESTARTS[name] += 1
            log.exception("task failed and is begun again", task=name, pause_s=pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)
