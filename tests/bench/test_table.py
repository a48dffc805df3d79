"""The published figures, the cost model, and what is printed of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report, table
from bench.pipeline import Result, Setting
from bench.rig import SECTIONS
from bench.table import PUBLISHED, SAMPLE_MS, SWEEP_MS, CostModel, Ours, Overlap, Table, fit
from tests.bench.models import emulated


def sweep(c: float, s: float) -> list[Ours]:
    """As the cost model has it, exactly."""
    model = CostModel(c, s)
    return [Ours(f + SAMPLE_MS, 32, model.blocking(f), model.pipelined(f), 0.0) for f in SWEEP_MS]


def made_up() -> Table:
    points = sweep(0.5, 0.1)
    rows = list(zip(PUBLISHED, points, strict=False))
    return Table(rows, points, fit(points), {10: 0.09, 110: 0.009}, Overlap(11.8, 12.3, 11.8))


def result() -> Result:
    cpu = {name: float(i) for i, name in enumerate(("total", *SECTIONS))}
    return Result([4.0, 4.1, 4.0, 5.0], [0.0, 10.0, 0.0, 3.0], None, 0.01, cpu)


def test_gains_are_as_printed_but_for_what_the_milliseconds_say() -> None:
    assert [round(p.gain, 1) for p in PUBLISHED] == [6.7, 11.6, 18.3, 39.4]
    assert [p.printed_gain for p in PUBLISHED] == [6.5, 11.6, 17.6, 35.4]


@pytest.mark.parametrize(("c", "s"), [(0.3, 0.1), (1.5, 0.2), (4.0, 0.0)])
def test_the_fit_finds_the_cost_model(c: float, s: float) -> None:
    found = fit(sweep(c, s))
    assert found.c == pytest.approx(c)
    assert found.s == pytest.approx(s)


def test_zombies_take_from_the_gain() -> None:
    cost = CostModel(1.0, 0.1)
    assert cost.gain(2.0) == pytest.approx(100 * (3.0 / 2.1 - 1))
    assert cost.gain(2.0, zombies=0.1) == pytest.approx(100 * (3.0 / 2.1 / 1.1 - 1))


def test_a_host_slower_than_the_device_sets_the_pace() -> None:
    assert CostModel(3.0, 0.1).pipelined(1.0) == pytest.approx(3.1)
    assert CostModel(3.0, 0.1).pipelined(5.0) == pytest.approx(5.1)


def test_json_round() -> None:
    shown = json.loads(json.dumps(made_up().as_json()))
    assert set(shown) == {"rows", "sweep", "cost_model", "zombie_share", "prefill_overlap"}
    assert shown["rows"][3]["printed_gain"] == 35.4
    assert set(shown["rows"][0]["ours"]) == {
        "device_ms",
        "streams",
        "blocking_ms",
        "pipelined_ms",
        "gap_us",
        "gain",
    }


def test_every_part_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SWEEP_MS", (0.2, 0.4))
    monkeypatch.setattr(table, "ZOMBIE_TOKENS", (10,))
    monkeypatch.setattr(table, "PUBLISHED", PUBLISHED[2:3])
    told: list[str] = []
    measured = table.run(emulated(), 50, told.append)
    assert len(measured.rows) == 1
    assert [round(p.device_ms, 1) for p in measured.sweep] == [0.3, 0.5]
    assert set(measured.zombies) == {10}
    assert measured.overlap.blocking_ms >= measured.overlap.device_ms - 1e-6
    assert len(told) == 5


def test_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    report.show_table(made_up())
    report.show_pipeline(Setting(3.9), {"blocking": result(), "pipelined": result()})
    printed = capsys.readouterr().out
    for text in ("RTX 3090", "B200", "+39.4", "35.4", "Cost model", "Zombies at 110", "4.050", "schedule"):
        assert text in printed


def test_pictures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from bench.plots import plot_pipeline, plot_table

    written = plot_table(made_up(), tmp_path / "new")
    written += plot_pipeline({"blocking": result(), "pipelined": result()}, tmp_path / "new")
    assert sorted(p.name for p in written) == ["steps.png", "steps.svg", "sweep.png", "sweep.svg"]
    assert all(p.stat().st_size > 1000 for p in written)
