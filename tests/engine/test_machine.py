"""The whole engine under any order of arrivals, cancels, deadlines and waits, against blocking answers.

Both modes, both placements, both priorities, pools that hold one sequence at a time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
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
from engine.request import Request
from grammars.types import TASKS
from tests.engine.asking import Listener, ask_together, assert_at_rest, engine_on, picture, places_of
from tests.engine.books import Books
from tests.engine.faulty import LateCopies
from tests.engine.wanted import PHRASES, WANTED, Wanted
from tests.models.reference import CLOSE
from tests.models.sameness import smallest_gap

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
        self.books = Books(model.grammar.has_runs)

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
            trace=self.books,
        )
        self.books.scheduler = self.engine._loop.scheduler
        self.books.mode, self.books.placement = mode, placement

    @rule(target=asked, wanted=st.lists(WANTED, min_size=1, max_size=6))
    def submit(self, wanted: list[Wanted]) -> MultipleResults[Asked]:
        """They come at once."""
        asked = [self._submit(one) for one in wanted]
        self.all += asked
        return multiple(*asked)

    def _submit(self, wanted: Wanted) -> Asked:
        handles: list[Handle] = []
        cancel_at = wanted.cancel_at
        listener = Listener(None if cancel_at is None else self._canceller(handles, cancel_at))
        request = wanted.request()
        assert self.engine is not None
        handles.append(self.engine.submit(request, listener))
        one = Asked(request, listener, handles[0])
        if cancel_at is not None:
            one.may_fail.add("cancelled")
        if wanted.patience is not None and wanted.patience < 3600:
            one.may_fail.add("deadline-exceeded")
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
            assert not self.books.faults
            self._check_launches(self.books.check_order())
        finally:
            self.engine.close()

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
        assert tokens <= forwards <= tokens + (ended if self.books.mode == "pipelined" else 0)

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
            tokens = [e.metrics.output_tokens for e in one.listener.events if isinstance(e, Finished)]
            full = sum(reason == "length" for reason in reasons.values())
            least = 0 if self.model.grammar.has_runs else MAX_TOKENS * full  # a label may not fit the rest
            assert least <= tokens[0] <= MAX_TOKENS * len(reasons)
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


def test_the_machine_meets_answers_of_many_lengths(varied: Model) -> None:
    """Or it would prove little: some that end at once, some that a limit ends, and some between."""
    with engine_on(varied, max_tokens=MAX_TOKENS) as engine:
        asked = [Request(task, picture(i), PHRASES, 500, dedupe=False) for task in TASKS for i in range(3)]
        answers = ask_together(engine, asked)
    counts = Counter(
        sum(o.phrase_index == index for o in (*answer.objects, *answer.points))
        for answer in answers
        for index in range(len(PHRASES))
    )
    reasons = {phrase.finish_reason for answer in answers for phrase in answer.phrases}
    assert len(counts) >= 5
    assert reasons == {"stop", "length"}
