"""Many requests at once: each gets its own answer, and the device is kept busy."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

import pytest

from engine.answer import Answer
from engine.engine import Engine
from engine.executor import Placement
from engine.loop import Mode
from engine.models.base import Model
from engine.request import Request
from engine.trace import Span, Trace
from grammars.types import TASKS
from tests.engine.asking import SCHEDULES, ask_together, assert_at_rest, engine_on, holdings, picture
from tests.engine.faulty import LateCopies
from tests.models.sameness import assert_same
from training.scenes import HELD_OUT, make_scene

PHRASES = ("red circle", "shape", "blue square", "every star", "the green ring", "white", "a pink cross")


def mixed(count: int) -> list[Request]:
    """Over three images, seven phrases and both tasks."""
    images = [make_scene(seed).image for seed in range(HELD_OUT.start, HELD_OUT.start + 3)]
    return [
        Request(TASKS[i // 3 % 2], images[i % 3], (PHRASES[i % len(PHRASES)],), dedupe=False)
        for i in range(count)
    ]


def one_by_one(model: Model, requests: list[Request], max_tokens: int | None = None) -> list[Answer]:
    with engine_on(model, mode="blocking", max_tokens=max_tokens) as engine:
        return [engine.ask(request) for request in requests]


@pytest.fixture(scope="module")
def alone(tiny: Model) -> list[Answer]:
    """To each of the mixed requests, which repeat after 3 times 2 times 7."""
    return one_by_one(tiny, mixed(42))


@pytest.mark.parametrize(("mode", "placement"), SCHEDULES)
def test_100_requests_at_once_get_the_answers_they_get_alone(
    tiny: Model, alone: list[Answer], mode: Mode, placement: Placement
) -> None:
    requests = mixed(100)
    trace = Trace()
    with engine_on(tiny, mode=mode, placement=placement, trace=trace) as engine:
        together = ask_together(engine, requests)
        assert_at_rest(engine)
    assert_same(tiny, requests, together, [alone[i % 42] for i in range(100)])
    assert max(span.rows for span in trace.spans if span.kind == "decode") >= 16


@pytest.mark.parametrize(("mode", "placement"), [*SCHEDULES, ("blocking", "device")])
def test_one_row_and_46_rows_say_the_same(varied: Model, mode: Mode, placement: Placement) -> None:
    """45 neighbours of every length; all 46 hold a row at once."""
    requests = [replace(request, image=picture(i % 4)) for i, request in enumerate(mixed(46))]
    with engine_on(varied, max_batch=1, mode=mode, placement=placement, max_tokens=40) as engine:
        alone = ask_together(engine, requests)
    trace = Trace()
    with engine_on(
        varied, max_batch=46, mode=mode, placement=placement, max_tokens=40, prefill_tokens=8192, trace=trace
    ) as engine:
        together = ask_together(engine, requests)
        assert_at_rest(engine)
    assert_same(varied, requests, together, alone)
    assert max(span.rows for span in trace.spans) > 32


def overlapped(spans: list[Span]) -> float:
    """The share of decode steps whose successor was launched before their commit began."""
    launched = {s.step: s.end for s in spans if s.name == "launch"}
    commits = [s for s in spans if s.name == "commit" and s.kind == "decode" and s.step + 1 in launched]
    return sum(launched[s.step + 1] <= s.begin for s in commits) / len(commits)


@pytest.mark.parametrize(("mode", "placement"), SCHEDULES)
def test_the_next_step_is_launched_before_a_commit(tiny: Model, mode: Mode, placement: Placement) -> None:
    least, most = (0.95, 1.0) if mode == "pipelined" else (0.0, 0.0)
    trace = Trace()
    with engine_on(tiny, mode=mode, placement=placement, trace=trace) as engine:
        ask_together(engine, mixed(32))
    assert least <= overlapped(trace.spans) <= most


def test_steps_commit_and_finalize_in_order(tiny: Model) -> None:
    trace = Trace()
    with engine_on(tiny, trace=trace) as engine:
        ask_together(engine, mixed(32))
    for name in ("launch", "commit", "finalize"):
        steps = [s.step for s in trace.spans if s.name == name]
        assert steps == list(range(len(steps)))
    ends = {(s.name, s.step): s for s in trace.spans}
    for (name, step), span in ends.items():
        if name == "finalize":
            assert ("commit", step - 1) not in ends or ends["commit", step - 1].end <= span.begin
            assert ("launch", step + 2) not in ends or ends["commit", step].end <= ends[
                "launch", step + 2
            ].begin
    assert {s.thread for s in trace.spans} == {"pointbox-engine"}


def test_late_copies_change_no_answer(varied: Model) -> None:
    """The copy of a step's tokens is still to come while both slots are rewritten."""
    requests = mixed(24)
    with engine_on(varied, max_tokens=40) as engine:
        expected = ask_together(engine, requests)
    with engine_on(varied, max_tokens=40, device=LateCopies(0.004)) as engine:
        assert_same(varied, requests, ask_together(engine, requests), expected)
        assert_at_rest(engine)


def test_neighbours_change_not_a_bit(endless: Model) -> None:
    """At equal padded shapes the scores of a row are the same whatever the other rows say."""
    scores = []
    for others in ("blue square", "white hexagon"):
        with engine_on(endless, max_tokens=40) as engine:
            phrases = ("red circle", *[others] * 31)
            answer = engine.ask(Request("detect", picture(1), phrases, dedupe=False))
            scores.append([o.score for o in answer.objects if o.phrase_index == 0])
    assert scores[0] == scores[1]
    assert len(scores[0]) == 8


def test_any_batch_size_serves_any_load(varied: Model) -> None:
    requests = mixed(12)
    expected = None
    for rows in (1, 2, 3, 5, 32):
        with engine_on(varied, max_batch=rows, max_tokens=30, prefill_tokens=80) as engine:
            given = ask_together(engine, requests)
            assert_at_rest(engine)
        expected = expected or given
        assert_same(varied, requests, given, expected)


@pytest.mark.parametrize("mode", ["pipelined", "blocking"])
def test_labels_are_written_whoever_arrives(public: Model, mode: Mode) -> None:
    """A label is due while new requests take the step; one row of a batch extends, the others decode."""
    requests = [
        Request("detect", picture(i % 3), (phrase, "red circle"), max_objects=3, dedupe=False)
        for i, phrase in enumerate(("a ring", "star", "the 😀 ring", "every white hexagon") * 4)
    ]
    expected = one_by_one(public, requests[:12], max_tokens=36)
    expected += expected[:4]
    with engine_on(public, mode=mode, max_batch=3, prefill_tokens=1, max_tokens=36) as engine:
        assert_same(public, requests, ask_together(engine, requests), expected)
        assert_at_rest(engine)


def test_after_200_requests_all_counts_are_as_at_the_start(tiny: Model) -> None:
    with Engine.load("tiny") as engine:
        ask_together(engine, mixed(6))
        assert_at_rest(engine)
        threads, stats = Counter(t.name for t in threading.enumerate()), holdings(engine)
        for _ in range(2):
            ask_together(engine, mixed(100))
        assert_at_rest(engine)
        assert holdings(engine) == stats
        assert Counter(t.name for t in threading.enumerate()) == threads
