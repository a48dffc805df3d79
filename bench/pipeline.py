"""What the host adds to a device's steps, in both modes, by turns in one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from bench.emulated import EmulatedModel
from bench.rig import SECTIONS, Rig, Window
from bench.workloads import MEAN_TOKENS, Workload, objects_for
from engine.device.emulated import Durations, EmulatedEvent, Kind
from engine.loop import Mode

Modes = Literal["pipelined", "blocking", "both"]
WINDOW_TICKS = 50
WINDOWS_PER_SECTIONS = 4
"""The clocks around sections would slow the ticks that are timed, so some windows are for them alone."""
COPY_US = 10.0
PREFILL_FORWARDS = 3.0
"""A prefill step takes as long as so many decode steps unless something else is said."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is emulated.

    forward_ms, prefill_ms, sample_us: of the device.  launch_us: of the driver, for each thing launched.
    inject_ms: added to every commit.
    steps: timed ticks of each mode.
    """

    forward_ms: float
    streams: int = 32
    sample_us: float = 100.0
    launch_us: float = 0.0
    prefill_ms: float | None = None
    inject_ms: float = 0.0
    workload: Workload = "detect"
    steps: int = 1000

    @property
    def durations(self) -> Durations:
        prefill_ms = PREFILL_FORWARDS * self.forward_ms if self.prefill_ms is None else self.prefill_ms
        return Durations(
            forward=self.forward_ms / 1e3,
            prefill=prefill_ms / 1e3,
            sample=self.sample_us / 1e6,
            copy=COPY_US / 1e6,
            launch=self.launch_us / 1e6,
            sync=self.inject_ms / 1e3,
        )


@dataclass(frozen=True, slots=True)
class Timed:
    """A step on the compute stream: seconds from the end of the one before it, and those of them idle."""

    kind: Kind
    seconds: float
    idle: float


@dataclass(frozen=True, slots=True)
class Result:
    """Of one mode.

    step_ms, gap_us: of decode steps; a gap is the time in a step in which the device had nothing to do.
    prefill_ms: median of prefill steps, None where there were none.
    idle: share of all time, the median over windows.
    cpu_us: of all threads but the device per tick, by section and in total.
    """

    step_ms: list[float]
    gap_us: list[float]
    prefill_ms: float | None
    idle: float
    cpu_us: dict[str, float]

    @property
    def median_ms(self) -> float:
        return median(self.step_ms)

    def as_json(self) -> dict[str, object]:
        return {
            "step_ms": {"median": self.median_ms, "p95": float(np.percentile(self.step_ms, 95))},
            "gap_us": {"median": median(self.gap_us)},
            "idle": self.idle,
            "cpu_us_per_tick": self.cpu_us,
        }


def modes_of(modes: Modes) -> tuple[Mode, ...]:
    return ("blocking", "pipelined") if modes == "both" else (modes,)


def measure(model: EmulatedModel, setting: Setting, modes: Modes = "both") -> dict[Mode, Result]:
    """The modes take turns of WINDOW_TICKS on one engine, so that both see the same machine."""
    windows: dict[Mode, list[Window]] = {mode: [] for mode in modes_of(modes)}
    sections: dict[Mode, list[dict[str, float]]] = {mode: [] for mode in windows}
    objects = objects_for(MEAN_TOKENS[setting.workload])
    with Rig(model, setting.durations, setting.streams, objects) as rig:
        for number in range(max(1, round(setting.steps / WINDOW_TICKS))):
            for mode in windows:
                windows[mode].append(rig.window(mode, WINDOW_TICKS))
                if number % WINDOWS_PER_SECTIONS == 0:
                    sections[mode].append(rig.sections(mode, WINDOW_TICKS))
    return {mode: summarise(windows[mode], sections[mode]) for mode in windows}


def summarise(windows: list[Window], sections: list[dict[str, float]]) -> Result:
    timed = [list(steps_of(window.log)) for window in windows]
    decode = [step for steps in timed for step in steps if step.kind == "forward"]
    prefill = [step.seconds * 1e3 for steps in timed for step in steps if step.kind == "prefill"]
    cpu = {"total": median(1e6 * w.cpu_s / w.ticks for w in windows)}
    cpu |= {name: median(1e6 * s[name] / WINDOW_TICKS for s in sections) for name in SECTIONS}
    return Result(
        step_ms=[1e3 * step.seconds for step in decode],
        gap_us=[1e6 * step.idle for step in decode],
        prefill_ms=median(prefill) if prefill else None,
        idle=median(sum(s.idle for s in steps) / sum(s.seconds for s in steps) for steps in timed if steps),
        cpu_us=cpu,
    )


def steps_of(log: Iterable[EmulatedEvent]) -> Iterator[Timed]:
    """Each step from the end of the sampling before it to the end of its own."""
    forward: EmulatedEvent | None = None
    last: float | None = None
    idle = 0.0
    for event in log:
        idle += event.idle
        if event.kind != "sample":  # a reset and its prefill, or a forward
            forward = event
            continue
        if forward is not None and last is not None:
            yield Timed(forward.kind, event.end - last, idle)
        last, idle = event.end, 0.0


def zombie_share(model: EmulatedModel, mean_tokens: float, streams: int = 1, ticks: int = 2000) -> float:
    """Rows computed for sequences that had ended, per row that gave a token, when pipelined."""
    with Rig(model, Durations(), streams, objects_for(mean_tokens)) as rig:
        for _ in range(ticks // WINDOW_TICKS):
            rig.window("pipelined", WINDOW_TICKS)
        return rig.zombie_share()
