"""The engine thread: launch, commit, finalize.

Nothing else touches the scheduler, the page pool or the pipeline.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from engine.errors import EngineError
from engine.events import FinishReason
from engine.executor import Executor
from engine.pages import PagePool
from engine.pipeline import InFlight, Pipeline
from engine.scheduler import Decode, Prefill, Scheduler, Step
from engine.sequence import Ask, Sequence
from engine.trace import Trace

Mode = Literal["pipelined", "blocking"]


class EngineLoop:
    """Runs steps while there is work; other threads reach it through `post`."""

    def __init__(
        self, scheduler: Scheduler, executor: Executor, pool: PagePool, mode: Mode, trace: Trace | None
    ) -> None:
        self.scheduler, self.executor, self.pool = scheduler, executor, pool
        self.mode, self.trace = mode, trace
        self.pipeline: Pipeline[Step] = Pipeline()
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="pointbox-engine", daemon=True)
        self._thread.start()

    def post(self, work: Callable[[], None]) -> None:
        """Have the engine thread do something between two steps."""
        self._inbox.append(work)
        self._wake.set()

    def close(self) -> None:
        self.post(self._shut)
        self._thread.join()

    # --- one tick ------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """One round; False when there was nothing to do."""
        if self.mode == "blocking":
            if (step := self.launch()) is not None:
                self.finalize(step)
                self.commit(step)
            return step is not None
        oldest = self.pipeline.oldest
        step = self.launch()
        if oldest is not None:
            self.commit(oldest)
        if step is not None:
            self.finalize(step)
        return step is not None or oldest is not None

    def launch(self) -> InFlight[Step] | None:
        """Put the forward of the next step on the compute stream; it needs no mask."""
        work = self.scheduler.next_step() if self.pipeline.can_launch else None
        if work is None:
            return None
        step = self.pipeline.launch(work)
        with self._span("launch", step):
            if isinstance(work, Prefill):
                for sequence in work.sequences:
                    self.executor.place(sequence)
                self.executor.launch_prefill(step.slot, work.sequences, work.new_prefixes)
                for sequence in work.sequences:
                    sequence.pixels = None
            else:
                self.executor.launch_decode(step.slot, work.sequences)
        return step

    def finalize(self, step: InFlight[Step]) -> None:
        """Build the masks from the states just committed, sample, start the copy."""
        self.pipeline.finalize(step)
        with self._span("finalize", step):
            self.executor.finalize(step.slot, step.work.sequences)

    def commit(self, step: InFlight[Step]) -> None:
        """Wait for the step's tokens; advance grammars, tell of objects, finalize sequences."""
        self.pipeline.begin_commit(step)
        with self._span("commit", step):
            try:
                sampled = self.executor.wait(step.slot, len(step.work.sequences))
            except Exception as error:
                self._fail_step(step.work, error)
            else:
                forced = self.executor.was_forced(step.slot)
                now = time.monotonic()
                rows = zip(step.work.sequences, sampled.positions, sampled.probabilities, forced, strict=True)
                for sequence, position, probability, was_forced in rows:
                    if not sequence.finalized:
                        sequence.ask.first_token = sequence.ask.first_token or now
                        reason = sequence.accept(position, probability, was_forced)
                        if reason is not None:
                            self._end(sequence, reason)
            for sequence in step.work.sequences:
                sequence.inflight_refs -= 1
                self._release_if_over(sequence)
        self.pipeline.end_commit(step)

    # --- sequences come and go -----------------------------------------------------------------------

    def admit(self, ask: Ask, prepared: list[Sequence] | EngineError) -> None:
        """On the engine thread: queue the sequences of a prepared request, or say why there are none."""
        if ask.over:
            return
        if isinstance(prepared, EngineError):
            ask.fail(prepared)
        elif not all(self.scheduler.fits_ever(s) for s in prepared):
            ask.fail(EngineError("too-large", "this request needs more KV pages than the engine has"))
        else:
            for sequence in prepared:
                self.scheduler.add(sequence)

    def cancel(self, ask: Ask) -> None:
        """On the engine thread: nothing more is said of this request."""
        ask.fail(EngineError("cancelled", "the request was cancelled"))
        self._finalize_all(ask)

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        sequence.finalized = True
        sequence.ask.sequence_ended(sequence.phrase_index, reason)

    def _release_if_over(self, sequence: Sequence) -> None:
        if sequence.finalized and sequence.inflight_refs == 0:
            self.scheduler.release(sequence)

    def _finalize_all(self, ask: Ask) -> None:
        """Finalize what is left of a request that has been told its end."""
        for sequence in self.scheduler.sequences():
            if sequence.ask is ask and not sequence.finalized:
                self._drop(sequence)

    def _drop(self, sequence: Sequence) -> None:
        """Finalize a sequence at any moment of its life, saying nothing."""
        sequence.finalized = True
        if sequence.row < 0:
            self.scheduler.remove_waiting(sequence)
        else:
            self._release_if_over(sequence)

    def _fail_step(self, work: Step, error: Exception) -> None:
        """The device failed: every sequence of the step fails, and with it whoever uses its images."""
        lost = {s.ask: None for s in work.sequences}
        if isinstance(work, Prefill):
            for prefix in work.new_prefixes:
                self.pool.forget_prefix(prefix)
                lost |= {s.ask: None for s in self.scheduler.sequences() if s.prefix is prefix}
        memory = "out of memory" in str(error).lower()
        for ask in lost:
            ask.fail(EngineError("out-of-memory" if memory else "internal", f"the model failed: {error}"))
            self._finalize_all(ask)

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for sequence in self.scheduler.sequences():
            deadline = sequence.ask.request.deadline
            if deadline is None or now < deadline or sequence.finalized:
                continue
            ask = sequence.ask
            if ask.found:
                self._drop(sequence)
                ask.sequence_ended(sequence.phrase_index, "deadline")
            else:
                ask.fail(EngineError("deadline-exceeded", "the deadline passed before an object was found"))
                self._finalize_all(ask)

    # --- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            self._wake.clear()
            while self._inbox:
                self._inbox.popleft()()
            self._check_deadlines()
            if not self.tick():
                self._wake.wait()

    def _shut(self) -> None:
        while self.pipeline.oldest is not None:
            oldest = self.pipeline.oldest
            if not oldest.finalized:
                self.finalize(oldest)
            self.commit(oldest)
        for ask in {s.ask: None for s in self.scheduler.sequences()}:
            ask.fail(EngineError("closed", "the engine was closed"))
            self._finalize_all(ask)
        self._closing = True

    def _span(self, name: str, step: InFlight[Step]) -> AbstractContextManager[None]:
        if self.trace is None:
            return nullcontext()
        kind = "decode" if isinstance(step.work, Decode) else "prefill"
        return self.trace.span(name, step.number, kind, len(step.work.sequences))
