"""Callers are answered in time by our own clock, whatever another service or its clock does."""

from __future__ import annotations

import asyncio
from types import TracebackType

from app.problems import ProblemError

LATE_S = 0.4
"""An answer may be so much later than its deadline: the engine ends there itself, keeping what it found."""
DETAIL = "The request was not answered in time."


class AnsweredWithin:
    """An async context manager around what a caller waits for.

    Args:
        seconds: that are left until the caller's deadline.

    Raises:
        ProblemError: deadline-exceeded, `LATE_S` after it; what was going on inside is cancelled.
    """

    def __init__(self, seconds: float) -> None:
        self._scope = asyncio.timeout(max(seconds, 0.0) + LATE_S)

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:
            raise ProblemError("deadline-exceeded", DETAIL) from None
