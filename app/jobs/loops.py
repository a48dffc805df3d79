"""A task that goes on for as long as its process: no error ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from app.admission.errors import AdmissionError
from app.db.database import DATABASE_ERRORS, fault_of
from app.supervised import RESTARTS

PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0

log = structlog.get_logger(__name__)


async def again_and_again(what: str, step: Callable[[], Awaitable[bool]], stop: asyncio.Event) -> None:
    """Call `step` until `stop`: at once if it says that there was something to do, else after a pause.

    An error that it raises is logged, and it is called again after a pause that grows from error to error.
    """
    errors = 0
    while not stop.is_set():
        pause_s = PAUSE_S
        try:
            if await step():
                pause_s = 0.0
            errors = 0
        except (*DATABASE_ERRORS, AdmissionError) as error:
            log.warning(f"{what} wait", error=fault_of(error))
        except Exception:
            pause_s = min(PAUSE_S * 2**errors, LONGEST_PAUSE_S)
            errors += 1
            RESTARTS[what] += 1
            log.exception(f"{what} go on after an error", pause_s=pause_s)
        if pause_s:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
