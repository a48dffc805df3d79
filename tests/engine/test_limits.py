"""What a sequence costs, and what happens when pages, tokens or rows run out."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from engine.executor import Placement
from engine.loop import Mode
from engine.models.base import Model
from engine.request import Request
from engine.trace import Trace
from tests.engine.asking import SCHEDULES, ask_together, assert_at_rest, engine_on, picture, submit
from tests.models.sameness import assert_same

LONG = Request("detect", picture(1), ("red circle",), max_objects=500, dedupe=False)
every_schedule = pytest.mark.parametrize(("mode", "placement"), SCHEDULES)


def launches(trace: Trace) -> list[int]:
    """Rows of every launched step, in order."""
    return [span.rows for span in trace.spans if span.name == "launch"]


@every_schedule
def test_n_tokens_cost_n_forwards(endless: Model, mode: Mode, placement: Placement) -> None:
    for limit in (1, 2, 3, 8, 21):
        trace = Trace()
        with engine_on(endless, mode=mode, placement=placement, max_tokens=limit, trace=trace) as engine:
            assert engine.ask(LONG).metrics.output_tokens == limit
            assert_at_rest(engine)
        assert launches(trace) == [1] * limit


@every_schedule
def test_an_answer_that_ends_costs_one_forward_more_at_most(
    varied: Model, mode: Mode, placement: Placement
) -> None:
    for phrase in ("red circle", "blue star", "white", "shape"):
        for task in ("detect", "point"):
            trace = Trace()
            with engine_on(varied, mode=mode, placement=placement, max_tokens=90, trace=trace) as engine:
                answer = engine.ask(Request(task, picture(1), (phrase,), max_objects=500, dedupe=False))
                assert_at_rest(engine)
            zombies = len(launches(trace)) - answer.metrics.output_tokens
            if answer.finish_reason == "length" or mode == "blocking":
                assert zombies == 0
            else:
                assert zombies == 1


@every_schedule
def test_many_sequences_cost_what_each_costs(varied: Model, mode: Mode, placement: Placement) -> None:
    trace = Trace()
    requests = [replace(LONG, image=picture(i), phrases=("red circle", "star")) for i in range(9)]
    with engine_on(varied, mode=mode, placement=placement, max_tokens=25, max_batch=5, trace=trace) as engine:
        answers = ask_together(engine, requests)
        assert_at_rest(engine)
    tokens = sum(answer.metrics.output_tokens for answer in answers)
    ended = sum(phrase.finish_reason == "stop" for answer in answers for phrase in answer.phrases)
    assert ended > 0
    assert tokens <= sum(launches(trace)) <= tokens + (0 if mode == "blocking" else ended)


def test_a_label_is_one_forward(public: Model) -> None:
    """Its tokens are written by the step that takes the token before them; the row sits out one step."""
    trace = Trace()
    with engine_on(public, max_tokens=30, trace=trace) as engine:
        answer = engine.ask(replace(LONG, phrases=("a long label of many small pieces",)))
    kinds = [span.kind for span in trace.spans if span.name == "launch"]
    assert kinds.count("extend") >= len(answer.objects) - 1
    label = len(public.label("a long label of many small pieces"))
    assert len(kinds) <= answer.metrics.output_tokens - label * kinds.count("extend") + 1


@every_schedule
@pytest.mark.parametrize("total", [6, 8, 17])
def test_a_tiny_pool_makes_progress(endless: Model, mode: Mode, placement: Placement, total: int) -> None:
    """An image takes 4 pages and an answer 2: with 6 there is room for one sequence at a time."""
    requests = [
        replace(LONG, image=picture(i % 4), phrases=("red circle", "star")[: 1 + i % 2]) for i in range(10)
    ]
    with engine_on(endless, max_tokens=20) as roomy:
        expected = ask_together(roomy, requests)
    with engine_on(endless, mode=mode, placement=placement, max_tokens=20, pages=1 + total) as engine:
        assert_same(endless, requests, ask_together(engine, requests), expected)
        assert_at_rest(engine)


def test_what_can_never_fit_is_refused_and_the_rest_goes_on(endless: Model) -> None:
    with engine_on(endless, pages=31) as engine:
        large, _ = submit(engine, LONG)
        both, _ = submit(engine, replace(LONG, phrases=("star", "ring")))
        assert large.error == "too-large"
        assert both.error == "too-large"
        assert "pages" in str(large.events[-1])
        assert engine.ask(replace(LONG, max_objects=2)).finish_reason == "max_objects"
        assert_at_rest(engine)


def test_a_phrase_with_more_tokens_than_the_context_is_refused(narrow: Model) -> None:
    with engine_on(narrow) as engine:
        listener, _ = submit(engine, replace(LONG, phrases=("🙂" * 60,)))
        assert listener.error == "invalid-phrase"
        assert engine.ask(LONG).finish_reason == "length"
        assert_at_rest(engine)


@every_schedule
def test_padding_rows_stay_where_they_are(narrow: Model, mode: Mode, placement: Placement) -> None:
    """Three rows in a bucket of four, for more steps than a block table has places."""
    requests = [replace(LONG, image=picture(i)) for i in range(3)]
    with engine_on(narrow, mode=mode, placement=placement) as engine:
        expected = ask_together(engine, requests)
        assert {answer.metrics.output_tokens for answer in expected} == {160 - narrow.image_tokens - 5}
        for _ in range(2):
            assert_same(narrow, requests, ask_together(engine, requests), expected)
        assert_at_rest(engine)


def test_prefill_and_decode_take_turns(endless: Model) -> None:
    """New requests do not stop those that run, nor the other way round."""
    trace = Trace()
    with engine_on(endless, max_tokens=40, prefill_tokens=70, trace=trace) as engine:
        ask_together(engine, [replace(LONG, image=picture(i)) for i in range(12)])
    kinds = [span.kind for span in trace.spans if span.name == "launch"]
    last_prefill = len(kinds) - 1 - kinds[::-1].index("prefill")
    assert kinds.count("prefill") == 12
    for before, after in pairwise(kinds[: last_prefill + 1]):
        assert not before == after == "prefill"


def test_one_prefill_takes_what_its_budget_holds(endless: Model) -> None:
    trace = Trace()
    with engine_on(
        endless, trace=trace, max_tokens=20, prefill_tokens=endless.image_tokens + 5 * 8
    ) as engine:
        phrases = ("red circle",) * 8  # 5 tokens each, of one image
        engine.ask(Request("detect", picture(3), phrases))
        assert_at_rest(engine)
    assert trace.spans[0].rows == 8


def test_counts_move_with_the_work_and_pages_for_covers_what_a_phrase_takes(varied: Model) -> None:
    with engine_on(varied) as engine:
        before = engine.stats_soon().result()
        engine.ask(replace(LONG, max_objects=5))
        after = engine.stats_soon().result()
        assert after.steps > before.steps == 0
        assert after.decode_tokens > 0
        assert after.prefill_tokens >= varied.image_tokens
        assert after.idle_s > before.idle_s
        assert after.device_s > before.device_s == 0
        few, many = engine.pages_for(5), engine.pages_for(500)
        assert varied.image_tokens / 16 < few <= many <= -(-varied.max_context // 16)
