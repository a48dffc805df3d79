"""The pipeline against a model that a page describes: every legal call works, every other one raises."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from engine.pipeline import InFlight, Pipeline, PipelineError

Life = Literal["launched", "finalized", "committing", "ended"]
Step = InFlight[int]


class PipelineMachine(RuleBasedStateMachine):
    """The model: the life of every step ever launched, in order; the two last that have not ended."""

    steps = Bundle("steps")

    def __init__(self) -> None:
        super().__init__()
        self.lives: list[Life] = []

    @initialize(after_commit=st.booleans())
    def build(self, after_commit: bool) -> None:
        """Host placement, whose sampling needs the commit before it, or device placement."""
        self.after_commit = after_commit
        self.pipeline: Pipeline[int] = Pipeline(after_commit)

    def in_flight(self) -> list[int]:
        return [number for number, life in enumerate(self.lives) if life != "ended"]

    def is_oldest(self, step: Step) -> bool:
        return self.in_flight()[:1] == [step.number]

    @precondition(lambda self: len(self.in_flight()) < 2)
    @rule(target=steps)
    def launch(self) -> Step:
        number = len(self.lives)
        step = self.pipeline.launch(number)
        self.lives.append("launched")
        assert (step.number, step.work, step.slot) == (number, number, number % 2)
        return step

    @precondition(lambda self: len(self.in_flight()) == 2)
    @rule()
    def launch_a_third(self) -> None:
        with pytest.raises(PipelineError):
            self.pipeline.launch(-1)

    @rule(step=steps)
    def finalize(self, step: Step) -> None:
        earlier = [self.lives[number] for number in self.in_flight() if number < step.number]
        ready = not earlier if self.after_commit else "launched" not in earlier
        if ready and self.lives[step.number] == "launched":
            self.pipeline.finalize(step)
            self.lives[step.number] = "finalized"
        else:
            with pytest.raises(PipelineError):
                self.pipeline.finalize(step)

    @rule(step=steps)
    def begin_commit(self, step: Step) -> None:
        if self.is_oldest(step) and self.lives[step.number] == "finalized":
            self.pipeline.begin_commit(step)
            self.lives[step.number] = "committing"
        else:
            with pytest.raises(PipelineError):
                self.pipeline.begin_commit(step)

    @rule(step=steps)
    def end_commit(self, step: Step) -> None:
        if self.is_oldest(step) and self.lives[step.number] == "committing":
            self.pipeline.end_commit(step)
            self.lives[step.number] = "ended"
        else:
            with pytest.raises(PipelineError):
                self.pipeline.end_commit(step)

    @rule(step=consumes(steps), call=st.sampled_from(["finalize", "begin_commit", "end_commit"]))
    def a_stranger(self, step: Step, call: str) -> None:
        """A step of another pipeline, alike in everything."""
        twin = InFlight(step.number, step.slot, step.work, step.finalized, step.committing)
        with pytest.raises(PipelineError):
            getattr(self.pipeline, call)(twin)

    @invariant()
    def the_model_holds(self) -> None:
        if not hasattr(self, "pipeline"):
            return
        flying = self.in_flight()
        assert len(self.pipeline) == len(flying) <= 2
        assert self.pipeline.can_launch == (len(flying) < 2)
        oldest = self.pipeline.oldest
        assert (oldest.number if oldest else None) == (flying[0] if flying else None)
        slots = {number % 2 for number in flying}
        assert len(slots) == len(flying), "two steps in flight share a slot"


TestPipeline = PipelineMachine.TestCase
TestPipeline.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def test_the_order_that_the_engine_runs() -> None:
    """launch t+1, commit t, finalize t+1, for ever: the slot of t is free when t+2 takes it."""
    pipeline: Pipeline[str] = Pipeline()
    current = pipeline.launch("0")
    pipeline.finalize(current)
    for t in range(1, 6):
        following = pipeline.launch(str(t))
        assert following.slot != current.slot
        pipeline.begin_commit(current)
        assert not pipeline.can_launch, "the slot is not free before its commit has ended"
        pipeline.end_commit(current)
        assert pipeline.can_launch
        pipeline.finalize(following)
        current = following


def test_the_order_of_device_placement() -> None:
    """launch t+1, finalize t+1, commit t: sampling waits for no commit, only for the sampling before it."""
    pipeline: Pipeline[str] = Pipeline(after_commit=False)
    current = pipeline.launch("0")
    pipeline.finalize(current)
    for t in range(1, 6):
        following = pipeline.launch(str(t))
        pipeline.finalize(following)
        with pytest.raises(PipelineError, match="out of order"):
            pipeline.begin_commit(following)
        pipeline.begin_commit(current)
        pipeline.end_commit(current)
        current = following
    last = pipeline.launch("last")
    pipeline.begin_commit(current)
    pipeline.end_commit(current)
    after = pipeline.launch("after")
    with pytest.raises(PipelineError, match="before the finalization of an earlier one"):
        pipeline.finalize(after)
    pipeline.finalize(last)
    pipeline.finalize(after)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda p, a, b: p.launch("c"), "two steps are in flight"),
        (lambda p, a, b: p.finalize(b), "before the commit of an earlier one"),
        (lambda p, a, b: p.finalize(a), "finalized twice"),
        (lambda p, a, b: p.begin_commit(b), "out of order"),
        (lambda p, a, b: p.end_commit(a), "was not being committed"),
    ],
)
def test_violations_say_what_they_are(wrong, message: str) -> None:  # type: ignore[no-untyped-def]
    pipeline: Pipeline[str] = Pipeline()
    first, second = pipeline.launch("a"), pipeline.launch("b")
    pipeline.finalize(first)
    with pytest.raises(PipelineError, match=message):
        wrong(pipeline, first, second)


def test_a_commit_needs_a_finalization_and_happens_once() -> None:
    pipeline: Pipeline[str] = Pipeline()
    step = pipeline.launch("a")
    with pytest.raises(PipelineError, match="before it is finalized"):
        pipeline.begin_commit(step)
    pipeline.finalize(step)
    pipeline.begin_commit(step)
    with pytest.raises(PipelineError, match="or twice"):
        pipeline.begin_commit(step)
    pipeline.end_commit(step)
    with pytest.raises(PipelineError):
        pipeline.end_commit(step)
