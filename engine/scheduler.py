"""Which step comes next: who waits, who has a row, and whether there are pages for them."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

import torch

from engine.pages import PagePool, Prefix
from engine.sequence import Sequence


@dataclass(eq=False, slots=True)
class Prefill:
    """New rows, in order, and the images whose KV this step computes."""

    sequences: list[Sequence]
    new_prefixes: dict[Prefix, torch.Tensor] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Decode:
    """One more token for every row that may have one."""

    sequences: list[Sequence]


Step = Prefill | Decode


class Scheduler:
    """First come, first served; prefill and decode take turns while both have work.

    A sequence gets all the pages that it can need with its row, so a running one never waits for pages.

    prefill_tokens: image and prompt tokens that one prefill step computes at most (one sequence always goes).
    """

    def __init__(
        self,
        pool: PagePool,
        page_size: int,
        max_batch: int,
        image_tokens: int,
        shared_prefix: bool,
        prefill_tokens: int,
    ) -> None:
        self._pool, self._page_size, self._image_tokens = pool, page_size, image_tokens
        self._shared, self._prefill_tokens = shared_prefix, prefill_tokens
        self._waiting: deque[Sequence] = deque()
        self._free_rows = list(range(max_batch - 1, -1, -1))
        self._running: list[Sequence] = []
        self._last_was_prefill = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    def sequences(self) -> list[Sequence]:
        """Everyone who waits or has a row."""
        return [*self._running, *self._waiting]

    def add(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    def remove_waiting(self, sequence: Sequence) -> None:
        self._waiting.remove(sequence)

    def fits_ever(self, sequence: Sequence) -> bool:
        return self._own_pages(sequence) + self._prefix_pages <= self._pool.total

    def next_step(self) -> Step | None:
        """The step to launch now; its sequences are counted as launched."""
        ready = [s for s in self._running if not s.finalized and s.launched < s.max_tokens]
        step: Step | None = None
        if self._waiting and self._free_rows and not (ready and self._last_was_prefill):
            step = self._prefill()
        if step is None and ready:
            step = Decode(ready)
            for sequence in ready:
                sequence.length += 1
        if step is not None:
            self._last_was_prefill = isinstance(step, Prefill)
            for sequence in step.sequences:
                sequence.launched += 1
                sequence.inflight_refs += 1
        return step

    def release(self, sequence: Sequence) -> None:
        """Give back row and pages of a finalized sequence that no step in flight holds."""
        self._running.remove(sequence)
        self._free_rows.append(sequence.row)
        self._pool.release(sequence.pages)
        sequence.pages = []
        if sequence.prefix is not None:
            self._pool.release_prefix(sequence.prefix)
            sequence.prefix = None

    @property
    def _prefix_pages(self) -> int:
        return self._image_tokens // self._page_size if self._shared else 0

    def _own_pages(self, sequence: Sequence) -> int:
        tokens = len(sequence.prompt) + sequence.max_tokens
        if not self._shared:
            tokens += self._image_tokens
        return -(-tokens // self._page_size)

    def _prefill(self) -> Prefill | None:
        step = Prefill([])
        budget = self._prefill_tokens
        while self._waiting and self._free_rows:
            sequence = self._waiting[0]
            cost = self._cost(sequence)
            if step.sequences and cost > budget:
                break
            if not self._admit(sequence, step):
                break
            budget -= cost
            self._waiting.popleft()
            step.sequences.append(sequence)
        return step if step.sequences else None

    def _cost(self, sequence: Sequence) -> int:
        cached = self._shared and self._pool.knows(sequence.image_key)
        return len(sequence.prompt) + (0 if cached else self._image_tokens)

    def _admit(self, sequence: Sequence, step: Prefill) -> bool:
        """Give a sequence its row and pages, and its prefix if the model shares one."""
        own = self._own_pages(sequence)
        if self._shared:
            known = self._pool.knows(sequence.image_key)
            revived = self._prefix_pages if self._pool.is_idle(sequence.image_key) else 0
            if not self._pool.can_take(own + (revived if known else self._prefix_pages)):
                return False
            sequence.prefix = self._pool.use_prefix(sequence.image_key)
            if sequence.prefix is None:
                sequence.prefix = self._pool.add_prefix(sequence.image_key, self._prefix_pages)
                assert sequence.pixels is not None
                step.new_prefixes[sequence.prefix] = sequence.pixels
            else:
                sequence.ask.cached_tokens += self._image_tokens
        elif not self._pool.can_take(own):
            return False
        sequence.pages = self._pool.take(own)
        sequence.row = self._free_rows.pop()
        sequence.length = self._image_tokens + len(sequence.prompt)
        sequence.ask.input_tokens += sequence.length
        sequence.ask.launched = sequence.ask.launched or time.monotonic()
        self._running.append(sequence)
        return True
