"""Jobs over HTTP: submitted, run beside an engine, watched, cancelled, resumed, read."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.jobs.opening import jobs_beside
from app.jobs.running import open_plan
from app.jobs.schemas import JobRequest
from app.settings import Settings
from tests.access.serving import serving
from tests.admission.fakes import until
from tests.jobs.service import ASKED, PICTURE, Jobs


async def test_a_job_from_submission_to_results(running: Jobs) -> None:
    keys = running.fill(12)
    (running.root / "in" / "bad.png").write_bytes(b"nonsense")
    (running.root / "in" / "empty.png").write_bytes(b"")
    submitted = await running.submit(format="coco")
    assert submitted.status_code == 201
    job = submitted.json()
    assert (job["state"], job["progress"]["done"]) == ("queued", 0)
    ended = await running.in_state(job["id"], "completed", "failed")
    assert (ended["state"], ended["reason"]) == ("completed", "")
    assert (ended["progress"]["images"], ended["progress"]["done"], ended["progress"]["errors"]) == (
        14,
        14,
        2,
    )
    results, errors = await running.lines(job["id"], "results"), await running.lines(job["id"], "errors")
    assert Counter(line["key"] for line in results) == Counter(keys)
    assert Counter(line["key"] for line in errors) == Counter(["bad.png", "empty.png"])
    assert sum(len(line["objects"]) for line in results) == ended["progress"]["objects"] > 0
    first = await running.lines(job["id"], "results", shard=0)
    assert results[: len(first)] == first
    written = {path.name for path in (running.root / "out" / job["id"]).iterdir() if path.is_file()}
    assert written == {"plan.json", "summary.json", "index.json", "errors.jsonl", "coco.json"}
    assert (
        await running.api.client.get(f"/v1/jobs/{job['id']}/results", params={"shard": 99})
    ).status_code == 404


async def test_null_counts_as_not_given(jobs: Jobs) -> None:
    plain = (await jobs.submit(shard_size=...)).json()["request"]
    optional = [field.name for field in msgspec.structs.fields(JobRequest) if not field.required]
    nulls = dict.fromkeys(name for name in optional if name != "objects")
    source = ASKED["source"] | {"prefix": None, "manifest": None}
    submitted = await jobs.submit(**nulls, source=source)
    assert (submitted.status_code, submitted.json()["request"]) == (201, plain)
    for name in ("source", "out"):
        assert (await jobs.submit(**{name: None})).json()["field"] == name


async def test_cancelled_and_resumed(jobs: Jobs) -> None:
    jobs.fill(10)
    job = (await jobs.submit()).json()["id"]
    cancelled = await jobs.api.client.post(f"/v1/jobs/{job}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    again = await jobs.api.client.post(f"/v1/jobs/{job}/resume")
    assert again.json()["state"] == "queued"
    stop = asyncio.Event()
    async with jobs_beside(jobs.settings, stop):
        ended = await jobs.in_state(job, "completed", "failed")
        stop.set()
    assert ended["progress"]["done"] == 10
    for action in ("cancel", "resume"):  # it is over, and stays so
        after = await jobs.api.client.post(f"/v1/jobs/{job}/{action}")
        assert after.json()["state"] == "completed"


async def test_a_runner_goes_on_where_another_stopped(jobs: Jobs) -> None:
    keys = jobs.fill(30)
    job = (await jobs.submit()).json()["id"]
    stop = asyncio.Event()
    async with jobs_beside(jobs.settings, stop):
        await until(lambda: (jobs.root / "out" / job / "results" / "00001.jsonl").exists())
        stop.set()
    shards = jobs.root / "out" / job / "results"
    done = {path.name: path.stat().st_mtime_ns for path in shards.iterdir()}
    assert (await jobs.show(job))["state"] in ("queued", "completed")
    stop = asyncio.Event()
    async with jobs_beside(jobs.settings, stop):
        await jobs.in_state(job, "completed")
        stop.set()
    assert done.items() <= {path.name: path.stat().st_mtime_ns for path in shards.iterdir()}.items()
    assert Counter(line["key"] for line in await jobs.lines(job, "results")) == Counter(keys)


async def test_a_source_that_is_not_there_fails_the_job(running: Jobs) -> None:
    job = (await running.submit(source={"store": "in", "manifest": "none.jsonl"})).json()["id"]
    ended = await running.in_state(job, "failed", "completed")
    assert ended["state"] == "failed"
    assert "manifest none.jsonl cannot be read" in ended["reason"]
    job = (await running.submit(source={"store": "in", "prefix": "mistyped"})).json()["id"]
    ended = await running.in_state(job, "failed", "completed")
    assert (ended["state"], "there is no image in" in ended["reason"]) == ("failed", True)


async def test_a_damaged_job_fails_and_the_next_one_runs(jobs: Jobs) -> None:
    jobs.fill(60)
    broken, whole = [(await jobs.submit()).json()["id"] for _ in range(2)]
    stop = asyncio.Event()
    async with jobs_beside(jobs.settings, stop):
        await until(lambda: (jobs.root / "out" / broken / "results" / "00000.jsonl").exists())
        stop.set()
    (jobs.root / "out" / broken / "plan" / "00011.jsonl").unlink()
    (jobs.root / "in" / "000 a.png").write_bytes(PICTURE)  # so the same list cannot be made again
    stop = asyncio.Event()
    async with jobs_beside(jobs.settings, stop):
        ended = await jobs.in_state(broken, "failed", "completed")
        assert (ended["state"], "plan/00011.jsonl is gone" in ended["reason"]) == ("failed", True)
        assert (await jobs.in_state(whole, "failed", "completed"))["state"] == "completed"
        stop.set()


async def test_a_long_listing_keeps_its_job(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.jobs.ledger.LEASE_S", 1.5)
    monkeypatch.setattr("app.jobs.runner.BEAT_S", 0.1)

    def slowly(*arguments: Any) -> Any:
        time.sleep(3)  # twice the lease, which the other runner waits for
        return open_plan(*arguments)

    monkeypatch.setattr("app.jobs.runner.open_plan", slowly)
    jobs.fill(3)
    job = (await jobs.submit()).json()["id"]
    stop = asyncio.Event()
    async with jobs_beside(jobs.settings, stop), jobs_beside(jobs.settings, stop):
        taken = (await jobs.in_state(job, "running"))["started_at"]
        ended = await jobs.in_state(job, "failed", "completed")
        stop.set()
    assert (ended["state"], ended["progress"]["done"], ended["started_at"]) == ("completed", 3, taken)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"source": {"store": "nowhere"}}, "source.store"),
        ({"source": {"store": "theirs"}}, "source.store"),
        ({"out": {"store": "in"}}, "out.store"),
        ({"source": {"store": "in", "prefix": "a/../../b"}}, "source.prefix"),
        ({"source": {"store": "in", "prefix": "/etc"}}, "source.prefix"),
        ({"source": {"store": "in", "url": "s3://else"}}, "source.url"),
        ({"source": {"store": "in", "endpoint": "http://127.0.0.1"}}, "source.endpoint"),
        ({"source": {"store": "in", "access_key": "x"}}, "source.access_key"),
        ({"source": "s3://bucket/x"}, "source"),
        ({"source": {"prefix": "x"}}, "source.store"),
        ({"out": ...}, "out"),
        ({"source": {"store": "in", "manifest": "../x.jsonl"}}, "source.manifest"),
        ({"source": {"store": "in", "manifest": "/etc/x.csv"}}, "source.manifest"),
        ({"source": {"store": "in", "manifest": ""}}, "source.manifest"),
        ({"source": {"store": "in", "manifest": "a/"}}, "source.manifest"),
        ({"source": {"store": "in", "prefix": "a\0b"}}, "source.prefix"),
        ({"objects": []}, "objects"),
        ({"objects": [" "]}, "objects"),
        ({"max_objects": 0}, "max_objects"),
        ({"shard_size": 0}, "shard_size"),
        ({"webhook": "http://127.0.0.1/"}, "webhook"),
        ({"unknown": 1}, "unknown"),
    ],
)
async def test_what_cannot_be_asked(jobs: Jobs, changes: dict[str, Any], field: str) -> None:
    answer = await jobs.submit(**changes)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert "127.0.0.1" not in answer.json()["detail"]


async def test_yolo_has_no_points(jobs: Jobs) -> None:
    answer = await jobs.submit(task="point", format="yolo")
    assert answer.status_code == 422
    assert "points" in answer.json()["detail"]


async def test_the_same_key_submits_once(jobs: Jobs) -> None:
    key = {"idempotency-key": "once"}
    first, again = [await jobs.api.client.post("/v1/jobs", json=ASKED, headers=key) for _ in range(2)]
    assert first.json()["id"] == again.json()["id"]
    other = await jobs.api.client.post("/v1/jobs", json=ASKED | {"max_objects": 7}, headers=key)
    assert other.json()["type"] == "/problems/idempotency-mismatch"


async def test_the_list_goes_back_in_time(jobs: Jobs) -> None:
    made = [(await jobs.submit()).json()["id"] for _ in range(5)]
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = (await jobs.api.client.get("/v1/jobs", params=query)).json()
        seen += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        query["before"] = page["next"]
    assert seen == made[::-1]


async def test_a_server_without_stores_has_no_jobs(settings: Settings, tmp_path: Path) -> None:
    async with serving(replace(settings, auth="off", data_dir=str(tmp_path))) as api:
        answer = await api.client.post("/v1/jobs", json=ASKED)
        assert answer.status_code == 404
        assert "POINTBOX_STORES" in answer.json()["detail"]


async def test_a_key_without_the_scope_has_no_jobs(settings: Settings, tmp_path: Path) -> None:
    stores = json.dumps({"in": {"url": str(tmp_path)}})
    async with serving(replace(settings, auth="on", data_dir=str(tmp_path), stores=stores)) as api:
        answer = await api.client.get("/v1/jobs", headers=await api.key("acme", scopes=("infer",)))
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/forbidden")


async def test_a_compressed_job(jobs: Jobs) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = await jobs.api.client.post("/v1/jobs", content=b"\x1f\x8b", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (415, "/problems/unsupported-media")


async def test_a_model_that_nobody_serves_is_refused(jobs: Jobs) -> None:
    answer = await jobs.submit(model="no-such-model")
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-model")
    assert answer.json()["field"] == "model"
    assert answer.json()["detail"] == "There is no model 'no-such-model'; there is tiny."
    assert (await jobs.submit(model="tiny")).status_code == 201


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("?limit=0", "limit"),
        ("?limit=101", "limit"),
        ("?limit=x", "limit"),
        ("?limit=", "limit"),
        ("?limit=2&limit=3", "limit"),
        ("?before=x&colour=red", "colour"),
        ("?state=x", "state"),
        ("/x/results?shard=x", "shard"),
        ("/x/results?shard=-1", "shard"),
        ("/x/errors?shard=1.5", "shard"),
        ("/x/errors?page=1", "page"),
        ("/x?verbose=1", "verbose"),
    ],
)
async def test_query_parameters_that_cannot_be_meant(jobs: Jobs, path: str, field: str) -> None:
    answer = await jobs.api.client.get(f"/v1/jobs{path}")
    document = answer.json()
    assert (answer.status_code, document["type"]) == (422, "/problems/invalid-request")
    assert document["field"] == field
    assert field in document["detail"]
