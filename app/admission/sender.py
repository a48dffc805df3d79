"""Puts requests into the queue, each image once and in one round trip where that can be guessed."""

from __future__ import annotations

import time
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.admission.images import ImageRef
from app.admission.scripts import Argument, Scripts

KNOWN = 1000
CAUTION_S = 1.0
"""After a refusal, requests ask first: a full queue takes no image."""
STAGED_MS = 10_000
"""Bytes that go ahead of their request stay so long when it does not follow."""


class Sender:
    """Remembers the last images that this process sent. A wrong guess costs a round trip, or bytes."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._known: dict[str, None] = {}
        self._refused = float("-inf")

    async def admit(
        self, arguments: tuple[Argument, ...], ref: ImageRef, image: bytes | ImageRef
    ) -> list[Any]:
        """What the script `admit` returns.

        Args:
            arguments: of the script, up to the key of the bytes; the second is the request's id.
            image: the bytes that `ref` names, or again how to get them.
        """
        if isinstance(image, bytes) and self._seems_missing(ref.sha256):
            answer = await self._admit(arguments, image)
        else:
            answer = await self._admit(arguments)
            if answer[0] == b"need-image":
                answer = await self._admit(arguments, await ref.load())
        self._note(ref.sha256, admitted=answer[0] == b"admitted")
        return answer

    async def _admit(self, arguments: tuple[Argument, ...], image: bytes | None = None) -> list[Any]:
        """Repeated once when the reply gets lost: the script enqueues an id once."""
        try:
            return await self._ask(arguments, image)
        except (RedisConnectionError, RedisTimeoutError, OSError):
            return await self._ask(arguments, image)

    async def _ask(self, arguments: tuple[Argument, ...], image: bytes | None) -> list[Any]:
        """The bytes go ahead: a script would copy them twice."""
        if image is None:
            answer: list[Any] = await self._scripts.run("admit", *arguments)
        else:
            staged = f"{self._scripts.prefix}staged:{arguments[1]!s}"
            put = "SET", staged, image, "PX", STAGED_MS
            answer = await self._scripts.run_after(put, "admit", *arguments, staged)
        return answer

    def _seems_missing(self, digest: str) -> bool:
        """Whether the bytes had better come with the first question."""
        return digest not in self._known and time.monotonic() > self._refused + CAUTION_S

    def _note(self, digest: str, admitted: bool) -> None:
        """What came of it."""
        if not admitted:
            self._refused = time.monotonic()
            return
        self._known.pop(digest, None)
        self._known[digest] = None
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]
