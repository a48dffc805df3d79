"""Cancels and deadlines, at every moment of a request's life."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.engine import Engine, Handle
from engine.events import Event, Found, PhraseEnded
from engine.loop import Mode
from engine.models.base import Model
from engine.request import Request
from tests.engine.asking import (
    PATIENCE_S,
    Listener,
    assert_at_rest,
    engine_on,
    idle,
    picture,
    places_of,
    submit,
    until,
)
from tests.engine.faulty import Held, Watched

LONG = Request("detect", picture(1), ("red circle",), max_objects=500, dedupe=False)
OTHER = Request("detect", picture(2), ("blue star", "white ring"), max_objects=4, dedupe=False)


class Stage:
    """An engine whose preparation and device can be held, two rows, on a model that writes for ever."""

    def __init__(self, model: Model, mode: Mode) -> None:
        self.model, self.device = Watched(model), Held()
        self.engine: Engine = engine_on(self.model, device=self.device, mode=mode, max_batch=2)
        self.expected = places_of(submit(self.engine, OTHER)[0].found_at_end)
        assert_at_rest(self.engine)

    def other_is_answered(self) -> None:
        assert places_of(submit(self.engine, OTHER)[0].found_at_end) == self.expected
        assert_at_rest(self.engine)


@pytest.fixture(params=["pipelined", "blocking"])
def stage(endless: Model, request: pytest.FixtureRequest) -> Iterator[Stage]:
    stage = Stage(endless, request.param)
    yield stage
    stage.model.prepare.set()
    stage.engine.close()


def cancelled(listener: Listener) -> None:
    assert listener.error == "cancelled"
    assert not listener.late


def test_before_it_is_prepared(stage: Stage) -> None:
    stage.model.prepare.clear()
    listener, handle = submit(stage.engine, LONG)
    until(lambda: stage.model.preparing == 2, "the preparation has begun")
    handle.cancel()
    cancelled(listener)
    stage.model.prepare.set()
    stage.other_is_answered()
    assert len(listener.events) == 1
    cancelled(listener)


def test_while_it_waits_for_a_row(stage: Stage) -> None:
    running = [submit(stage.engine, LONG) for _ in range(2)]
    until(lambda: stage.engine.stats().rows_active == 2, "both rows are taken")
    listener, handle = submit(stage.engine, OTHER)
    until(lambda: stage.engine.stats().waiting == 2, "two sequences wait")
    handle.cancel()
    cancelled(listener)
    assert stage.engine.stats().waiting == 0
    assert len(listener.events) == 1
    for other, its_handle in running:
        assert not other.over
        its_handle.cancel()
        cancelled(other)
    stage.other_is_answered()


@pytest.mark.parametrize("more", range(5))
def test_between_launch_and_commit(stage: Stage, more: int) -> None:
    """The device stands at a forward or a sampling when the cancel comes; a neighbour goes on."""
    neighbour, its_handle = submit(stage.engine, LONG)
    listener, handle = submit(stage.engine, replace(LONG, image=picture(7)))
    until(lambda: stage.engine.stats().rows_active == 2, "both run")
    stage.device.hold(more)
    assert stage.device.still.wait(PATIENCE_S)
    handle.cancel()
    found = list(listener.found)
    stage.device.go()
    cancelled(listener)
    assert len(listener.found) <= len(found) + 1, "more than the step under way was told"
    count = len(neighbour.found)
    until(lambda: len(neighbour.found) > count + 1 or neighbour.over, "the neighbour goes on")
    its_handle.cancel()
    cancelled(neighbour)
    stage.other_is_answered()
    cancelled(listener)


def test_after_the_first_object(stage: Stage) -> None:
    listener, handle = submit(stage.engine, LONG)
    until(lambda: bool(listener.found), "an object")
    handle.cancel()
    cancelled(listener)
    stage.other_is_answered()


@pytest.mark.parametrize("phrases", [("red circle",), ("red circle", "blue star")])
def test_from_inside_its_own_event(stage: Stage, phrases: tuple[str, ...]) -> None:
    handles: list[Handle] = []
    submitted = threading.Event()

    def cancel(event: Event) -> None:
        assert submitted.wait(60)
        handles[0].cancel()

    listener = Listener(cancel)
    handles.append(stage.engine.submit(replace(LONG, phrases=phrases), listener))
    submitted.set()
    cancelled(listener)
    assert 1 <= len(listener.found) <= len(phrases), "more than one step's objects after the cancel"
    stage.other_is_answered()


def test_twice_and_after_the_end(stage: Stage) -> None:
    listener, handle = submit(stage.engine, LONG)
    until(lambda: bool(listener.found), "an object")
    for _ in range(3):
        handle.cancel()
    cancelled(listener)
    done, its_handle = submit(stage.engine, OTHER)
    assert done.error is None
    its_handle.cancel()
    stage.other_is_answered()
    assert not done.late
    assert not listener.late


def test_work_stops_within_a_step(stage: Stage) -> None:
    listener, handle = submit(stage.engine, LONG)
    until(lambda: bool(listener.found), "an object")
    handle.cancel()
    cancelled(listener)
    until(lambda: idle(stage.engine), "its row is free")
    assert len(listener.found) < 190, "it ran to its limit"


def test_a_deadline_that_has_passed(stage: Stage) -> None:
    listener, _ = submit(stage.engine, replace(LONG, deadline=time.monotonic() - 1))
    assert listener.error == "deadline-exceeded"
    assert len(listener.events) == 1
    stage.other_is_answered()


def test_a_deadline_before_any_object(stage: Stage) -> None:
    stage.device.hold()
    deadline = time.monotonic() + 0.5
    listener, _ = submit(stage.engine, replace(LONG, deadline=deadline))
    assert stage.device.still.wait(PATIENCE_S)
    until(lambda: time.monotonic() > deadline, "the deadline passes")
    stage.device.go()
    assert listener.error == "deadline-exceeded"
    assert len(listener.events) == 1
    stage.other_is_answered()
    assert not listener.late


def test_a_deadline_while_it_waits(stage: Stage) -> None:
    running = [submit(stage.engine, LONG) for _ in range(2)]
    until(lambda: stage.engine.stats().rows_active == 2, "both rows are taken")
    listener, _ = submit(stage.engine, replace(OTHER, deadline=time.monotonic() + 0.05))
    assert listener.error == "deadline-exceeded"
    for other, handle in running:
        handle.cancel()
        cancelled(other)
    stage.other_is_answered()


@pytest.mark.parametrize("phrases", [("red circle",), ("red circle", "blue star", "white ring")])
def test_a_deadline_after_an_object_keeps_what_was_found(stage: Stage, phrases: tuple[str, ...]) -> None:
    for patience in (0.3, 1.0, 4.0, 16.0, 60.0):
        deadline = time.monotonic() + patience

        def linger(event: Event, deadline: float = deadline) -> None:
            if isinstance(event, Found):
                time.sleep(max(0.0, deadline - time.monotonic()))

        request = replace(LONG, phrases=phrases, deadline=deadline)
        listener, _ = submit(stage.engine, request, linger)
        if listener.error is None:
            break
        assert listener.error == "deadline-exceeded"
    ended = [e for e in listener.events if isinstance(e, PhraseEnded)]
    assert sorted(e.phrase_index for e in ended) == list(range(len(phrases)))
    assert {e.finish_reason for e in ended} == {"deadline"}
    assert listener.found
    stage.other_is_answered()
    assert not listener.late


async def test_leaving_a_stream_early_cancels_it(stage: Stage) -> None:
    stream = stage.engine.stream(LONG)
    async for event in stream:
        assert isinstance(event, Found)
        break
    await stream.aclose()
    until(lambda: idle(stage.engine), "the row is free")
    stage.other_is_answered()
