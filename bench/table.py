"""The published figures of the pipelined design beside ours, a sweep of forward times, and the cost model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

from bench.emulated import EmulatedModel
from bench.pipeline import Setting, measure, zombie_share

SWEEP_MS = (1, 2, 3, 4, 6, 8, 12, 20, 30, 40)
ZOMBIE_TOKENS = (10, 30, 110)
STREAMS = 32
SAMPLE_MS = 0.1


@dataclass(frozen=True, slots=True)
class Published:
    """Milliseconds of a decode step as published, and the gain as printed beside them in per cent."""

    device: str
    streams: int
    blocking_ms: float
    pipelined_ms: float
    printed_gain: float

    @property
    def gain(self) -> float:
        """As the milliseconds give it, in per cent."""
        return gain(self.blocking_ms, self.pipelined_ms)


PUBLISHED = (
    Published("RTX 3090", 1, 5.44, 5.10, 6.5),
    Published("RTX 3090", 32, 11.74, 10.52, 11.6),
    Published("B200", 1, 3.11, 2.63, 17.6),
    Published("B200", 32, 5.55, 3.98, 35.4),
)


@dataclass(frozen=True, slots=True)
class Ours:
    """Median decode steps and gaps of a device whose forward and sampling take `device_ms` together."""

    device_ms: float
    streams: int
    blocking_ms: float
    pipelined_ms: float
    gap_us: float

    @property
    def gain(self) -> float:
        return gain(self.blocking_ms, self.pipelined_ms)


@dataclass(frozen=True, slots=True)
class CostModel:
    """blocking = F + C and pipelined = max(F, C) + s, in ms; medians over the sweep."""

    c: float
    s: float

    def blocking(self, forward_ms: float) -> float:
        return forward_ms + self.c

    def pipelined(self, forward_ms: float) -> float:
        return max(forward_ms, self.c) + self.s

    def gain(self, forward_ms: float, zombies: float = 0.0) -> float:
        """Per cent, once zombies have had their share."""
        ratio = self.blocking(forward_ms) / self.pipelined(forward_ms)
        return 100 * (ratio / (1 + zombies) - 1)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Median prefill steps of short answers, in ms: what the device needs, and what each mode takes."""

    device_ms: float
    blocking_ms: float
    pipelined_ms: float


@dataclass(frozen=True, slots=True)
class Table:
    """zombies: share of rows by mean answer length in tokens, at one stream."""

    rows: list[tuple[Published, Ours]]
    sweep: list[Ours]
    cost: CostModel
    zombies: dict[int, float]
    overlap: Overlap

    def as_json(self) -> dict[str, object]:
        return {
            "rows": [
                asdict(theirs) | {"gain": theirs.gain, "ours": asdict(ours) | {"gain": ours.gain}}
                for theirs, ours in self.rows
            ],
            "sweep": [asdict(ours) | {"gain": ours.gain} for ours in self.sweep],
            "cost_model": asdict(self.cost),
            "zombie_share": {str(tokens): share for tokens, share in self.zombies.items()},
            "prefill_overlap": asdict(self.overlap),
        }


def gain(blocking_ms: float, pipelined_ms: float) -> float:
    """Per cent more steps in the same time."""
    return 100 * (blocking_ms / pipelined_ms - 1)


def run(model: EmulatedModel, steps: int, tell: Callable[[str], None]) -> Table:
    """steps: timed ticks of each mode of each row; the sweep takes a third of them.

    tell: is told what comes next.
    """
    rows = []
    for theirs in PUBLISHED:
        tell(f"{theirs.device}, {theirs.streams} streams")
        rows.append((theirs, ours(model, theirs.pipelined_ms, theirs.streams, steps)))
    sweep = []
    for forward_ms in SWEEP_MS:
        tell(f"sweep: {forward_ms} ms")
        sweep.append(ours(model, forward_ms + SAMPLE_MS, STREAMS, steps // 3))
    shares = {}
    for tokens in ZOMBIE_TOKENS:
        tell(f"zombies at {tokens} tokens")
        shares[tokens] = zombie_share(model, tokens)
    tell("prefill overlap")
    return Table(rows, sweep, fit(sweep), shares, overlap(model, steps))


def ours(model: EmulatedModel, device_ms: float, streams: int, steps: int) -> Ours:
    setting = Setting(device_ms - SAMPLE_MS, streams, sample_us=1e3 * SAMPLE_MS, steps=steps)
    results = measure(model, setting)
    blocking, pipelined = results["blocking"], results["pipelined"]
    return Ours(device_ms, streams, blocking.median_ms, pipelined.median_ms, median(pipelined.gap_us))


def fit(sweep: list[Ours]) -> CostModel:
    """F without the sampling, as the model has it."""
    c = median(point.blocking_ms - (point.device_ms - SAMPLE_MS) for point in sweep)
    s = median(point.pipelined_ms - max(point.device_ms - SAMPLE_MS, c) for point in sweep)
    return CostModel(c, s)


def overlap(model: EmulatedModel, steps: int) -> Overlap:
    setting = Setting(3.9, STREAMS, workload="short", steps=steps)
    results = measure(model, setting)
    blocking, pipelined = results["blocking"].prefill_ms, results["pipelined"].prefill_ms
    assert blocking is not None
    assert pipelined is not None
    return Overlap(1e3 * (setting.durations.prefill + setting.durations.sample), blocking, pipelined)
