"""What a job has found is shown with its pictures; they are the tenant's, and those that were asked about."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from app.jobs.records import ShardCount
from app.jobs.samples import SIDE, spread
from app.settings import Settings
from tests.access.serving import Api, serving
from tests.intake.pictures import encode, plain, with_orientation
from tests.jobs.service import Jobs


async def completed(jobs: Jobs, **changes: Any) -> str:
    job: str = (await jobs.submit(**changes)).json()["id"]
    ended = await jobs.in_state(job, "completed", "failed")
    assert ended["state"] == "completed", ended
    return job


async def samples(api: Api, job: str, **query: int) -> list[dict[str, Any]]:
    answer = await api.client.get(f"/v1/jobs/{job}/samples", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["samples"]
    return found


def test_samples_are_spread_over_all_results() -> None:
    done = {shard: ShardCount(images=100, errors=100 if shard == 3 else 10, objects=0) for shard in range(10)}
    picks = spread(done, 9)
    assert [shard for shard, _ in picks] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert {line for _, line in picks} == {45}
    few = {2: ShardCount(images=3, errors=1, objects=0), 5: ShardCount(images=1, errors=0, objects=0)}
    assert spread(few, 50) == [(2, 0), (2, 1), (5, 0)]
    assert spread({}, 5) == []


async def test_samples_of_every_shard(running: Jobs) -> None:
    running.fill(12)
    (running.root / "in" / "000 bad.png").write_bytes(b"nonsense")
    job = await completed(running)
    lines = {line["key"]: line for line in await running.lines(job, "results")}
    some = await samples(running.api, job, limit=3)
    assert [sample["key"] for sample in some] == ["002 #ü.png", "006 #ü.png", "010 #ü.png"]
    assert len(await samples(running.api, job)) == 12
    for sample in some:
        assert {name: sample[name] for name in ("objects", "phrases", "image")} == {
            name: lines[sample["key"]][name] for name in ("objects", "phrases", "image")
        }
        picture = await running.api.client.get(sample["picture"])
        assert (picture.status_code, picture.headers["content-type"]) == (200, "image/jpeg")
        assert picture.headers["cache-control"] == "no-store"
    for unknown in (-1, 4, 999, 10**40):  # the first shard has four results, of five images
        answer = await running.api.client.get(f"/v1/jobs/{job}/samples/{unknown}")
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
    assert (await running.api.client.get(f"/v1/jobs/{job}/samples", params={"limit": 51})).status_code == 422


async def test_a_picture_is_upright_and_small(running: Jobs) -> None:
    folder = running.root / "in"
    folder.mkdir()
    (folder / "turned.jpg").write_bytes(with_orientation(6))
    (folder / "wide.png").write_bytes(encode(plain(3000, 1500), "PNG"))
    job = await completed(running)
    shown = {}
    for sample in await samples(running.api, job):
        assert (len(sample["objects"]), sample["points"]) == (3, None)
        picture = Image.open(BytesIO((await running.api.client.get(sample["picture"])).content))
        shown[sample["key"]] = picture.size
        assert picture.format == "JPEG"
    assert shown == {"turned.jpg": (40, 100), "wide.png": (SIDE, SIDE // 2)}


async def test_a_picture_that_is_no_longer_what_was_asked_about(running: Jobs) -> None:
    keys = sorted(running.fill(4))
    job = await completed(running)
    gone, changed, folder, large = [running.root / "in" / key for key in keys]
    gone.unlink()
    changed.write_bytes(encode(plain(50, 50), "PNG"))
    folder.unlink()
    folder.mkdir()
    os.truncate(large, running.settings.body_limit_bytes + 1)
    words = [
        "no longer in the source store",
        "was replaced",
        "no longer in the source",
        "are read to be shown",
    ]
    for sample, status, said in zip(
        await samples(running.api, job), [404, 404, 404, 413], words, strict=True
    ):
        answer = await running.api.client.get(sample["picture"])
        assert answer.status_code == status
        assert said in answer.json()["detail"]
        assert str(running.root) not in answer.text


async def test_a_manifest_has_no_etags(running: Jobs) -> None:
    running.fill(1)
    (running.root / "in" / "list.jsonl").write_text('{"image": "000 #ü.png", "phrases": ["cat", "dog"]}')
    job = await completed(running, source={"store": "in", "manifest": "list.jsonl"})
    (sample,) = await samples(running.api, job)
    assert [phrase["object"] for phrase in sample["phrases"]] == ["cat", "dog"]
    answer = await running.api.client.get(sample["picture"])  # the fake model told another size
    assert (answer.status_code, "was replaced" in answer.json()["detail"]) == (404, True)


async def test_errors_by_the_page(running: Jobs) -> None:
    running.fill(3)
    bad = [f"{number:03} bad.png" for number in range(12)]
    for key in bad:
        (running.root / "in" / key).write_bytes(b"nonsense")
    job = await completed(running)
    pages = [await running.lines(job, "errors", offset=offset, limit=5) for offset in (0, 5, 10, 15)]
    assert [[line["key"] for line in page] for page in pages] == [bad[:5], bad[5:10], bad[10:], []]
    assert await running.lines(job, "results", limit=2) == (await running.lines(job, "results"))[:2]
    last = await running.lines(job, "errors", shard=2, offset=1)
    assert last == (await running.lines(job, "errors", shard=2))[1:]
    refused = await running.api.client.get(f"/v1/jobs/{job}/errors", params={"limit": 0})
    assert refused.status_code == 422


async def test_the_stores_that_may_be_named(jobs: Jobs) -> None:
    answer = await jobs.api.client.get("/v1/stores")
    assert answer.json() == {"stores": [{"name": "in", "write": False}, {"name": "out", "write": True}]}
    assert str(jobs.root) not in answer.text


async def test_a_store_that_was_taken_away(running: Jobs) -> None:
    running.fill(1)
    job = await completed(running)
    stores = json.loads(running.settings.stores)
    stores["in"]["tenants"] = ["acme"]
    async with serving(replace(running.settings, stores=json.dumps(stores))) as api:
        (sample,) = await samples(api, job)
        answer = await api.client.get(sample["picture"])
        assert (answer.status_code, "'in'" in answer.json()["detail"]) == (403, True)
    del stores["out"]
    async with serving(replace(running.settings, stores=json.dumps(stores))) as api:
        for what in ("samples", "samples/0", "results", "errors"):
            answer = await api.client.get(f"/v1/jobs/{job}/{what}")
            assert (answer.status_code, answer.json()["type"]) == (403, "/problems/forbidden"), what


async def test_the_reason_names_stores_and_not_their_places(running: Jobs) -> None:
    job = (await running.submit(source={"store": "in", "prefix": "mistyped"})).json()["id"]
    ended = await running.in_state(job, "failed", "completed")
    assert ended["reason"] == "there is no image in in/mistyped"


async def test_workers_say_whether_they_run_jobs(settings: Settings, tmp_path: Path, start_work: Any) -> None:
    stores = json.dumps({"in": {"url": str(tmp_path)}})
    async with serving(replace(settings, auth="off", data_dir=str(tmp_path))) as api:
        for changes in ({}, {"stores": stores}, {"stores": stores, "jobs": "off"}):
            await start_work(**changes)
        (model,) = (await api.client.get("/v1/models")).json()["models"]
        assert (model["workers"], model["job_runners"]) == (3, 1)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("application/json, text/html;q=0.5", "application/json"),
    ],
)
async def test_who_reads_html_gets_the_page(jobs: Jobs, accept: str, kind: str) -> None:
    for path, expected in (("/jobs", kind), ("/v1/jobs", "application/json")):
        answer = await jobs.api.client.get(path, headers={"accept": accept})
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, expected)


async def test_the_page_needs_no_key(settings: Settings, tmp_path: Path) -> None:
    async with serving(replace(settings, auth="on", data_dir=str(tmp_path))) as api:
        page = await api.client.get("/jobs", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["vary"]) == (200, "accept")
        again = await api.client.get(
            "/jobs", headers={"accept": "text/html", "if-none-match": page.headers["etag"]}
        )
        assert again.status_code == 304
        assert (await api.client.get("/jobs")).status_code == 401
