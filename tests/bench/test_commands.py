"""`pointbox bench` on the command line."""

from __future__ import annotations

import json

import pytest

from app.cli import main
from bench.overhead import run as run_overhead
from bench.rig import SECTIONS


def bench(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["bench", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_pipeline_as_in_the_manual(capsys: pytest.CaptureFixture[str]) -> None:
    command = "pipeline --device emulated --forward-ms 0.2 --streams 2 --mode both --sample-us 20"
    more = "--launch-us 1 --workload short --inject-ms 0.01 --steps 50 --json"
    assert bench(*command.split(), *more.split()) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == ["blocking", "pipelined"]
    assert set(shown["pipelined"]["cpu_us_per_tick"]) == {"total", *SECTIONS}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("pipeline --forward-ms -1", "--forward-ms"),
        ("pipeline --streams 0", "--streams"),
        ("pipeline --steps -1", "--steps"),
        ("pipeline --inject-ms -1", "--inject-ms"),
        ("pipeline --mode sideways", "sideways"),
        ("pipeline --device abacus", "abacus"),
        ("pipeline --workload endless", "endless"),
        ("table --steps 0", "--steps"),
        ("throughput --concurrency 0", "--concurrency"),
        ("throughput --phrases 0", "--phrases"),
        ("throughput --phrases 11", "--phrases"),
        ("overhead --requests 0", "--requests"),
        ("load --seconds 0", "--seconds"),
        ("load --factor -1", "--factor"),
        ("costly --seconds 1", "--seconds"),
        ("costly --timeout-s 0", "--timeout-s"),
        ("batch --images 2", "--images"),
        ("jobs --callers 0", "--callers"),
        ("jobs --seconds 0", "--seconds"),
    ],
)
def test_bad_use_is_one_line(arguments: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(*arguments.split()) == 2
    told = capsys.readouterr()
    assert not told.out
    assert says in told.err
    assert told.err.count("\n") == 1


def test_overhead_is_what_is_left_of_the_wall_time() -> None:
    overhead = run_overhead(3)
    assert overhead.requests == 3
    assert 0 < overhead.overhead_p50_ms < overhead.wall_p50_ms
    assert overhead.overhead_p50_ms <= overhead.overhead_p99_ms
    assert set(overhead.as_json()) == {
        "requests",
        "image_kb",
        "wall_p50_ms",
        "wall_p99_ms",
        "intake_p50_ms",
        "engine_p50_ms",
        "overhead_p50_ms",
        "overhead_p99_ms",
    }
