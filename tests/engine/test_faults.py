"""A device that breaks, a listener that raises, an engine that closes: who is told, and what goes on."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from engine.engine import Engine
from engine.errors import EngineError, ModelNotFound
from engine.events import Event, Failed, Finished, Found
from engine.loop import Mode
from engine.models.base import Model
from engine.request import Request
from tests.engine.asking import (
    Listener,
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


def pointbox_threads() -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("pointbox"))


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


@pytest.mark.parametrize("mode", ["pipelined", "blocking"])
def test_closing_while_busy_tells_everyone(endless: Model, mode: Mode) -> None:
    """Running, waiting for a row, and still to be prepared."""
    before = pointbox_threads()
    model = Watched(endless)
    engine = engine_on(model, mode=mode, max_batch=2)
    listeners = [submit(engine, replace(LONG, image=picture(i)))[0] for i in range(6)]
    until(lambda: engine.stats().waiting == 4, "four wait for a row")
    model.prepare.clear()
    listeners += [submit(engine, replace(LONG, image=picture(i)))[0] for i in range(20)]
    threading.Timer(0.2, model.prepare.set).start()
    engine.close()
    assert [listener.error for listener in listeners] == ["closed"] * 26
    assert not any(listener.late for listener in listeners)
    assert pointbox_threads() == before
    engine.close()


def test_closing_right_after_submitting(endless: Model) -> None:
    for _ in range(5):
        engine = engine_on(endless)
        listeners = [submit(engine, LONG)[0] for _ in range(8)]
        engine.close()
        assert [listener.error for listener in listeners] == ["closed"] * 8


def test_a_closed_engine_says_so(endless: Model) -> None:
    engine = engine_on(endless)
    _, handle = submit(engine, LONG)
    engine.close()
    handle.cancel()
    for call in (partial(engine.ask, LONG), engine.stats, engine.check_integrity, engine.clear_cache):
        with pytest.raises(EngineError, match="closed") as raised:
            call()
        assert raised.value.kind == "closed"


def test_submitting_while_another_thread_closes(endless: Model) -> None:
    """Whoever got in is told the end, whoever came late gets the error at once."""
    for _ in range(5):
        engine = engine_on(endless)
        listeners: list[Listener] = []
        errors: list[str] = []

        def keep_asking(
            engine: Engine = engine, listeners: list[Listener] = listeners, errors: list[str] = errors
        ) -> None:
            while not errors:
                try:
                    listeners.append(submit(engine, SHORT[2])[0])
                except EngineError as error:
                    errors.append(error.kind)

        threads = [threading.Thread(target=keep_asking) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda listeners=listeners: len(listeners) > 5, "some are in")
        engine.close()
        for thread in threads:
            thread.join()
        assert set(errors) == {"closed"}
        assert {listener.error for listener in listeners} <= {None, "closed"}


def test_an_engine_thread_that_dies_tells_everyone(endless: Model) -> None:
    """A fault that is ours."""
    model = Watched(endless)
    with engine_on(model, max_batch=2) as engine:
        listeners = [submit(engine, replace(LONG, image=picture(i)))[0] for i in range(4)]
        until(lambda: bool(listeners[0].found), "work is under way")
        engine._loop.post(lambda: (_ for _ in ()).throw(ZeroDivisionError("a bug")))  # type: ignore[arg-type]
        kinds = [listener.error for listener in listeners]
        assert kinds == ["closed"] * 4
        assert isinstance(listeners[0].events[-1], Failed)
        with pytest.raises(EngineError, match="closed"):
            engine.ask(SHORT[0])
        with pytest.raises(EngineError, match="closed"):
            engine.stats()


def test_a_model_that_is_not_there_leaves_no_threads(tmp_path) -> None:  # type: ignore[no-untyped-def]
    before = pointbox_threads()
    for name in ("no-such-model", str(tmp_path), "../tiny"):
        with pytest.raises(ModelNotFound):
            Engine.load(name)
    with pytest.raises(EngineError, match="unknown device"):
        Engine.load("tiny", device="abacus")
    assert pointbox_threads() == before


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
