"""The measurements of jobs, in small."""

from __future__ import annotations

import pytest

from bench.batch import run as run_batch
from bench.jobs import run as run_jobs


def test_a_batch_beside_the_engine_alone() -> None:
    told: list[str] = []
    batch = run_batch(30, told.append)
    assert len(told) == 4
    assert min(*batch.engine, batch.batch) > 0
    assert batch.as_json()["share"] == batch.share > 0
    assert min(batch.memory_mb) > 100


def test_callers_beside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.jobs.PICTURES", 20)
    monkeypatch.setattr("bench.jobs.ENDLESS", 500)
    told: list[str] = []
    beside = run_jobs(2, 1, 0.5, told.append)
    assert len(told) == 3
    assert beside.failed == 0
    assert 0 < beside.alone_ms[0] <= beside.alone_ms[1]
    assert beside.as_json()["ratio"] == beside.ratio > 0
    assert min(beside.job) >= 0
