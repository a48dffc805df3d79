"""Puts requests into the queue, each image once and in one round trip where that can be guessed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.admission.images import ImageRef, name_of
from app.admission.scripts import Argument, Scripts

KNOWN = 1000
CAUTION_S = 1.0
"""After a refusal, requests ask first: a full queue takes no image."""
STAGED_MS = 10_000
"""Bytes that go ahead of their request stay so long when it does not follow."""


Looks = tuple[int, bytes, bytes]
Arguments = Callable[[], Awaitable[tuple[Argument, ...]]]


class Sender:
    """Remembers how the images looked that were sent last. A wrong guess costs a round trip, or bytes."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._known: dict[Looks, None] = {}
        self._refused = float("-inf")

    async def admit(
        self, image: bytes | ImageRef, before: tuple[Argument, ...], after: tuple[Argument, ...]
    ) -> list[Any]:
        """What the script `admit` returns.

        Args:
            before, after: its arguments on both sides of the image; the second of all is the request's id.
        """
        name: tuple[str, int] | None = None

        async def arguments() -> tuple[Argument, ...]:
            nonlocal name
            name = name or await name_of(image)
            return *before, *name, *after

        staged = f"{self._scripts.prefix}staged:{before[1]!s}"
        ahead = image if isinstance(image, bytes) and self._seems_missing(image) else None
        answer = await self._admit(arguments, staged, ahead)
        if answer[0] == b"need-image" and ahead is None:
            data = image if isinstance(image, bytes) else await image.load()
            answer = await self._admit(arguments, staged, data)
        if isinstance(image, bytes):
            self._note(image, admitted=answer[0] == b"admitted")
        return answer

    async def _admit(self, arguments: Arguments, staged: str, ahead: bytes | None) -> list[Any]:
        """Repeated once when the reply gets lost: the script enqueues an id once."""
        try:
            return await self._ask(arguments, staged, ahead)
        except (RedisConnectionError, RedisTimeoutError, OSError):
            return await self._ask(arguments, staged, ahead)

    async def _ask(self, arguments: Arguments, staged: str, ahead: bytes | None) -> list[Any]:
        """The bytes go ahead: a script would copy them twice, and so they travel while they are hashed."""

        async def with_bytes() -> tuple[Argument, ...]:
            return *await arguments(), staged

        answer: list[Any]
        if ahead is None:
            answer = await self._scripts.run("admit", *await arguments())
        else:
            put = "SET", staged, ahead, "PX", STAGED_MS
            answer = await self._scripts.run_after(put, "admit", with_bytes)
        return answer

    def _seems_missing(self, image: bytes) -> bool:
        """Whether the bytes had better come with the first question."""
        return _looks(image) not in self._known and time.monotonic() > self._refused + CAUTION_S

    def _note(self, image: bytes, admitted: bool) -> None:
        """What came of it."""
        if not admitted:
            self._refused = time.monotonic()
            return
        looks = _looks(image)
        self._known.pop(looks, None)
        self._known[looks] = None
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]


def _looks(image: bytes) -> Looks:
    """Nearly always other ones for another image, and nothing to compute."""
    middle = len(image) // 2
    return len(image), image[middle : middle + 32], image[-32:]
