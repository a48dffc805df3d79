"""Guesses whether Redis has an image, so that it travels once and in one round trip."""

from __future__ import annotations

import time

KNOWN = 1000
CAUTION_S = 1.0
"""After a refusal, requests ask first: a full queue takes no image."""


class SentImages:
    """Remembers the last images that this process sent. A wrong guess costs a round trip, or bytes."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}
        self._refused = float("-inf")

    def seems_missing(self, digest: str) -> bool:
        """Whether the bytes had better come with the first question."""
        return digest not in self._known and time.monotonic() > self._refused + CAUTION_S

    def note(self, digest: str, admitted: bool) -> None:
        """What came of it."""
        if not admitted:
            self._refused = time.monotonic()
            return
        self._known.pop(digest, None)
        self._known[digest] = None
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]
