"""What a GPU machine shows of the engine: is it right there, and how much of the device does it leave idle?

    python3 -m bench.device_check [--json FILE]

Runs the tests of the CUDA device and the Triton kernel; compares answers with graphs on and off, in both
modes and both placements; then times decode steps of a randomly initialised 2 B Moondream-shaped decoder in
bf16, pipelined and blocking.  Takes a few minutes on an H200 and needs no network.  Without a GPU it does
the same at toy size on the CPU device, whose times say nothing about a GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch

from bench.device_model import TOY, RandomMoondream
from engine.device.base import Event
from engine.device.cpu import CpuDevice
from engine.device.cuda import CudaDevice
from engine.engine import PAGE_SIZE, Engine
from engine.events import Failed, Finished
from engine.models.moondream_text import Shape
from engine.request import Request

TESTS = ("tests/engine/test_cuda.py",)
Span = tuple[Hashable, float, float]
"""Key of the work, when it began and ended, in ms."""


class TimedCuda(CudaDevice):
    """Events before and after everything on the compute stream."""

    def __init__(self, *, graphs: bool = True) -> None:
        super().__init__(graphs=graphs)
        self._marks: list[tuple[Hashable, torch.cuda.Event, torch.cuda.Event]] = []

    def compute(self, work: Callable[[], None], key: Hashable = None) -> Any:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(self.compute_stream)
        event = super().compute(work, key)
        end.record(self.compute_stream)
        self._marks.append((key, begin, end))
        return event

    def take(self) -> list[Span]:
        """What ran since the last call."""
        torch.cuda.synchronize()
        marks, self._marks = self._marks, []
        origin = marks[0][1]
        return [(key, origin.elapsed_time(b), origin.elapsed_time(e)) for key, b, e in marks]


class TimedCpu(CpuDevice):
    """The same on the compute thread, at the shapes of a GPU."""

    def __init__(self, *, graphs: bool = True) -> None:
        super().__init__()
        self.fixed_shapes = True
        self._spans: list[Span] = []

    def compute(self, work: Callable[[], None], key: Hashable = None) -> Any:
        def timed() -> None:
            begin = time.perf_counter()
            work()
            self._spans.append((key, 1e3 * begin, 1e3 * time.perf_counter()))

        event: Event = super().compute(timed, key)
        return event

    def take(self) -> list[Span]:
        spans, self._spans = self._spans, []
        return spans


@dataclass(frozen=True)
class Plan:
    """What is run at which size."""

    shape: Shape
    image_tokens: int
    dtype: torch.dtype
    streams: tuple[int, ...]
    tokens: int
    timed: type[TimedCuda] | type[TimedCpu]

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if self.timed is TimedCuda else "cpu")

    def pages(self, streams: int) -> int:
        """Enough for every stream's picture, prompt and answer."""
        return 2 + streams * (self.image_tokens // PAGE_SIZE + -(-self.tokens // PAGE_SIZE) + 3)


FULL = Plan(Shape(), 736, torch.bfloat16, (1, 8, 32, 64), 200, TimedCuda)
SMALL = Plan(TOY, 64, torch.float32, (1, 4), 60, TimedCpu)


@dataclass(frozen=True)
class Row:
    """One line of the table; ms.

    device_ms: forward and sampling alone.  idle: share of the compute stream without work.
    weights: share of the step that reading the weights once takes at the measured bandwidth; weights_kv: with
    the keys and values that the rows see.
    """

    streams: int
    mode: str
    steps: int
    step_ms: float
    p95_ms: float
    device_ms: float
    idle: float
    weights: float
    weights_kv: float
    tokens_per_s: float


def picture(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (64, 64, 3), np.uint8)


def run_together(engine: Engine, streams: int) -> None:
    """One request per stream, each with a picture of its own, all at once."""
    ended: SimpleQueue[Any] = SimpleQueue()
    for seed in range(streams):
        request = Request("point", picture(seed), ("a thing",), max_objects=10_000, dedupe=False)
        engine.submit(request, lambda e: ended.put(e) if isinstance(e, Finished | Failed) else None)
    for _ in range(streams):
        if isinstance(event := ended.get(), Failed):
            raise event.error


def whole_steps(spans: list[Span], streams: int) -> list[tuple[Span, Span, Span]]:
    """Forward and sampling of a decode step of all streams, and the forward of the next one."""
    steps = []
    for first, second, third in zip(spans, spans[1:], spans[2:], strict=False):
        keys = [key for key, _, _ in (first, second, third) if isinstance(key, tuple)]
        names = [(key[0], key[2]) for key in keys]
        if names == [("forward", streams), ("sample", streams), ("forward", streams)]:
            steps.append((first, second, third))
    return steps[len(steps) // 10 :]


def measure(model: RandomMoondream, plan: Plan, streams: int, mode: str, bandwidth: float) -> Row:
    """The first round records graphs and fills the image cache, the second is timed."""
    gc.collect()  # the last engine's pages
    device = plan.timed()
    options: dict[str, Any] = {"mode": mode, "max_batch": streams, "max_tokens": plan.tokens}
    options |= {"prefill_tokens": 8192, "pages": plan.pages(streams)}
    with Engine(model, device, **options) as engine:
        run_together(engine, streams)
        device.take()
        run_together(engine, streams)
        steps = whole_steps(device.take(), streams)
    periods = [third[1] - first[1] for first, _, third in steps]
    busy = [first[2] - first[1] + second[2] - second[1] for first, second, _ in steps]
    step = statistics.median(periods)
    kv = model.kv
    seen = plan.image_tokens + plan.tokens // 2
    kv_bytes = streams * seen * 2 * kv.layers * kv.kv_heads * kv.head_dim * kv.dtype.itemsize
    return Row(
        streams=streams,
        mode=mode,
        steps=len(steps),
        step_ms=step,
        p95_ms=statistics.quantiles(periods, n=20)[-1],
        device_ms=statistics.median(busy),
        idle=1 - sum(busy) / sum(periods),
        weights=1e3 * model.bytes_per_step / bandwidth / step,
        weights_kv=1e3 * (model.bytes_per_step + kv_bytes) / bandwidth / step,
        tokens_per_s=1e3 * streams / step,
    )


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second that a copy in the device's memory reads and writes."""
    size = (1 << 31) if device.type == "cuda" else (1 << 26)
    source = torch.empty(size, dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return 2 * size / statistics.median(times)


def answers(model: RandomMoondream, plan: Plan, **options: Any) -> list[tuple[float, float]]:
    """Points of eight phrases about one picture: one request has one schedule, so answers can be compared."""
    device = plan.timed(graphs=options.pop("graphs", True))
    with Engine(model, device, max_batch=8, max_tokens=24, pages=plan.pages(8), **options) as engine:
        phrases = tuple(f"thing {i}" for i in range(8))
        request = Request("point", picture(99), phrases, max_objects=10_000, dedupe=False)
        answer = engine.ask(request)
        engine.check_integrity()
    return [(p.x, p.y) for p in answer.points]


def check_sameness(model: RandomMoondream, plan: Plan) -> dict[str, bool]:
    """Against blocking without graphs, the plainest way to run."""
    expected = answers(model, plan, mode="blocking", graphs=False)
    assert len(expected) == 8 * 12
    ways: dict[str, dict[str, Any]] = {
        "graphs, blocking": {"mode": "blocking"},
        "no graphs, pipelined": {"graphs": False},
        "graphs, pipelined": {},
        "graphs, pipelined, device placement": {"placement": "device"},
    }
    return {name: answers(model, plan, **way) == expected for name, way in ways.items()}


def run_tests() -> bool:
    root = Path(__file__).parents[1]
    return pytest.main(["-q", "--noconftest", "-p", "no:cacheprovider", *(str(root / t) for t in TESTS)]) == 0


def show(rows: list[Row]) -> None:
    print(
        f"{'streams':>7} {'mode':>10} {'steps':>6} {'step ms':>9} {'p95 ms':>9} {'device ms':>10} "
        f"{'idle':>7} {'weights':>8} {'+ KV':>7} {'tokens/s':>9}"
    )
    for r in rows:
        print(
            f"{r.streams:>7} {r.mode:>10} {r.steps:>6} {r.step_ms:>9.3f} {r.p95_ms:>9.3f} "
            f"{r.device_ms:>10.3f} {r.idle:>7.1%} {r.weights:>8.1%} {r.weights_kv:>7.1%} "
            f"{r.tokens_per_s:>9.0f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    begin = time.monotonic()
    plan = FULL if torch.cuda.is_available() else SMALL
    name = torch.cuda.get_device_name() if plan is FULL else "CPU, toy size: times say nothing about a GPU"
    print(f"{name}; torch {torch.__version__}, Python {sys.version.split()[0]}; page size {PAGE_SIZE}")
    tests_passed = run_tests()
    model = RandomMoondream(plan.shape, plan.image_tokens, plan.device, plan.dtype)
    bandwidth = copy_bandwidth(plan.device)
    parameters = sum(p.numel() for p in model.decoder.parameters())
    print(
        f"{parameters / 1e6:,.1f} M parameters, {plan.dtype}; a step reads "
        f"{model.bytes_per_step / 1e6:,.1f} MB of weights; "
        f"measured copy bandwidth {bandwidth / 1e9:,.0f} GB/s"
    )
    same = check_sameness(model, plan)
    for way, equal in same.items():
        print(f"{'same' if equal else 'DIFFERENT'} as blocking without graphs: {way}")
    rows = [
        measure(model, plan, n, mode, bandwidth) for n in plan.streams for mode in ("blocking", "pipelined")
    ]
    show(rows)
    good = tests_passed and all(same.values())
    print(f"{'passed' if good else 'FAILED'} in {time.monotonic() - begin:.0f} s")
    if arguments.json is not None:
        report = {
            "device": name,
            "torch": torch.__version__,
            "passed": good,
            "bandwidth": bandwidth,
            "same": same,
            "rows": [asdict(row) for row in rows],
        }
        arguments.json.write_text(json.dumps(report, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
