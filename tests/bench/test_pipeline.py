"""The rig runs the real engine, and what is made of its records is right.  Nothing here depends on speed."""

from __future__ import annotations

from itertools import islice
from statistics import fmean

import numpy as np
import pytest

from bench.emulated import TOKENS_PER_OBJECT, phrase
from bench.pipeline import Setting, measure, modes_of, steps_of, zombie_share
from bench.rig import SECTIONS, SETTLING_TICKS, Rig
from bench.workloads import MEAN_TOKENS, objects_for, questions
from engine.device.cpu import CpuDevice
from engine.device.emulated import Durations, EmulatedDevice, EmulatedEvent, Kind
from engine.engine import Engine
from engine.request import Request
from grammars.types import Box
from tests.bench.models import emulated

QUICK = Durations(forward=2e-4, prefill=3e-4, sample=2e-5, copy=5e-6)


def event(kind: Kind, begin: float, end: float, idle: float) -> EmulatedEvent:
    return EmulatedEvent(EmulatedDevice(QUICK), kind, None, begin, end, idle)


def test_a_step_lasts_from_sampling_to_sampling() -> None:
    log = [
        event("sample", 0.5, 1.0, 0.1),
        event("forward", 1.25, 3.0, 0.25),
        event("sample", 3.5, 4.0, 0.5),
        event("prefill", 4.0, 8.0, 0.0),
        event("sample", 8.0, 8.5, 0.0),
    ]
    assert [(s.kind, s.seconds, s.idle) for s in steps_of(log)] == [
        ("forward", 3.0, 0.75),
        ("prefill", 4.5, 0.0),
    ]


@pytest.mark.parametrize("tokens", [6, 10, 30, 110])
def test_workloads_have_their_mean(tokens: int) -> None:
    counts = list(islice(objects_for(tokens, seed=3), 4000))
    assert fmean(TOKENS_PER_OBJECT * n + 1 for n in counts) == pytest.approx(tokens, rel=0.05)
    assert counts == list(islice(objects_for(tokens, seed=3), 4000))


def test_scripts_are_what_the_model_says() -> None:
    with Rig(emulated(), QUICK, 4, objects_for(30)) as rig:
        for _ in range(3):
            rig.window("pipelined", 30)
            rig.window("blocking", 30)
        over = [s for s in rig.fed if s.ask.over][:12]
    assert len(over) > 5
    with Engine(emulated(), CpuDevice(), mode="blocking") as engine:
        for sequence in over:
            request = Request(
                "detect", np.zeros((1, 1, 3), np.uint8), (phrase(*sequence.prompt),), max_objects=80
            )
            answer = engine.ask(request)
            theirs = [(o.x_min, o.y_min, o.x_max, o.y_max) for o in answer.objects]
            ours = [(i.x_min, i.y_min, i.x_max, i.y_max) for i in sequence.kept if isinstance(i, Box)]
            assert ours == theirs
            assert len(ours) == sequence.prompt[0]
            assert sequence.ask.output_tokens == answer.metrics.output_tokens


@pytest.mark.parametrize("mode", ["pipelined", "blocking"])
def test_a_window_has_every_tick_in_its_log(mode: str) -> None:
    with Rig(emulated(), QUICK, 2, objects_for(110)) as rig:
        window = rig.window(mode, 20)  # type: ignore[arg-type]
    assert window.mode == mode
    assert window.ticks == 20
    assert sum(e.kind == "sample" for e in window.log) == 20
    assert sum(e.kind != "sample" for e in window.log) == 20
    assert window.cpu_s > 0
    for earlier, later in zip(window.log, window.log[1:], strict=False):
        assert later.begin >= earlier.end


def test_clocks_are_taken_away_again() -> None:
    with Rig(emulated(), QUICK, 2, objects_for(110)) as rig:
        before = dict(vars(rig.loop)), dict(vars(rig.loop.executor)), dict(vars(rig.loop.scheduler))
        sections = rig.sections("pipelined", 20)
        after = dict(vars(rig.loop)), dict(vars(rig.loop.executor)), dict(vars(rig.loop.scheduler))
    assert set(sections) == set(SECTIONS)
    for was, now in zip(before, after, strict=True):
        assert set(was) == set(now)


def test_an_error_on_the_engine_thread_reaches_the_caller() -> None:
    with (
        Rig(emulated(), QUICK, 2, iter([1, 2])) as rig,
        pytest.raises(StopIteration),
    ):
        rig.window("pipelined", 5)


def test_rows_are_full_in_a_window() -> None:
    with Rig(emulated(), QUICK, 4, objects_for(6)) as rig:
        rig.window("pipelined", 60)
        waiting, running = rig.loop.scheduler.waiting, rig.loop.scheduler.running
    assert waiting > 0
    assert running >= 3  # one may just have ended: the next step fills its row
    assert SETTLING_TICKS > 0


def test_json_has_the_published_shape() -> None:
    results = measure(emulated(), Setting(0.2, streams=2, steps=50, launch_us=1, inject_ms=0.01))
    assert list(results) == ["blocking", "pipelined"]
    for result in results.values():
        shown = result.as_json()
        assert set(shown) == {"step_ms", "gap_us", "idle", "cpu_us_per_tick"}
        assert set(shown["step_ms"]) == {"median", "p95"}  # type: ignore[call-overload]
        assert set(shown["gap_us"]) == {"median"}  # type: ignore[call-overload]
        assert set(shown["cpu_us_per_tick"]) == {"total", *SECTIONS}  # type: ignore[call-overload]
        assert 0 <= shown["idle"] <= 1  # type: ignore[operator]


def test_one_mode_alone() -> None:
    assert modes_of("both") == ("blocking", "pipelined")
    assert list(measure(emulated(), Setting(0.1, streams=1, steps=50), "pipelined")) == ["pipelined"]


def test_a_step_never_takes_less_than_the_device() -> None:
    setting = Setting(0.3, streams=3, sample_us=50, steps=50, workload="short")
    for result in measure(emulated(), setting).values():
        assert min(result.step_ms) >= 0.35 - 1e-6
        assert result.prefill_ms is not None
        assert result.prefill_ms >= 0.95 - 1e-6


def test_blocking_waits_for_what_is_injected_and_pipelined_does_not() -> None:
    setting = Setting(20.0, streams=1, inject_ms=15.0, steps=50)
    results = measure(emulated(), setting)
    assert min(results["blocking"].step_ms) >= 20 + 15
    assert results["pipelined"].median_ms < results["blocking"].median_ms


def test_shorter_answers_have_more_zombies() -> None:
    short, long = (zombie_share(emulated(), tokens, ticks=600) for tokens in (10, 110))
    assert 0 < long < short < 1


def test_mean_tokens_name_the_workloads() -> None:
    assert MEAN_TOKENS == {"detect": 110, "short": 6}


def test_pictures_are_the_same_every_time() -> None:
    first, second = questions(5, seed=9), questions(5, seed=9)
    assert [q.phrase for q in first] == [q.phrase for q in second]
    assert all((a.image == b.image).all() for a, b in zip(first, second, strict=True))
    assert len({q.image.tobytes() for q in first}) == 5
