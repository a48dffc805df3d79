"""The whole engine under any order of arrivals, cancels, deadlines and waits, against blocking answers.

Both modes, both placements, both priorities, pools that hold one sequence at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from engine.device.base import Device
from engine.device.cpu import CpuDevice
from engine.engine import Engine, Handle
from engine.events import Event, Finished, Found, PhraseEnded
from engine.executor import Placement
from engine.loop import Mode
from engine.models.base import Model
from engine.request import Priority, Request
from engine.sequence import Sequence
from engine.trace import Trace
from grammars.types import TASKS, Task
from tests.engine.asking import Listener, assert_at_rest, engine_on, picture, places_of
from tests.engine.faulty import LateCopies
from tests.models.reference import CLOSE
from tests.models.sameness import smallest_gap

PHRASES = ("red circle", "star", "the 😀 ring")
MAX_TOKENS = 36
Places = list[tuple[float, ...]]


class Expected:
    """What each phrase says alone on a blocking engine; computed when first needed."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._engine = engine_on(model, mode="blocking", max_tokens=MAX_TOKENS)
        self._known: dict[tuple[object, ...], tuple[Places, str]] = {}

    def of(self, request: Request, index: int) -> tuple[Places, str]:
        phrase = request.phrases[index]
        key = (request.task, request.image.tobytes(), phrase, request.max_objects, request.dedupe)
        if key not in self._known:
            alone = Request(
                request.task, request.image, (phrase,), request.max_objects, dedupe=request.dedupe
            )
            listener = Listener()
            self._engine.submit(alone, listener)
            places = places_of(listener.found_at_end)
            (ended,) = [e for e in listener.events if isinstance(e, PhraseEnded)]
            self._known[key] = places, ended.finish_reason
        return self._known[key]

    def close(self) -> None:
        self._engine.close()


@dataclass
class Asked:
    request: Request
    listener: Listener
    handle: Handle
    may_fail: set[str] = field(default_factory=set)


class EngineMachine(RuleBasedStateMachine):
    """Every example runs an engine of its own; requests live on while rules go on."""

    asked = Bundle("asked")

    def __init__(self, model: Model, expected: Expected) -> None:
        super().__init__()
        self.model, self.expected = model, expected
        self.all: list[Asked] = []
        self.engine: Engine | None = None
        self.trace = Trace()
        self.sequences: dict[Sequence, None] = {}
        """All that were seen between two rules, in the order of their first sight."""

    @initialize(
        mode=st.sampled_from(get_args(Mode)),
        placement=st.sampled_from(get_args(Placement)),
        batch_share=st.sampled_from([0.01, 0.5, 1.0]),
        rows=st.integers(1, 4),
        spare_pages=st.sampled_from([0, 3, 9, 40]),
        prefill_tokens=st.sampled_from([1, 150, 1024]),
        late=st.booleans(),
    )
    def start(
        self,
        mode: Mode,
        placement: Placement,
        batch_share: float,
        rows: int,
        spare_pages: int,
        prefill_tokens: int,
        late: bool,
    ) -> None:
        if self.model.grammar.has_runs:
            placement = "host"
        longest = max(len(self.model.prompt("detect", phrase)) for phrase in PHRASES)
        least = -(-(self.model.image_tokens + longest + MAX_TOKENS) // 16) + 1
        device: Device = LateCopies(0.001) if late else CpuDevice()
        self.engine = engine_on(
            self.model,
            device=device,
            mode=mode,
            placement=placement,
            max_batch=rows,
            pages=1 + least + spare_pages,
            prefill_tokens=prefill_tokens,
            max_tokens=MAX_TOKENS,
            batch_share=batch_share,
            trace=self.trace,
        )
        self.mode, self.placement = mode, placement

    @rule(
        target=asked,
        task=st.sampled_from(TASKS),
        image=st.integers(0, 2),
        phrases=st.lists(st.sampled_from(PHRASES), min_size=1, max_size=3),
        most=st.sampled_from([1, 3, 500]),
        dedupe=st.booleans(),
        priority=st.sampled_from(get_args(Priority)),
        patience=st.sampled_from([None, None, -1.0, 0.02, 3600.0]),
        cancel_at=st.sampled_from([None, None, 0, 1, 2]),
    )
    def submit(
        self,
        task: Task,
        image: int,
        phrases: list[str],
        most: int,
        dedupe: bool,
        priority: Priority,
        patience: float | None,
        cancel_at: int | None,
    ) -> Asked:
        deadline = None if patience is None else time.monotonic() + patience
        request = Request(
            task,
            picture(image),
            tuple(phrases),
            most,
            dedupe=dedupe,
            deadline=deadline,
            priority=priority,
        )
        handles: list[Handle] = []
        listener = Listener(None if cancel_at is None else self._canceller(handles, cancel_at))
        assert self.engine is not None
        handles.append(self.engine.submit(request, listener))
        one = Asked(request, listener, handles[0])
        if cancel_at is not None:
            one.may_fail.add("cancelled")
        if patience is not None and patience < 3600:
            one.may_fail.add("deadline-exceeded")
        self.all.append(one)
        return one

    @rule(one=asked)
    def cancel(self, one: Asked) -> None:
        if not one.listener.over:
            one.may_fail.add("cancelled")
        one.handle.cancel()

    @rule(one=asked)
    def wait(self, one: Asked) -> None:
        one.listener.wait()

    @rule(pause=st.sampled_from([0.0, 0.001, 0.01]))
    def pause(self, pause: float) -> None:
        time.sleep(pause)

    @rule()
    def clear_cache(self) -> None:
        assert self.engine is not None
        self.engine.clear_cache()

    @invariant()
    def every_sequence_is_accounted_for(self) -> None:
        """Launched steps are those committed and those in flight, two at most; between two steps."""
        if self.engine is not None:
            self.engine._between_steps(self._account)

    def _account(self) -> None:
        assert self.engine is not None
        scheduler = self.engine._loop.scheduler
        for sequence in scheduler.sequences():
            self.sequences[sequence] = None
            assert 0 <= sequence.inflight_refs <= (2 if self.mode == "pipelined" else 0)
            if sequence.row < 0:
                assert sequence.launched == 0
                assert not sequence.finalized, "one that waits is dropped, not finalized"
            elif not sequence.finalized and not self.model.grammar.has_runs:
                assert sequence.launched == scheduler.tokens[sequence.row] + sequence.inflight_refs
        rows = [s.row for s in scheduler.sequences() if s.row >= 0]
        assert len(set(rows)) == len(rows), "two sequences have one row"

    @invariant()
    def pages_are_conserved(self) -> None:
        if self.engine is not None:
            self.engine.check_integrity()
            stats = self.engine.stats()
            assert stats.pages_free + stats.pages_cached + stats.pages_held == stats.pages_total
            assert 0 <= stats.rows_active <= stats.rows_max

    def teardown(self) -> None:
        if self.engine is None:
            return
        try:
            for one in self.all:
                self._check(one)
            assert_at_rest(self.engine)
            assert not any(one.listener.late for one in self.all)
            assert all(s.inflight_refs == 0 for s in self.sequences)
            self._check_steps()
        finally:
            self.engine.close()

    def _check_steps(self) -> None:
        """Every step is launched, finalized and committed once, in the order of the launches."""
        when = {
            name: {span.step: span for span in self.trace.spans if span.name == name}
            for name in ("launch", "finalize", "commit")
        }
        for spans in when.values():
            assert list(spans) == list(range(len(when["launch"])))
        for step, launch in when["launch"].items():
            assert launch.end <= when["finalize"][step].begin
            assert when["finalize"][step].end <= when["commit"][step].begin
            if step >= 2:  # its slot is free again
                assert when["commit"][step - 2].end <= launch.begin
            if step >= 1 and self.placement == "host":
                assert when["commit"][step - 1].end <= when["finalize"][step].begin
        self._check_launches(sum(span.rows for span in when["launch"].values()))

    def _check_launches(self, forwards: int) -> None:
        """n tokens cost n forwards, one more where an answer ended before its limit with a step in flight."""
        whole = [e for one in self.all for e in one.listener.events if isinstance(e, Finished)]
        reasons = [
            e.finish_reason for one in self.all for e in one.listener.events if isinstance(e, PhraseEnded)
        ]
        if len(whole) < len(self.all) or "deadline" in reasons or self.model.grammar.has_runs:
            return
        tokens = sum(finished.metrics.output_tokens for finished in whole)
        ended = sum(reason != "length" for reason in reasons)
        assert tokens <= forwards <= tokens + (ended if self.mode == "pipelined" else 0)

    def _canceller(self, handles: list[Handle], at: int) -> Callable[[Event], None]:
        seen = 0

        def then(event: Event) -> None:
            nonlocal seen
            if seen == at and handles:
                handles[0].cancel()
            seen += 1

        return then

    def _check(self, one: Asked) -> None:
        error = one.listener.error
        assert error is None or error in one.may_fail
        reasons = {e.phrase_index: e.finish_reason for e in one.listener.events if isinstance(e, PhraseEnded)}
        if error is None:
            assert sorted(reasons) == list(range(len(one.request.phrases)))
        for index in range(len(one.request.phrases)):
            found = [e.item for e in one.listener.events if isinstance(e, Found) and e.phrase_index == index]
            if not self._as_alone(one, index, places_of(found), reasons.get(index)):
                phrase = Request(one.request.task, one.request.image, (one.request.phrases[index],))
                assert smallest_gap(self.model, phrase, MAX_TOKENS) < CLOSE, one.request.phrases[index]

    def _as_alone(self, one: Asked, index: int, places: Places, reason: str | None) -> bool:
        expected, why = self.expected.of(one.request, index)
        if reason in (None, "deadline"):
            return places == expected[: len(places)]
        return (places, reason) == (expected, why)


def run_machine(model: Model, examples: int) -> None:
    expected = Expected(model)
    try:
        run_state_machine_as_test(
            lambda: EngineMachine(model, expected),
            settings=settings(
                max_examples=examples,
                stateful_step_count=14,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        expected.close()


@pytest.mark.parametrize("examples", [12, pytest.param(300, marks=pytest.mark.long)])
def test_any_order_on_shared_prefixes(varied: Model, examples: int) -> None:
    run_machine(varied, examples)


@pytest.mark.parametrize("examples", [8, pytest.param(200, marks=pytest.mark.long)])
def test_any_order_with_labels(public: Model, examples: int) -> None:
    run_machine(public, examples)
