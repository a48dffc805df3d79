"""Results as tables on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from numpy import percentile
from rich.console import Console
from rich.table import Table as RichTable

from bench.batch import BatchRun
from bench.costly import Flood
from bench.jobs import Beside
from bench.load import Load
from bench.overhead import Overhead
from bench.pipeline import Result, Setting
from bench.rig import SECTIONS
from bench.table import Table
from bench.throughput import Way
from engine.loop import Mode


def show_pipeline(setting: Setting, results: dict[Mode, Result]) -> None:
    title = (
        f"{setting.streams} streams, {setting.workload}: forward {setting.forward_ms:g} ms, "
        f"sample {setting.sample_us:g} us, launch {setting.launch_us:g} us, inject {setting.inject_ms:g} ms"
    )
    steps, cpu = [], []
    for mode, result in results.items():
        times = (median(result.step_ms), percentile(result.step_ms, 95))
        gap, idle = median(result.gap_us), 100 * result.idle
        steps.append([mode, *(f"{t:.3f}" for t in times), f"{gap:.0f}", f"{idle:.1f}"])
        cpu.append([mode, *(f"{result.cpu_us[name]:.0f}" for name in ("total", *SECTIONS))])
    _print(title, ("mode", "step ms", "p95 ms", "gap us", "idle %"), steps)
    _print("CPU per tick, us", ("mode", "total", *SECTIONS), cpu)


def show_table(table: Table) -> None:
    names = ("device", "streams", "blocking ms", "pipelined ms", "gain %", "printed %")
    rows = []
    for theirs, ours in table.rows:
        figures = (theirs.blocking_ms, theirs.pipelined_ms, theirs.gain)
        rows.append([theirs.device, str(theirs.streams), *_figures(figures), f"{theirs.printed_gain:.1f}"])
        mine = (ours.blocking_ms, ours.pipelined_ms, ours.gain)
        rows.append(["  emulated, ours", str(ours.streams), *_figures(mine), ""])
    _print("Published, and our engine on a device of that speed", names, rows)
    sweep = [
        [f"{p.device_ms:.1f}", *_figures((p.blocking_ms, p.pipelined_ms, p.gain)), f"{p.gap_us:.0f}"]
        for p in table.sweep
    ]
    _print(
        "Forward times, 32 streams",
        ("device ms", "blocking ms", "pipelined ms", "gain %", "gap us"),
        sweep,
    )
    cost, overlap = table.cost, table.overlap
    console = Console(highlight=False)
    console.print(f"Cost model: blocking = F + {cost.c:.3f} ms, pipelined = max(F, C) + {cost.s:.3f} ms")
    for tokens, share in table.zombies.items():
        console.print(f"Zombies at {tokens} tokens and one stream: {100 * share:.2f} % of rows")
    console.print(
        f"Prefill steps of short answers: device {overlap.device_ms:.3f} ms, "
        f"blocking {overlap.blocking_ms:.3f} ms, pipelined {overlap.pipelined_ms:.3f} ms"
    )


def show_throughput(ways: Iterable[Way]) -> None:
    rows = [[w.name, f"{w.requests_per_s:.2f}", f"{w.p50_ms:.0f}", f"{w.p99_ms:.0f}"] for w in ways]
    _print("The default model on the CPU", ("way", "requests/s", "p50 ms", "p99 ms"), rows)


def show_overhead(overhead: Overhead) -> None:
    rows = [
        ["wall", f"{overhead.wall_p50_ms:.2f}", f"{overhead.wall_p99_ms:.2f}"],
        ["intake", f"{overhead.intake_p50_ms:.2f}", ""],
        ["engine", f"{overhead.engine_p50_ms:.2f}", ""],
        [
            "wall minus intake and engine",
            f"{overhead.overhead_p50_ms:.2f}",
            f"{overhead.overhead_p99_ms:.2f}",
        ],
    ]
    title = f"{overhead.requests} requests, one after the other, JPEGs of {overhead.image_kb:.0f} kB"
    _print(title, ("ms", "p50", "p99"), rows)


def show_load(load: Load) -> None:
    before, after = load.capacity
    rows = [
        ["capacity before and after, requests/s", f"{before:.1f}, {after:.1f}"],
        ["offered, requests/s", f"{load.offered:.1f}"],
        ["goodput, requests/s", f"{load.goodput:.1f}"],
        ["goodput, of the capacity", f"{load.goodput_share:.2f}"],
        *([fate, str(number)] for fate, number in sorted(load.fates.items())),
        ["missed, of the admitted", f"{100 * load.missed_share:.2f} %"],
        ["answered, p50 and p99 ms", f"{load.answered_p50_ms:.0f}, {load.answered_p99_ms:.0f}"],
        ["memory, first and last third, MB", ", ".join(f"{mb:.0f}" for mb in load.memory_mb)],
        ["quiet tenant alone, p95 ms", f"{load.quiet_alone_ms:.0f}"],
        ["quiet tenant beside a flood, p95 ms", f"{load.quiet_beside_flood_ms:.0f}"],
    ]
    _print(f"{load.seconds:g} s of overload", ("", "measured"), rows)


def show_costly(floods: list[Flood]) -> None:
    columns = ("flood of", "kB", "one alone, ms", "quiet alone, p95 ms", "beside it", "may be", "memory, MB")
    rows = [
        [
            flood.kind,
            f"{flood.kilobytes:.0f}",
            *(f"{ms:.0f}" for ms in (flood.one_ms, flood.alone_p95_ms, flood.beside_p95_ms, flood.bound_ms)),
            f"{flood.memory_mb:.0f}",
        ]
        for flood in floods
    ]
    _print("A quiet tenant beside floods of pictures that are slow to decode", columns, rows)
    for flood in floods:
        told = [
            ", ".join(f"{number} {fate}" for fate, number in ends.items())
            for ends in (flood.quiet, flood.flood)
        ]
        print(f"{flood.kind}: quiet {told[0]}; flood {told[1]}")


def show_batch(batch: BatchRun) -> None:
    before, after = batch.engine
    third, whole = batch.memory_mb
    rows = [
        ["the engine alone, before and after, images/s", f"{before:.1f}, {after:.1f}"],
        ["the batch, images/s", f"{batch.batch:.1f}"],
        ["the batch, of the engine's rate", f"{batch.share:.2f}"],
        [f"peak memory of {batch.images // 3} and {batch.images} images, MB", f"{third:.0f}, {whole:.0f}"],
    ]
    _print(f"{batch.images} JPEGs of {batch.image_kb:.0f} kB", ("", "measured"), rows)


def show_jobs(beside: Beside) -> None:
    rows = [
        [who, *(f"{ms:.0f}" for ms in times)]
        for who, times in (("alone", beside.alone_ms), ("beside a job", beside.beside_ms))
    ]
    _print(f"{beside.callers} callers, {beside.seconds:g} s", ("ms", "p50", "p95"), rows)
    alone, together = beside.job
    console = Console(highlight=False)
    console.print(f"p95 beside the job, of that alone: {beside.ratio:.2f}")
    console.print(f"The job alone {alone:.1f} images/s, beside the callers {together:.1f}")
    console.print(f"Requests that were not answered: {beside.failed}")


def progress() -> Callable[[str], None]:
    """Says on stderr what is being measured."""
    console = Console(stderr=True, highlight=False)
    return lambda what: console.print(f"measuring {what}", style="dim")


def _figures(values: Sequence[float]) -> list[str]:
    *times, gain = values
    return [*(f"{t:.2f}" for t in times), f"{gain:+.1f}"]


def _print(title: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = RichTable(title=title, title_justify="left")
    table.add_column(names[0])
    for name in names[1:]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)
