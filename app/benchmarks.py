"""`pointbox bench`: what the engine costs, measured on this machine."""

from __future__ import annotations

import json as json_text
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from app.problems import ProblemError

bench = App(name="bench", help="Measure the engine on this machine.")

Json = Annotated[bool, Parameter(negative="", help="Print one JSON document instead of tables.")]
Plots = Annotated[Path | None, Parameter(help="Write pictures into this folder, as PNG and SVG.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Emulated:
    """A device of a given speed, and its work.

    Parameters
    ----------
    forward_ms
        How long a decode forward takes; 0, with no sampling either, leaves the host alone.
    streams
        Sequences that decode together.
    sample_us
        How long sampling takes on the device.
    launch_us
        How long the driver holds the host for each thing launched.
    prefill_ms
        How long a prefill forward takes, three decode forwards when nothing is said.
    inject_ms
        Added to every commit, to show what a slow host does.
    workload
        detect: answers of 110 tokens on average. short: of 6.
    steps
        Steps to time in each mode.
    """

    forward_ms: float = 3.9
    streams: int = 32
    sample_us: float = 100.0
    launch_us: float = 0.0
    prefill_ms: float | None = None
    inject_ms: float = 0.0
    workload: Literal["detect", "short"] = "detect"
    steps: int = 1000

    def check(self) -> None:
        """Raises ProblemError."""
        times = {
            "--forward-ms": self.forward_ms,
            "--sample-us": self.sample_us,
            "--launch-us": self.launch_us,
        }
        times |= {"--prefill-ms": self.prefill_ms or 0.0, "--inject-ms": self.inject_ms}
        _check({"--streams": self.streams, "--steps": self.steps}, times)


@bench.command
def pipeline(
    *,
    emulated: Emulated | None = None,
    mode: Literal["pipelined", "blocking", "both"] = "both",
    device: Literal["emulated"] = "emulated",
    json: Json = False,
    plots: Plots = None,
) -> int:
    """Decode steps on a device of a given speed: only the device is emulated, all host code is the real one.

    Parameters
    ----------
    mode
        Both take turns in one run.
    device
        What runs the forwards.
    """
    emulated = emulated or Emulated()
    emulated.check()
    from bench import pipeline as measuring
    from bench import report
    from bench.emulated import EmulatedModel

    setting = measuring.Setting(**asdict(emulated))
    results = measuring.measure(EmulatedModel(), setting, mode)
    if plots is not None:
        from bench.plots import plot_pipeline

        plot_pipeline(results, plots)
    if json:
        print(json_text.dumps({name: result.as_json() for name, result in results.items()}))
    else:
        report.show_pipeline(setting, results)
    return 0


@bench.command
def table(*, steps: int = 300, json: Json = False, plots: Plots = None) -> int:
    """The published figures beside ours, a sweep of forward times, the cost model, zombies, prefill overlap.

    Parameters
    ----------
    steps
        Steps to time in each mode for every row.
    """
    _check({"--steps": steps}, {})
    from bench import report
    from bench import table as measuring
    from bench.emulated import EmulatedModel

    result = measuring.run(EmulatedModel(), steps, report.progress())
    if plots is not None:
        from bench.plots import plot_table

        plot_table(result, plots)
    if json:
        print(json_text.dumps(result.as_json()))
    else:
        report.show_table(result)
    return 0


@bench.command
def throughput(*, concurrency: int = 32, requests: int = 96, phrases: int = 4, json: Json = False) -> int:
    """Requests per second of the default model on the CPU, against transformers' generate.

    Parameters
    ----------
    concurrency
        Requests at a time, and rows of a batch of generate.
    requests
        Requests that each way answers.
    phrases
        Requests about each picture, one phrase in each; from 1 to 10.
    """
    _check({"--concurrency": concurrency, "--requests": requests, "--phrases": phrases}, {})
    if phrases > 10:
        raise ProblemError("invalid-request", "--phrases must be at most 10.")
    from bench import report
    from bench import throughput as measuring

    ways = measuring.run(concurrency, requests, phrases, report.progress())
    if json:
        print(json_text.dumps([way.as_json() for way in ways]))
    else:
        report.show_throughput(ways)
    return 0


@bench.command
def overhead(*, requests: int = 200, json: Json = False) -> int:
    """What the service adds to a request beyond intake and engine; starts a service of its own.

    Parameters
    ----------
    requests
        Requests to time, sent one after the other.
    """
    _check({"--requests": requests}, {})
    from bench import overhead as measuring
    from bench import report

    result = measuring.run(requests)
    if json:
        print(json_text.dumps(result.as_json()))
    else:
        report.show_overhead(result)
    return 0


@bench.command
def load(*, seconds: float = 60.0, factor: float = 2.0, timeout_s: float = 10.0, json: Json = False) -> int:
    """More requests than the service can answer, and a tenant that floods it; starts a service of its own.

    Parameters
    ----------
    seconds
        How long the overload lasts; the other phases are a quarter of it.
    factor
        How many requests are sent, in capacities.
    timeout_s
        Deadline of every request.
    """
    _check({"--seconds": seconds, "--factor": factor, "--timeout-s": timeout_s}, {})
    from bench import load as measuring
    from bench import report

    result = measuring.run(seconds, factor, timeout_s, report.progress())
    if json:
        print(json_text.dumps(result.as_json()))
    else:
        report.show_load(result)
    return 0


@bench.command
def costly(*, seconds: float = 20.0, timeout_s: float = 60.0, json: Json = False) -> int:
    """A tenant that floods the service with small files that are slow to decode; starts a service of its own.

    Parameters
    ----------
    seconds
        How long each flood lasts.
    timeout_s
        Deadline of every request.
    """
    _check({"--timeout-s": timeout_s}, {})
    if seconds < 2:
        raise ProblemError("invalid-request", "--seconds must be at least 2.")
    from bench import costly as measuring
    from bench import report

    floods = measuring.run(seconds, timeout_s, report.progress())
    if json:
        print(json_text.dumps([flood.as_json() for flood in floods]))
    else:
        report.show_costly(floods)
    return 0


@bench.command
def batch(*, images: int = 1500, json: Json = False) -> int:
    """A batch over a folder: its rate beside that of the engine alone, and how its memory grows.

    Parameters
    ----------
    images
        Of the batch; its memory is compared with that of a third of them.
    """
    if images < 3:
        raise ProblemError("invalid-request", "--images must be at least 3.")
    from bench import batch as measuring
    from bench import report

    result = measuring.run(images, report.progress())
    if json:
        print(json_text.dumps(result.as_json()))
    else:
        report.show_batch(result)
    return 0


@bench.command
def jobs(
    *, callers: int = 4, seconds: float = 30.0, batch_share: float | None = None, json: Json = False
) -> int:
    """Callers alone, and beside a job that keeps the engine busy; starts a service of its own.

    Parameters
    ----------
    callers
        Requests at a time; each caller asks again as soon as it has its answer.
    seconds
        How long the callers ask, alone and beside the job.
    batch_share
        The service's setting; its default when nothing is said.
    """
    _check({"--callers": callers, "--seconds": seconds}, {})
    from bench import jobs as measuring
    from bench import report

    result = measuring.run(callers, seconds, batch_share, report.progress())
    if json:
        print(json_text.dumps(result.as_json()))
    else:
        report.show_jobs(result)
    return 0


def _check(positive: dict[str, float], never_negative: dict[str, float]) -> None:
    for name, value in positive.items():
        if value <= 0:
            raise ProblemError("invalid-request", f"{name} must be above 0.")
    for name, value in never_negative.items():
        if value < 0:
            raise ProblemError("invalid-request", f"{name} must not be negative.")
