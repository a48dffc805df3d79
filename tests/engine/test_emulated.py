"""The emulated device: its timeline follows from the order of enqueuing, and its work runs in that order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from bench.emulated import phrase
from engine.answer import Answer
from engine.device.base import Device, Timed
from engine.device.cpu import CpuDevice
from engine.device.emulated import Durations, EmulatedDevice
from engine.engine import Engine
from engine.executor import Placement
from engine.loop import Mode
from engine.request import Request
from tests.bench.models import emulated

FORWARD, SAMPLE = ("forward", 0, 1, 4), ("sample", 0, 1, False)
HOURS = Durations(forward=3600.0, prefill=7200.0, sample=60.0, copy=1.0)


def nothing() -> None:
    pass


def test_a_stream_is_a_queue() -> None:
    device = EmulatedDevice(HOURS)
    prefill = device.compute(nothing)
    forward = device.compute(nothing, FORWARD)
    sample = device.compute(nothing, SAMPLE)
    for earlier, later in ((prefill, forward), (forward, sample)):
        assert later.begin == earlier.end
        assert later.idle == 0
    for event, seconds in ((prefill, 7200), (forward, 3600), (sample, 60)):
        assert event.end - event.begin == pytest.approx(seconds)


def test_copies_wait_for_what_they_copy_and_for_each_other() -> None:
    device = EmulatedDevice(HOURS)
    sampled = device.compute(nothing, SAMPLE)
    copied = device.copy(nothing, after=sampled)
    again = device.copy(nothing, after=sampled)
    forward = device.compute(nothing, FORWARD)
    assert copied.begin == sampled.end
    assert again.begin == copied.end
    assert forward.begin == sampled.end, "copies do not hold up the compute stream"


def test_what_comes_late_leaves_a_gap() -> None:
    device = EmulatedDevice(Durations())
    first = device.compute(nothing, FORWARD)
    first.wait()
    second = device.compute(nothing, SAMPLE)
    assert second.begin > first.end
    assert second.idle == second.begin - first.end


def test_the_driver_holds_the_host_and_then_the_work_begins() -> None:
    device = EmulatedDevice(Durations(launch=0.01))
    before = time.perf_counter()
    event = device.compute(nothing, FORWARD)
    assert before + 0.01 <= event.begin <= time.perf_counter()


def test_work_runs_in_the_order_of_enqueuing_and_before_its_wait_ends() -> None:
    device = EmulatedDevice(Durations(forward=0.002, sample=0.001, copy=0.001))
    done: list[str] = []

    def note(what: str) -> Callable[[], None]:
        return lambda: done.append(what)

    device.compute(note("forward 1"), FORWARD)
    sampled = device.compute(note("sample 1"), SAMPLE)
    copied = device.copy(note("copy 1"), after=sampled)
    device.compute(note("forward 2"), FORWARD)
    copied.wait()
    assert done == ["forward 1", "sample 1", "copy 1"]
    assert time.perf_counter() >= copied.end
    device.close()
    assert done[-1] == "forward 2"


def test_sync_holds_the_host_after_a_copy_only() -> None:
    device = EmulatedDevice(Durations(sync=0.05))
    sampled = device.compute(nothing, SAMPLE)
    copied = device.copy(nothing, after=sampled)
    copied.wait()
    assert time.perf_counter() >= copied.end + 0.05


def test_an_error_is_raised_to_whoever_waits_for_that_work() -> None:
    def fail() -> None:
        raise ValueError("no such thing")

    device = EmulatedDevice(Durations())
    good, bad, after = (device.compute(work, FORWARD) for work in (nothing, fail, nothing))
    after.wait()
    good.wait()
    with pytest.raises(ValueError, match="no such thing"):
        bad.wait()


def test_a_wait_lets_go_of_the_gil() -> None:
    device = EmulatedDevice(Durations(forward=0.3))
    waiting, turns = threading.Event(), [0]

    def count() -> None:
        waiting.wait()
        while waiting.is_set():
            turns[0] += 1

    other = threading.Thread(target=count)
    other.start()
    event = device.compute(nothing, FORWARD)
    waiting.set()
    event.wait()
    waiting.clear()
    other.join()
    assert turns[0] > 0


def test_events_say_when_they_ran() -> None:
    device = EmulatedDevice(HOURS)
    event = device.compute(nothing, FORWARD)
    assert isinstance(event, Timed)
    assert event.ran == (event.begin, event.end)


def said(device: Device, mode: Mode, placement: Placement) -> Answer:
    phrases = tuple(phrase(objects, 31 * objects) for objects in (0, 1, 4, 9, 2, 0, 17))
    request = Request("detect", np.zeros((1, 1, 3), np.uint8), phrases, max_objects=100)
    with Engine(emulated(), device, mode=mode, placement=placement, max_batch=4) as engine:
        return engine.ask(request)


@pytest.mark.parametrize("mode", ["pipelined", "blocking"])
@pytest.mark.parametrize("placement", ["host", "device"])
def test_answers_are_those_of_the_cpu_device(mode: Mode, placement: Placement) -> None:
    quick = Durations(forward=2e-4, prefill=4e-4, sample=1e-4, copy=1e-5, launch=1e-6)
    ours, reference = said(EmulatedDevice(quick), mode, placement), said(CpuDevice(), "blocking", "host")
    assert ours.objects == reference.objects
    assert ours.phrases == reference.phrases
    assert [sum(o.phrase_index == i for o in ours.objects) for i in range(7)] == [0, 1, 4, 9, 2, 0, 17]
    assert len({(o.x_min, o.y_min) for o in ours.objects}) > 20
    assert ours.metrics.output_tokens == reference.metrics.output_tokens == 5 * 33 + 7
