"""A device that breaks, a listener that raises: who is told, and what goes on."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from engine.errors import EngineError
from engine.events import Event, Finished, Found
from engine.loop import Mode
from engine.models.base import Model
from engine.request import Request
from tests.engine.asking import (
    ask_together,
    assert_at_rest,
    engine_on,
    idle,
    picture,
    places_of,
    said,
    submit,
    until,
)
from tests.engine.faulty import DeviceBroke, FailsOnce, Watched

SHORT = [
    Request("detect", picture(1), ("red circle", "star"), max_objects=4, dedupe=False),
    Request("point", picture(1), ("blue ring",), max_objects=3, dedupe=False),
    Request("detect", picture(2), ("white",), max_objects=2, dedupe=False),
]
LONG = Request("detect", picture(3), ("red circle",), max_objects=500, dedupe=False)


@pytest.fixture(scope="module")
def expected(endless: Model) -> list[list[tuple[float, ...]]]:
    with engine_on(endless, mode="blocking") as engine:
        return [places_of(submit(engine, request)[0].found_at_end) for request in SHORT]


@pytest.mark.parametrize("mode", ["pipelined", "blocking"])
def test_any_piece_of_device_work_may_fail(
    endless: Model, expected: list[list[tuple[float, ...]]], mode: Mode
) -> None:
    """Prefill or decode, forward or sampling: who shared the step fails, nobody gets a wrong answer."""
    for piece in (0, 1, 2, 3, 4, 5, 6, 7, 12, 17, 30, 31):
        device = FailsOnce(piece)
        with engine_on(endless, mode=mode, device=device, max_batch=3) as engine:
            listeners = [submit(engine, request)[0] for request in SHORT]
            errors = [listener.error for listener in listeners]
            until(partial(idle, engine), "the engine is idle")
            assert device.failed
            assert "internal" in errors, f"piece {piece}"
            assert set(errors) <= {"internal", None}, f"piece {piece}: {errors}"
            for listener, error, places in zip(listeners, errors, expected, strict=True):
                if error is None:
                    assert sorted(places_of(listener.found)) == sorted(places)
                else:
                    assert "the device broke" in str(listener.events[-1].error)
                    assert set(places_of(listener.found)) <= set(places)
                assert not listener.late
            engine.check_integrity()
            again = [submit(engine, request)[0].found_at_end for request in SHORT]
            assert [sorted(places_of(found)) for found in again] == [sorted(places) for places in expected]
            assert_at_rest(engine)


def test_a_failed_prefill_fails_its_own_requests_only(
    endless: Model, expected: list[list[tuple[float, ...]]]
) -> None:
    model = Watched(endless)
    with engine_on(model) as engine:
        running, handle = submit(engine, LONG)
        until(lambda: bool(running.found), "the neighbour has said something")
        model.image_error = DeviceBroke("the device broke")
        assert submit(engine, SHORT[0])[0].error == "internal"
        count = len(running.found)
        until(lambda: len(running.found) > count, "the neighbour goes on")
        assert sorted(places_of(submit(engine, SHORT[0])[0].found_at_end)) == sorted(expected[0])
        assert not running.over
        handle.cancel()
        assert running.error == "cancelled"
        assert_at_rest(engine)


def test_a_failed_decode_fails_every_row_of_the_step(endless: Model) -> None:
    model = Watched(endless)
    with engine_on(model) as engine:
        listeners = [submit(engine, replace(LONG, image=picture(10 + i)))[0] for i in range(3)]
        until(lambda: all(listener.found for listener in listeners), "all have said something")
        model.decode_error = DeviceBroke("the device broke")
        assert [listener.error for listener in listeners] == ["internal"] * 3
        assert_at_rest(engine)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB"), "out-of-memory"),
        (ValueError("anything else"), "internal"),
    ],
)
def test_what_broke_is_said(endless: Model, error: Exception, kind: str) -> None:
    model = Watched(endless)
    with engine_on(model) as engine:
        model.image_error = error
        with pytest.raises(EngineError, match=str(error)[:12]) as raised:
            engine.ask(SHORT[0])
        assert raised.value.kind == kind


def test_a_listener_that_raises_harms_nobody_else(
    endless: Model, expected: list[list[tuple[float, ...]]]
) -> None:
    def deaf(event: Event) -> None:
        raise RuntimeError("nobody is here any more")

    with engine_on(endless) as engine:
        for request in (LONG, *SHORT, replace(LONG, deadline=0.0)):
            engine.submit(request, deaf)
        found = [submit(engine, request)[0].found_at_end for request in SHORT]
        assert [sorted(places_of(f)) for f in found] == [sorted(places) for places in expected]
        assert_at_rest(engine)


def test_a_listener_whose_event_loop_is_gone_harms_nobody_else(endless: Model) -> None:
    with engine_on(endless) as engine:

        async def leave_in_the_middle() -> None:
            stream = engine.stream(LONG)
            assert isinstance(await anext(stream), Found)

        for _ in range(3):
            asyncio.run(leave_in_the_middle())
        assert submit(engine, SHORT[0])[0].error is None
        assert_at_rest(engine)


async def test_a_task_that_is_cancelled_cancels_its_stream(endless: Model) -> None:
    with engine_on(endless) as engine:
        started = asyncio.Event()

        async def listen() -> None:
            async for _ in engine.stream(LONG):
                started.set()

        task = asyncio.create_task(listen())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(assert_at_rest, engine)


async def test_a_stream_says_what_ask_says(endless: Model) -> None:
    with engine_on(endless) as engine:
        events = [event async for event in engine.stream(SHORT[0])]
        answer = await asyncio.to_thread(engine.ask, SHORT[0])
    assert isinstance(events[-1], Finished)
    assert events[-1].metrics.output_tokens == answer.metrics.output_tokens
    found = [e for e in events if isinstance(e, Found)]
    for index in range(2):
        boxes = [(o.x_min, o.y_min, o.x_max, o.y_max) for o in answer.objects if o.phrase_index == index]
        assert places_of([e.item for e in found if e.phrase_index == index]) == boxes


def test_two_engines_do_not_meet(endless: Model) -> None:
    with engine_on(endless) as first, engine_on(endless) as second:
        alone = said(first.ask(SHORT[0]))
        listener, handle = submit(second, LONG)
        until(lambda: bool(listener.found), "the second runs")
        assert said(first.ask(SHORT[0])) == alone
        handle.cancel()


def test_many_threads_may_ask_one_engine(endless: Model) -> None:
    answers: dict[int, list[tuple[float, ...]]] = {}
    with engine_on(endless) as engine:
        alone = [places_of(submit(engine, request)[0].found_at_end) for request in SHORT]

        def ask(i: int) -> None:
            answer = engine.ask(SHORT[i % 3])
            answers[i] = [(o.x_min, o.y_min, o.x_max, o.y_max) for o in answer.objects] + [
                (p.x, p.y) for p in answer.points
            ]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert_at_rest(engine)
    assert all(sorted(answers[i]) == sorted(alone[i % 3]) for i in range(12))


def test_what_is_asked_again_is_answered_again(endless: Model) -> None:
    with engine_on(endless) as engine:
        first, second = (ask_together(engine, SHORT) for _ in range(2))
        assert [said(a) for a in first] == [said(a) for a in second]


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (1, 201), (300, 2)])
def test_any_picture_is_answered(tiny: Model, shape: tuple[int, int]) -> None:
    with engine_on(tiny) as engine:
        answer = engine.detect(np.full((*shape, 3), 90, np.uint8), "red circle")
        assert (answer.height, answer.width) == shape
