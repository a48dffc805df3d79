"""Pictures of the figures; matplotlib is imported here alone, and only when a picture is wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.pipeline import Result
from bench.table import SAMPLE_MS, Table
from engine.loop import Mode

COLOURS: dict[Mode, str] = {"blocking": "#c2571a", "pipelined": "#1a6fc2"}
FORMATS = ("png", "svg")


def plot_table(table: Table, folder: Path) -> list[Path]:
    """The sweep with the fitted cost model, and the gain at each forward time."""
    import matplotlib.pyplot as plt

    forward = [point.device_ms - SAMPLE_MS for point in table.sweep]
    figure, (steps, gains) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    lines: tuple[tuple[Mode, list[float], Callable[[float], float]], ...] = (
        ("blocking", [p.blocking_ms for p in table.sweep], table.cost.blocking),
        ("pipelined", [p.pipelined_ms for p in table.sweep], table.cost.pipelined),
    )
    for mode, measured, fitted in lines:
        over = [m - f for m, f in zip(measured, forward, strict=True)]
        steps.plot(forward, over, "o", color=COLOURS[mode], label=mode)
        line = [fitted(f) - f for f in forward]
        steps.plot(forward, line, "-", color=COLOURS[mode], alpha=0.5, label=f"{mode}, cost model")
    steps.set(xlabel="forward F, ms", ylabel="step minus F, ms", xscale="log", ylim=(0, None))
    steps.set_title("What a step takes beyond its forward")
    steps.legend()
    gains.plot(forward, [p.gain for p in table.sweep], "o", color=COLOURS["pipelined"], label="measured")
    gains.plot(forward, [table.cost.gain(f) for f in forward], "-", color="grey", label="cost model")
    gains.set(xlabel="forward F, ms", ylabel="more steps per second, %", xscale="log", ylim=(0, None))
    gains.set_title("Gain of pipelining, 32 streams")
    gains.legend()
    return _save(figure, folder, "sweep")


def plot_pipeline(results: dict[Mode, Result], folder: Path) -> list[Path]:
    """How long steps take, as a distribution."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for mode, result in results.items():
        ordered = sorted(result.step_ms)
        share = [100 * (i + 1) / len(ordered) for i in range(len(ordered))]
        axes.plot(ordered, share, color=COLOURS[mode], label=mode)
    longest = max(sorted(r.step_ms)[int(0.98 * len(r.step_ms))] for r in results.values())
    axes.set(xlabel="decode step, ms", ylabel="steps not longer, %", xlim=(None, 1.02 * longest))
    axes.set_title("Decode steps")
    axes.legend()
    return _save(figure, folder, "steps")


def _save(figure: Any, folder: Path, name: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    for path in paths:
        figure.savefig(path, dpi=120)
    return paths
