"""Which step comes next: who waits, who has a row, and whether there are pages for them."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from engine.adapters.slots import AdapterSlots
from engine.pages import PagePool
from engine.request import Priority
from engine.sequence import Sequence
from engine.steps import Decode, Extend, Prefill, Step
from grammars.cursors import Cursors, Rows


@dataclass(frozen=True, slots=True)
class Limits:
    """What the scheduler keeps to.

    max_batch: rows.  page_size: tokens of a page.
    shared_prefix: whether the KV of an image serves every phrase.
    prefill_tokens: image and prompt tokens that one prefill step computes at most (one sequence always goes).
    batch_share: part of the rows that batch sequences hold at most while interactive ones are there.
    """

    max_batch: int
    page_size: int
    shared_prefix: bool
    prefill_tokens: int
    batch_share: float


class Scheduler:
    """First come, first served within a priority; prefill takes turns with decode while both have work.

    A sequence gets all the pages that it can need with its row, and a slot for its adapter, so a running one
    never waits.
    Between priorities the next row goes to the one that holds the smaller part of its share, so neither
    starves.

    length [rows]: tokens of a row whose KV is written once every launched step has run.
    tokens [rows]: tokens of its answer that were committed.
    """

    def __init__(
        self,
        pool: PagePool,
        limits: Limits,
        cursors: Cursors,
        has_runs: bool,
        adapters: AdapterSlots | None = None,
    ) -> None:
        self._pool, self._limits, self._cursors, self.has_runs = pool, limits, cursors, has_runs
        self.adapters = adapters or AdapterSlots(0)
        self._waiting: dict[Priority, deque[Sequence]] = {"interactive": deque(), "batch": deque()}
        self._holding: dict[Priority, int] = {"interactive": 0, "batch": 0}
        self._free_rows = list(range(limits.max_batch - 1, -1, -1))
        self._running: list[Sequence] = []
        self._ready: tuple[list[Sequence], Rows, bool] | None = None
        """Everyone who may go on, their rows, and whether one is warm, until that changes."""
        self._last_was_prefill = False
        self.length = np.ones(limits.max_batch + 1, np.int64)  # the reserved row keeps its one token
        self.tokens = np.zeros(limits.max_batch + 1, np.int64)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        return len(self._running)

    def sequences(self) -> list[Sequence]:
        """Everyone who waits or has a row."""
        return [*self._running, *self._waiting["interactive"], *self._waiting["batch"]]

    def add(self, sequence: Sequence) -> None:
        self._waiting[sequence.ask.request.priority].append(sequence)

    def remove_waiting(self, sequence: Sequence) -> None:
        self._waiting[sequence.ask.request.priority].remove(sequence)

    def finalized(self, sequence: Sequence) -> None:
        """No further step for a running sequence."""
        self._ready = None

    def no_room_for_run(self, sequence: Sequence) -> bool:
        """Whether a run is due that the sequence's pages do not hold."""
        if not self._cursors.run_due(np.array([sequence.row]))[0]:
            return False
        return sequence.used + 1 + len(self._cursors.run(sequence.row, sequence.label)) > sequence.max_tokens

    def fits_ever(self, sequence: Sequence) -> bool:
        return self._own_pages(sequence) + self._prefix_pages(sequence) <= self._pool.total

    def next_step(self) -> Step | None:
        """The step to launch now; its sequences are counted as launched."""
        decode = self._ready_decode()
        due: list[Sequence] = []
        if self.has_runs:
            decode, due = self._split_runs(decode)
        step: Step | None = None
        if self._free_rows and self.waiting and not ((decode or due) and self._last_was_prefill):
            step = self._prefill()
        self._last_was_prefill = step is not None
        if step is None:
            step = self._extend(due) if due else decode
        if step is not None:
            self._count(step)
        return step

    def release(self, sequence: Sequence) -> None:
        """Give back row and pages of a finalized sequence that no step in flight holds."""
        self._running.remove(sequence)
        self._holding[sequence.ask.request.priority] -= 1
        self._free_rows.append(sequence.row)
        self._pool.release(sequence.pages)
        sequence.pages = []
        if sequence.prefix is not None:
            self._pool.release_prefix(sequence.prefix)
            sequence.prefix = None
        if sequence.ask.request.adapter is not None:
            self.adapters.release(sequence.ask.request.adapter)

    def forget_adapters(self, step: Prefill) -> list[Sequence]:
        """Filling slots failed: everyone who uses them, the sequences of the step and others."""
        for adapter in step.new_adapters.values():
            self.adapters.forget(adapter)
        return [s for s in self._running if s.adapter_slot in step.new_adapters]

    def _count(self, step: Step) -> None:
        """Every sequence of a launched step gets one more token, and those with no room left are noted."""
        if isinstance(step, Decode):
            self.length[step.rows[: len(step.sequences)]] += 1
        for sequence in step.sequences:
            sequence.launched += 1
            sequence.inflight_refs += 1
            sequence.used = used = sequence.used + 1
            if used >= sequence.max_tokens:
                step.last.append(sequence)
        if step.last or isinstance(step, Prefill):
            self._ready = None

    def _ready_decode(self) -> Decode | None:
        if self._ready is None:
            ready = [s for s in self._running if not s.finalized and s.used < s.max_tokens]
            self._ready = ready, self._padded(ready), _any_warm(ready)
        return Decode(*self._ready) if self._ready[0] else None

    def _split_runs(self, decode: Decode | None) -> tuple[Decode | None, list[Sequence]]:
        """Rows whose run is due may extend, rows about to learn whether one is sit out, the others decode."""
        if decode is None:
            return None, []
        rows = decode.rows[: len(decode.sequences)]
        due, soon = self._cursors.run_due(rows), self._cursors.before_run(rows)
        extending = [
            s for s, is_due in zip(decode.sequences, due, strict=True) if is_due and not s.inflight_refs
        ]
        going = [
            s
            for s, is_due, is_soon in zip(decode.sequences, due, soon, strict=True)
            if not is_due and not (is_soon and s.inflight_refs)
        ]
        return Decode(going, self._padded(going), _any_warm(going)) if going else None, extending

    def _extend(self, sequences: list[Sequence]) -> Extend:
        """Passes the runs: only for a step that is launched."""
        step = Extend(sequences, self._padded(sequences), _any_warm(sequences))
        for sequence in sequences:
            row = sequence.row
            run = self._cursors.run(row, sequence.label)
            step.runs.append([self._cursors.last_token(row), *run])
            step.starts.append(int(self.length[row]))
            self._cursors.pass_run(row)
            self.length[row] += 1 + len(run)
            self.tokens[row] += len(run)
            sequence.used += len(run)
        return step

    def _padded(self, sequences: list[Sequence]) -> Rows:
        """Rows, filled up with the reserved one to a power of two or the whole batch."""
        count = max(1, len(sequences))
        bucket = min(self._limits.max_batch, 1 << (count - 1).bit_length())
        rows = np.full(bucket, self._limits.max_batch, np.int64)
        rows[: len(sequences)] = [s.row for s in sequences]
        return rows

    def _prefix_pages(self, sequence: Sequence) -> int:
        limits = self._limits
        return -(-sequence.image_tokens // limits.page_size) if limits.shared_prefix else 0

    def _own_pages(self, sequence: Sequence) -> int:
        """Of all that it does not share; a last page that the prefix does not fill is copied."""
        size = self._limits.page_size
        image = sequence.image_tokens % size if self._limits.shared_prefix else sequence.image_tokens
        return -(-(image + len(sequence.prompt) + sequence.max_tokens) // size)

    def _prefill(self) -> Prefill | None:
        step = Prefill([], np.empty(0, np.int64))
        budget = self._limits.prefill_tokens
        while self._free_rows and (queue := self._next_queue()) is not None:
            sequence = queue[0]
            cost = self._cost(sequence)
            if (step.sequences and cost > budget) or not self._admit(sequence, step):
                break
            budget -= cost
            queue.popleft()
            step.sequences.append(sequence)
        if not step.sequences:
            return None
        step.rows, step.warm = self._padded(step.sequences), _any_warm(step.sequences)
        return step

    def _next_queue(self) -> deque[Sequence] | None:
        """Whose turn it is to get a row."""
        interactive, batch = self._waiting["interactive"], self._waiting["batch"]
        share = self._limits.batch_share
        alone = not interactive and not self._holding["interactive"]
        allowed = alone or self._holding["batch"] < max(1, int(share * self._limits.max_batch))
        if not batch or not allowed:
            return interactive or None
        if not interactive:
            return batch
        behind = self._holding["batch"] * (1 - share) < self._holding["interactive"] * share
        return batch if behind else interactive

    def _cost(self, sequence: Sequence) -> int:
        cached = self._limits.shared_prefix and self._pool.knows(sequence.prefix_key)
        return len(sequence.prompt) + (0 if cached else sequence.image_tokens)

    def _admit(self, sequence: Sequence, step: Prefill) -> bool:
        """Give a sequence its row and pages, and its prefix if the model shares one."""
        own = self._own_pages(sequence)
        if not self._pool.can_take(own + self._pages_for_prefix(sequence)):
            return False
        if not self._join_adapter(sequence, step):
            return False
        if self._limits.shared_prefix:
            self._join_prefix(sequence, step)
        sequence.pages = self._pool.take(own)
        sequence.row = self._free_rows.pop()
        tokens = sequence.image_tokens + len(sequence.prompt)
        self.length[sequence.row], self.tokens[sequence.row] = tokens, 0
        self._cursors.start(sequence.row, sequence.ask.request.task, sequence.frame)
        sequence.ask.input_tokens += tokens
        sequence.ask.launched = sequence.ask.launched or time.monotonic()
        self._holding[sequence.ask.request.priority] += 1
        self._running.append(sequence)
        return True

    def _join_adapter(self, sequence: Sequence, step: Prefill) -> bool:
        """False while others use every slot."""
        adapter = sequence.ask.request.adapter
        if adapter is None:
            return True
        taken = self.adapters.take(adapter)
        if taken is None:
            return False
        sequence.adapter_slot, must_fill = taken
        if must_fill:
            step.new_adapters[sequence.adapter_slot] = adapter
        return True

    def _pages_for_prefix(self, sequence: Sequence) -> int:
        """Pages that the image's prefix takes from those that are free or idle."""
        in_use = self._pool.knows(sequence.prefix_key) and not self._pool.is_idle(sequence.prefix_key)
        return 0 if in_use else self._prefix_pages(sequence)

    def _join_prefix(self, sequence: Sequence, step: Prefill) -> None:
        sequence.prefix = self._pool.use_prefix(sequence.prefix_key)
        if sequence.prefix is None:
            sequence.prefix = self._pool.add_prefix(sequence.prefix_key, self._prefix_pages(sequence))
            step.new_prefixes[sequence.prefix] = sequence
        else:
            sequence.ask.cached_tokens += sequence.image_tokens


def _any_warm(sequences: list[Sequence]) -> bool:
    return any(s.ask.request.temperature for s in sequences)
