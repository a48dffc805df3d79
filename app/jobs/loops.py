"""A task that goes on for as long as its process: no error ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from app.admission.errors import AdmissionError
from app.db.database import DATABASE_ERRORS, fault_of

PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0

log = structlog.get_logger(__name__)


async def again_and_again(what: str, step: Callable[[], Awaitable[bool]], stop: asyncio.Event) -> None:
    """Call `step` until `stop`: at once if it says that there was something to do, else after a pause.

    An error that it raises is logged, and it is called again after a pause that grows from error to error.
    """
    pause_s = PAUSE_S
    while not stop.is_set():
        try:
            if await step():
                pause_s = PAUSE_S
                continue
            pause_s = PAUSE_S
        except (*DATABASE_ERRORS, AdmissionError) as error:
            log.warning(f"{what} wait", error=fault_of(error))
        except Exception:
            log.exception(f"{what} go on after an error", pause_s=pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
