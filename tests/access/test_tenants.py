"""What belongs to one tenant does not exist for another, on every route and in every way to name it.

The routes come from the application itself: one that takes an id and is not tried here fails the test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.jobs.ledger import OPEN
from app.jobs.opening import jobs_beside
from app.server import create_app
from app.settings import Settings
from tests.access.serving import Api, serving
from tests.admission.fakes import Work
from tests.intake.pictures import encode, plain

PICTURE = encode(plain(), "PNG")
PNG = {"content-type": "image/png"}


@pytest.fixture
async def api(
    settings: Settings, tmp_path: Path, start_work: Callable[..., Awaitable[Work]]
) -> AsyncIterator[Api]:
    await start_work()
    stores = {name: {"url": str(tmp_path / name), "write": True} for name in ("in", "out")}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.png").write_bytes(PICTURE)
    changes = {"auth": "on", "data_dir": str(tmp_path), "stores": json.dumps(stores)}
    async with serving(replace(settings, **changes)) as running:  # type: ignore[arg-type]
        yield running


async def upload(api: Api, headers: dict[str, str]) -> str:
    response = await api.client.post("/v1/images", content=PICTURE, headers=headers | PNG, timeout=60)
    assert response.status_code == 201, response.text
    image_id: str = response.json()["image_id"]
    return image_id


async def submit(api: Api, headers: dict[str, str]) -> str:
    """A job that has ended, so that there is something to see of it."""
    body = {"source": {"store": "in"}, "out": {"store": "out"}, "objects": ["x"]}
    response = await api.client.post("/v1/jobs", json=body, headers=headers)
    assert response.status_code == 201, response.text
    job_id: str = response.json()["id"]
    async with jobs_beside(api.settings, stop := asyncio.Event()):
        while (job := await api.client.get(f"/v1/jobs/{job_id}", headers=headers)).json()["state"] in OPEN:
            await asyncio.sleep(0.1)
        stop.set()
    assert job.json()["state"] == "completed", job.text
    return job_id


def asking(path: str) -> list[Callable[[Api, dict[str, str], str], Awaitable[httpx.Response]]]:
    """The ways to name an image in a question."""

    async def as_json(api: Api, headers: dict[str, str], image_id: str) -> httpx.Response:
        body = {"image_id": image_id, "object": "x"}
        return await api.client.post(path, json=body, headers=headers, timeout=60)

    async def form(api: Api, headers: dict[str, str], image_id: str) -> httpx.Response:
        fields: dict[str, Any] = {"image_id": (None, image_id), "object": (None, "x")}
        return await api.client.post(path, files=fields, headers=headers, timeout=60)

    async def stream(api: Api, headers: dict[str, str], image_id: str) -> httpx.Response:
        body = {"image_id": image_id, "object": "x", "stream": True}
        return await api.client.post(path, json=body, headers=headers, timeout=60)

    return [as_json, form, stream]


def forgetting(path: str) -> list[Callable[[Api, dict[str, str], str], Awaitable[httpx.Response]]]:
    async def delete(api: Api, headers: dict[str, str], image_id: str) -> httpx.Response:
        return await api.client.delete(path.replace("{image_id}", image_id), headers=headers)

    return [delete]


def job_route(
    method: str,
) -> Callable[[str], list[Callable[[Api, dict[str, str], str], Awaitable[httpx.Response]]]]:
    def ways(path: str) -> list[Callable[[Api, dict[str, str], str], Awaitable[httpx.Response]]]:
        async def call(api: Api, headers: dict[str, str], job_id: str) -> httpx.Response:
            return await api.client.request(method, path.format(job_id=job_id, number=0), headers=headers)

        return [call]

    return ways


async def listing(api: Api, headers: dict[str, str], job_id: str) -> httpx.Response:
    return await api.client.get("/v1/jobs", params={"before": job_id}, headers=headers)


WAYS = {
    ("POST", "/detect"): asking,
    ("POST", "/point"): asking,
    ("DELETE", "/images/{image_id}"): forgetting,
}
"""Every route that takes an image's id."""
JOB_WAYS = {
    ("GET", "/jobs"): lambda path: [listing],
    ("GET", "/jobs/{job_id}"): job_route("GET"),
    ("POST", "/jobs/{job_id}/cancel"): job_route("POST"),
    ("POST", "/jobs/{job_id}/resume"): job_route("POST"),
    ("GET", "/jobs/{job_id}/results"): job_route("GET"),
    ("GET", "/jobs/{job_id}/errors"): job_route("GET"),
    ("GET", "/jobs/{job_id}/samples"): job_route("GET"),
    ("GET", "/jobs/{job_id}/samples/{number}"): job_route("GET"),
}
WITHOUT_IDS = {("POST", "/images"), ("GET", "/models"), ("POST", "/jobs"), ("GET", "/stores")}


def routes() -> set[tuple[str, str]]:
    """Method and pattern of every route that needs a caller."""
    app = create_app(Settings(redis_url="redis://127.0.0.1:1"))
    return {
        (method, route.path_format)
        for route in app.routes
        for method in getattr(route, "http_handler_map", getattr(route, "route_handler_map", {}))
        if method not in ("OPTIONS", "HEAD") and not route.path_format.startswith("/schema")
    }


def test_no_route_is_left_out() -> None:
    open_to_all = {("GET", path) for path in ("/livez", "/readyz", "/metrics", "/", "/assets/{name}")}
    versioned = {(method, f"/v1{path}") for method, path in (*WAYS, *JOB_WAYS, *WITHOUT_IDS)}
    assert routes() == open_to_all | versioned | set(WAYS) | set(JOB_WAYS) | WITHOUT_IDS


@pytest.mark.parametrize("prefix", ["/v1", ""])
async def test_a_foreign_id_is_an_unknown_id(api: Api, prefix: str) -> None:
    scopes = ("infer", "jobs")
    mine, same_tenant, theirs = [await api.key(t, scopes=scopes) for t in ("acme", "acme", "beta")]
    image_id, job_id = await upload(api, mine), await submit(api, mine)
    for (_, path), ways in (*WAYS.items(), *JOB_WAYS.items()):
        mine_id = job_id if "job" in path else image_id
        for way in ways(f"{prefix}{path}"):
            foreign = await way(api, theirs, mine_id)
            unknown = await way(api, theirs, mine_id[:-4] + "0000")
            assert (foreign.status_code, unknown.status_code) == (404, 404), (path, foreign.text)
            documents = [response.json() for response in (foreign, unknown)]
            assert [document.pop("request_id") == "" for document in documents] == [False, False]
            assert documents[0] == documents[1]
            assert documents[0]["type"] == "/problems/not-found"
    for way in (*asking("/v1/detect"), *forgetting("/v1/images/{image_id}")):
        assert (await way(api, same_tenant, image_id)).status_code in (200, 204)
    for (_, path), ways in JOB_WAYS.items():
        assert [(await way(api, same_tenant, job_id)).status_code for way in ways(f"/v1{path}")] == [200]
    assert (await api.client.get("/v1/jobs", headers=theirs)).json()["jobs"] == []


async def test_an_idempotency_key_is_the_tenants_own(api: Api) -> None:
    mine, theirs = await api.key("acme"), await api.key("beta")
    answers = []
    for headers, phrase in ((mine, "a"), (mine, "a"), (theirs, "b")):
        headers = headers | PNG | {"idempotency-key": "the-same"}
        path = f"/v1/detect?object={phrase}"
        answers.append(await api.client.post(path, content=PICTURE, headers=headers, timeout=60))
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert answers[2].json()["phrases"][0]["object"] == "b"


async def test_equal_images_of_two_tenants_are_kept_apart(api: Api) -> None:
    mine, theirs = await api.key("acme"), await api.key("beta")
    first, second = await upload(api, mine), await upload(api, theirs)
    assert first != second
    (delete,) = forgetting("/v1/images/{image_id}")
    assert (await delete(api, mine, first)).status_code == 204
    assert (await asking("/v1/detect")[0](api, theirs, second)).status_code == 200
