"""When requests must end."""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections.abc import Iterator

from engine.sequence import Ask


class Deadlines:
    """A heap of requests by deadline; one that is over does not stay for it, nor does its image."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, weakref.ref[Ask]]] = []
        self._numbers = itertools.count()

    def add(self, ask: Ask) -> None:
        """Requests without a deadline are left out."""
        if ask.request.deadline is not None:
            entry = ask.request.deadline, next(self._numbers), weakref.ref(ask)
            heapq.heappush(self._heap, entry)

    def passed(self, now: float) -> Iterator[Ask]:
        """Takes out the requests whose deadline, in seconds of `time.monotonic()`, has passed."""
        while self._heap and self._heap[0][0] <= now:
            ask = heapq.heappop(self._heap)[2]()
            if ask is not None:
                yield ask
