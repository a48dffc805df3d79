"""The engine thread: launch, commit, finalize.

Nothing else touches the scheduler, the page pool, the cursors or the pipeline.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.deadlines import Deadlines
from engine.errors import EngineError, closed
from engine.events import FinishReason
from engine.executor import Executor, Placement
from engine.pages import PagePool
from engine.pipeline import InFlight, Pipeline
from engine.scheduler import Scheduler
from engine.sequence import Ask, Sequence
from engine.steps import Prefill, Step
from engine.trace import Trace
from grammars.cursors import Cursors

Mode = Literal["pipelined", "blocking"]
NO_SPAN = nullcontext()
log = logging.getLogger(__name__)


class EngineLoop:
    """Runs steps while there is work; other threads reach it through `post`."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        pool: PagePool,
        cursors: Cursors,
        mode: Mode,
        placement: Placement,
        trace: Trace | None,
    ) -> None:
        self.scheduler, self.executor, self.pool, self.cursors = scheduler, executor, pool, cursors
        self.mode, self.placement, self.trace = mode, placement, trace
        self.pipeline: Pipeline[Step] = Pipeline(after_commit=placement == "host")
        self._inbox: deque[Callable[[], None]] = deque()
        self._deadlines = Deadlines()
        self._wake = threading.Event()
        self._door = threading.Lock()
        self._closing = False
        self._ended = False
        self.decoded = 0
        """Tokens sampled for sequences that were not zombies."""
        self.idle_s = 0.0
        """Seconds without work."""
        self.broken: Exception | None = None
        """Why the thread ended by itself; always a bug."""
        self._thread = threading.Thread(target=self._run, name="pointbox-engine", daemon=True)
        self._thread.start()

    def post(self, work: Callable[[], None]) -> None:
        """Have the engine thread do something between two steps.  Raises EngineError once it has ended."""
        with self._door:
            if self._ended:
                raise closed()
            self._inbox.append(work)
        self._wake.set()

    def close(self) -> None:
        with suppress(EngineError):
            self.post(self._shut)
        self._thread.join()

    # --- one tick ------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """One round; False when there was nothing to do."""
        oldest = self.pipeline.oldest
        step = self.launch()
        if self.mode == "blocking":
            if step is not None:
                self.finalize(step)
                self.commit(step)
            return step is not None
        if step is not None and self.placement == "device":
            self.finalize(step)
        if oldest is not None:
            self.commit(oldest)
        if step is not None and self.placement == "host":
            self.finalize(step)
        return step is not None or oldest is not None

    def launch(self) -> InFlight[Step] | None:
        """Put the forward of the next step on the compute stream; it needs no mask.

        Sequences of a step that is known to have failed are not in it.
        """
        if (before := self.pipeline.oldest) is not None:
            self._check_device(before)
        work = self.scheduler.next_step() if self.pipeline.can_launch else None
        if work is None:
            return None
        step = self.pipeline.launch(work)
        with self._span("launch", step):
            self.executor.launch(step.slot, work, self.scheduler.length[work.rows] - 1)
            if isinstance(work, Prefill):
                for sequence in work.sequences:
                    sequence.pixels = None
        return step

    def finalize(self, step: InFlight[Step]) -> None:
        """Build the masks from the states just committed, sample, start the copy."""
        self.pipeline.finalize(step)
        with self._span("finalize", step):
            self.executor.finalize(step.slot, step.work, self.cursors)

    def commit(self, step: InFlight[Step]) -> None:
        """Wait for the step's tokens; advance grammars, tell of objects, finalize sequences."""
        self.pipeline.begin_commit(step)
        work = step.work
        with self._span("commit", step):
            try:
                sampled = self.executor.wait(step.slot, len(work.sequences))
                self._book(work, *sampled)
            except Exception as error:
                if not work.failed:
                    self._fail_step(work, error)
            for sequence in work.sequences:
                sequence.inflight_refs -= 1
                if sequence.finalized:
                    self._release_if_over(sequence)
        if self.trace is not None:
            self.trace.device(step.number, work.kind, len(work.sequences), self.executor.ran(step.slot))
        self.pipeline.end_commit(step)

    def _book(
        self, work: Step, positions: npt.NDArray[np.int64], probabilities: npt.NDArray[np.float64]
    ) -> None:
        """Take the sampled tokens of every sequence that is not a zombie."""
        sequences, rows = work.sequences, work.rows[: len(work.sequences)]
        if not (finite := np.isfinite(probabilities)).all():
            self._fail_overflowed([sequences[i] for i in np.flatnonzero(~finite)])
        alive = [i for i, s in enumerate(sequences) if not s.finalized]
        if len(alive) < len(sequences):
            sequences, rows = [sequences[i] for i in alive], rows[alive]
            positions, probabilities = positions[alive], probabilities[alive]
        if isinstance(work, Prefill):
            now = time.monotonic()
            for sequence in sequences:
                sequence.ask.first_token = sequence.ask.first_token or now
        complete = self.cursors.advance(rows, positions, probabilities)
        self.scheduler.tokens[rows] += 1
        self.decoded += len(rows)
        done = complete.nonzero()[0]
        items = dict(zip(done.tolist(), self.cursors.items(rows[done]), strict=True)) if len(done) else {}
        for i in (complete | self.cursors.ended(rows)).nonzero()[0].tolist():
            sequence = sequences[i]
            reason = sequence.offer(items[i]) if i in items else "stop"
            if reason is not None:
                self._end(sequence, reason)
            elif sequence.ask.over:  # its listener raised
                self._drop_all(sequence.ask)
        if self.scheduler.has_runs:
            for sequence in sequences:
                if not sequence.finalized and self.scheduler.no_room_for_run(sequence):
                    self._end(sequence, "length")
        for sequence in work.last:
            if not sequence.finalized:
                self._end(sequence, "length")

    # --- sequences come and go -----------------------------------------------------------------------

    def admit(self, ask: Ask, prepared: list[Sequence] | EngineError) -> None:
        """On the engine thread: queue the sequences of a prepared request, or say why there are none."""
        if ask.over:
            return
        if isinstance(prepared, EngineError):
            ask.fail(prepared)
        elif self._ended:
            ask.fail(closed())
        elif not all(self.scheduler.fits_ever(s) for s in prepared):
            reason = "this request needs more KV pages than the engine has: raise kv_memory"
            ask.fail(EngineError("too-large", reason))
        else:
            for sequence in prepared:
                self.scheduler.add(sequence)
            self._deadlines.add(ask)

    def cancel(self, ask: Ask) -> None:
        """On the engine thread: nothing more is said of this request."""
        ask.fail(EngineError("cancelled", "the request was cancelled"))
        self._drop_all(ask)

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        sequence.finalized = True
        self.scheduler.finalized(sequence)
        tokens = int(self.scheduler.tokens[sequence.row]) if sequence.row >= 0 else 0
        sequence.ask.sequence_ended(sequence.phrase_index, reason, tokens)

    def _release_if_over(self, sequence: Sequence) -> None:
        if sequence.inflight_refs == 0:
            self.scheduler.release(sequence)

    def _drop(self, sequence: Sequence) -> None:
        """Finalize a sequence at any moment of its life, saying nothing."""
        sequence.finalized = True
        if sequence.row < 0:
            self.scheduler.remove_waiting(sequence)
        else:
            self.scheduler.finalized(sequence)
            self._release_if_over(sequence)

    def _drop_all(self, ask: Ask) -> None:
        """Finalize what is left of a request that has been told its end."""
        for sequence in self._left_of(ask):
            self._drop(sequence)

    def _left_of(self, ask: Ask) -> list[Sequence]:
        return [s for s in self.scheduler.sequences() if s.ask is ask and not s.finalized]

    def _fail_overflowed(self, sequences: list[Sequence]) -> None:
        """Logits of these sequences are NaN or infinite: no token can be taken. Zombies may be among them."""
        reason = "the model's output is not finite: the number format overflowed; use bfloat16 or float32"
        for ask in {s.ask: None for s in sequences if not s.finalized}:
            log.error("a request failed: %s", reason)
            ask.fail(EngineError("internal", reason))
            self._drop_all(ask)

    def _check_device(self, step: InFlight[Step]) -> None:
        """Fail a step in flight whose device work has already raised."""
        error = self.executor.known_error(step.slot)
        if error is not None and not step.work.failed:
            self._fail_step(step.work, error)

    def _fail_step(self, work: Step, error: BaseException) -> None:
        """The device failed: every sequence of the step fails, and with it whoever uses its images."""
        log.error("a step failed: %s", error)
        work.failed = True
        lost = {s.ask: None for s in work.sequences}
        if isinstance(work, Prefill):
            for prefix in work.new_prefixes:
                self.pool.forget_prefix(prefix)
                lost |= {s.ask: None for s in self.scheduler.sequences() if s.prefix is prefix}
            lost |= {s.ask: None for s in self.scheduler.forget_adapters(work)}
        memory = "out of memory" in str(error).lower()
        for ask in lost:
            ask.fail(EngineError("out-of-memory" if memory else "internal", f"the model failed: {error}"))
            self._drop_all(ask)

    def _check_deadlines(self) -> None:
        for ask in self._deadlines.passed(time.monotonic()):
            if ask.found:
                for sequence in self._left_of(ask):
                    self._drop(sequence)
                    tokens = int(self.scheduler.tokens[sequence.row]) if sequence.row >= 0 else 0
                    ask.sequence_ended(sequence.phrase_index, "deadline", tokens)
            else:
                ask.fail(EngineError("deadline-exceeded", "the deadline passed before an object was found"))
                self._drop_all(ask)

    # --- the thread ----------------------------------------------------------------------------------

    def turn(self) -> bool:
        """What was posted, what is too late, then one tick; False when the tick had nothing to do."""
        while self._inbox:
            self._inbox.popleft()()
        self._check_deadlines()
        return not self._closing and self.tick()

    def drain(self) -> None:
        """Commit what is in flight."""
        while (oldest := self.pipeline.oldest) is not None:
            if not oldest.finalized:
                self.finalize(oldest)
            self.commit(oldest)

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.clear()
                if not self.turn() and not self._closing:
                    began = time.monotonic()
                    self._wake.wait()
                    self.idle_s += time.monotonic() - began
        except Exception as error:
            log.exception("the engine thread ended")
            self.broken = error
            for ask in {s.ask: None for s in self.scheduler.sequences()}:
                ask.fail(EngineError("closed", f"the engine broke: {error}"))
        with self._door:
            self._ended = True
        while self._inbox:
            with suppress(Exception):  # whoever waits for an answer gets it, or the error
                self._inbox.popleft()()

    def _shut(self) -> None:
        self.drain()
        for ask in {s.ask: None for s in self.scheduler.sequences()}:
            ask.fail(closed())
            self._drop_all(ask)
        self._closing = True

    def _span(self, name: str, step: InFlight[Step]) -> AbstractContextManager[None]:
        if self.trace is None:
            return NO_SPAN
        return self.trace.span(name, step.number, step.work.kind, len(step.work.sequences))
