"""A trace holds what the engine thread and the device did for every step."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from bench.emulated import phrase
from engine.device.base import Device
from engine.device.cpu import CpuDevice
from engine.device.emulated import Durations, EmulatedDevice
from engine.engine import Engine
from engine.loop import Mode
from engine.request import Request
from engine.trace import Span, Trace
from tests.bench.models import emulated

HOST, ON_DEVICE = {"launch", "finalize", "commit"}, {"forward", "sample", "copy"}


def traced(device: Device, mode: Mode) -> Trace:
    trace = Trace()
    request = Request("detect", np.zeros((1, 1, 3), np.uint8), (phrase(3, 1), phrase(5, 2)))
    with Engine(emulated(), device, mode=mode, trace=trace) as engine:
        engine.ask(request)
    return trace


def by_step(trace: Trace) -> dict[int, dict[str, Span]]:
    steps: dict[int, dict[str, Span]] = defaultdict(dict)
    for span in (*trace.spans, *trace.device_spans):
        assert span.name not in steps[span.step], "a step did something twice"
        steps[span.step][span.name] = span
    return steps


@pytest.mark.parametrize("mode", ["pipelined", "blocking"])
@pytest.mark.parametrize("kind", ["cpu", "emulated"])
def test_every_step_has_its_spans_in_order(kind: str, mode: Mode) -> None:
    device = CpuDevice() if kind == "cpu" else EmulatedDevice(Durations(1e-3, 2e-3, 1e-4, 1e-5))
    steps = by_step(traced(device, mode))
    assert sorted(steps) == list(range(len(steps)))
    assert len(steps) in (26, 27), "one forward a token, and perhaps one past the end"
    for spans in steps.values():
        assert set(spans) == HOST | ON_DEVICE
        assert spans["launch"].begin <= spans["finalize"].begin <= spans["commit"].end
        assert spans["forward"].end <= spans["sample"].begin
        assert spans["sample"].end <= spans["copy"].begin
        assert spans["copy"].end <= spans["commit"].end
        assert len({(span.kind, span.rows) for span in spans.values()}) == 1
    assert steps[0]["launch"].kind == "prefill"
    assert steps[1]["launch"].kind == "decode"


def test_pipelined_launches_before_the_step_before_is_committed() -> None:
    def overlaps(mode: Mode) -> int:
        steps = by_step(traced(EmulatedDevice(Durations(1e-3)), mode))
        return sum(steps[n + 1]["launch"].end <= steps[n]["commit"].begin for n in range(len(steps) - 1))

    assert overlaps("blocking") == 0
    assert overlaps("pipelined") >= 24


def test_the_file_is_chrome_trace_json(tmp_path: Path) -> None:
    trace = traced(EmulatedDevice(Durations(1e-4)), "pipelined")
    trace.write(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M"}
    assert set(names) == {"pointbox-engine", "compute stream", "copy stream"}
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == len(trace.spans) + len(trace.device_spans)
    for event in spans:
        assert event["dur"] >= 0
        assert event["tid"] in names.values()
        assert event["args"]["rows"] >= 1
    assert {e["name"] for e in spans} >= {"launch 0", "forward 0", "copy 0", "commit 0", "finalize 0"}


def test_nothing_is_recorded_unless_asked() -> None:
    request = Request("detect", np.zeros((1, 1, 3), np.uint8), (phrase(2, 3),))
    with Engine(emulated(), CpuDevice()) as engine:
        assert len(engine.ask(request).objects) == 2
