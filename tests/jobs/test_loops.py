"""No error of a job, or of what is around it, ends the runner: the next job runs."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.access.caller import ANONYMOUS
from app.db.database import Database
from app.db.migrations import upgrade
from app.jobs import loops, runner
from app.jobs.ledger import Ledger
from app.jobs.loops import again_and_again
from app.jobs.opening import jobs_beside
from app.jobs.running import finish, open_plan, shards_left
from app.jobs.schemas import JobRequest, SourcePlace, StorePlace
from app.jobs.shards import UNFORESEEN
from tests.db.conftest import database, postgres_url
from tests.jobs.service import Jobs
from tests.jobs.test_cut_files import IMAGES, Batch, Quick

__all__ = ["database", "postgres_url"]


async def test_a_loop_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "PAUSE_S", 0.01)
    stop, steps = asyncio.Event(), iter([True, ValueError("one"), OSError(111, "refused"), KeyError(), False])

    async def step() -> bool:
        match next(steps, None):
            case None:
                stop.set()
                return True
            case bool() as worked:
                return worked
            case error:
                raise error

    with capture_logs() as logs:
        async with asyncio.timeout(30):
            await again_and_again("things", step, stop)
    assert [line["event"] for line in logs] == [
        "things go on after an error",
        "things wait",
        "things go on after an error",
    ]


@pytest.mark.parametrize("error", [UnicodeError("label too long"), RuntimeError("unforeseen"), MemoryError()])
async def test_a_runner_goes_on_after_an_error(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    take, failures = Ledger.take, iter([error])

    async def failing(ledger: Ledger, owner: str) -> Any:
        for failure in failures:
            raise failure
        return await take(ledger, owner)

    monkeypatch.setattr(Ledger, "take", failing)
    jobs.fill(2)
    job = (await jobs.submit()).json()["id"]
    stop = asyncio.Event()
    with capture_logs() as logs:
        async with jobs_beside(jobs.settings, stop):
            assert (await jobs.in_state(job, "completed", "failed"))["state"] == "completed"
            stop.set()
    assert "jobs go on after an error" in {line["event"] for line in logs}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            OSError(28, "No space left on device"),
            "the server could not keep its files: No space left on device",
        ),
        (UnicodeError("label too long"), "the server could not go on with this job; its log says why"),
        (MemoryError(), "the server could not go on with this job; its log says why"),
    ],
)
async def test_an_error_of_a_job_is_its_reason(
    running: Jobs, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    running.fill(2)
    with monkeypatch.context() as broken:

        def failing(*arguments: Any, **named: Any) -> Any:
            raise error

        broken.setattr(tempfile, "TemporaryDirectory", failing)
        job = (await running.submit()).json()["id"]
        ended = await running.in_state(job, "completed", "failed")
    assert (ended["state"], ended["reason"]) == ("failed", reason)
    again = (await running.submit()).json()["id"]
    assert (await running.in_state(again, "completed", "failed"))["state"] == "completed"
    await running.api.client.post(f"/v1/jobs/{job}/resume")
    assert (await running.in_state(job, "completed"))["reason"] == ""


async def test_an_error_in_a_plan_is_its_reason(running: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any) -> Any:
        raise RuntimeError("unforeseen")

    running.fill(2)
    with monkeypatch.context() as broken:
        broken.setattr(runner, "open_plan", failing)
        job = (await running.submit()).json()["id"]
        assert (await running.in_state(job, "completed", "failed"))["state"] == "failed"
    again = (await running.submit()).json()["id"]
    assert (await running.in_state(again, "completed", "failed"))["state"] == "completed"


async def test_a_reason_may_name_anything(database: Database) -> None:
    await upgrade(database)
    ledger = Ledger(database)
    request = JobRequest(source=SourcePlace(store="in"), out=StorePlace(store="out"))
    job = await ledger.add(request, ANONYMOUS)
    assert await ledger.take("me") is not None
    await ledger.ended(job.id, "me", "failed", "m.jsonl, line 1: a\0b.png has no phrase" + 2000 * "x")
    row = await ledger.find(job.id, ANONYMOUS.tenant)
    assert row is not None
    assert row.reason.startswith("m.jsonl, line 1: a\ufffdb.png has")


@pytest.mark.parametrize("error", [ValueError("odd"), UnicodeError("odd"), KeyError("odd"), MemoryError()])
def test_an_error_that_one_image_causes_is_its_own(tmp_path: Path, error: Exception) -> None:
    batch, quick = Batch(tmp_path), Quick()
    quick.errors = {batch.keys[2]: error}
    plan = open_plan("job", batch.spec, batch.source, batch.target)
    asyncio.run(batch.answer([0, 1, 2], quick, plan.parts))
    summary = finish(plan, batch.target)
    assert (summary.images, summary.errors) == (IMAGES + 1, 2)
    errors = {line["key"]: (line["stage"], line["reason"]) for line in batch.lines("errors")}
    assert errors[batch.keys[2]] == ("model", UNFORESEEN)


def test_an_error_of_what_is_around_ends_the_job(tmp_path: Path) -> None:
    batch, quick = Batch(tmp_path), Quick()
    quick.errors = {batch.keys[2]: ConnectionError("reset")}
    plan = open_plan("job", batch.spec, batch.source, batch.target)
    with pytest.raises(ConnectionError):
        asyncio.run(batch.answer([0, 1, 2], quick, plan.parts))
    assert shards_left(plan, batch.target) == [0, 1, 2]
