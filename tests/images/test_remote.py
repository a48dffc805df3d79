"""Images behind URLs, asked for over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from app.settings import Settings
from tests.admission.fakes import Work
from tests.app.api import serving_api
from tests.intake.pictures import encode, plain
from tests.intake.web import OPEN, PRIVATE, answer, web

PICTURE = encode(plain(), "JPEG")
Start = Callable[..., Awaitable[Work]]


@asynccontextmanager
async def fetching_api(settings: Settings, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    given = {"fetch": "public", "fetch_allow": f"{OPEN}/32"} | changes
    async with (
        serving_api(replace(settings, **given)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as api,
    ):
        yield api


async def serve(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    if path == "/silent.jpg":
        await asyncio.sleep(60)
    writer.write(answer(PICTURE[: len(PICTURE) // 2] if path == "/half.jpg" else PICTURE))
    await writer.drain()


def problem(response: httpx.Response) -> tuple[int, str, str | None]:
    document = response.json()
    return response.status_code, document["type"].removeprefix("/problems/"), document.get("field")


async def test_through_every_field_and_route(settings: Settings, start_work: Start) -> None:
    await start_work()
    async with web(serve) as served, fetching_api(settings) as api:
        url = served.url(OPEN, "/a.jpg")
        for sent in ({"json": {"image": url, "object": "x"}}, {"json": {"image_url": url, "object": "x"}},
                     {"files": {"image_url": (None, url), "object": (None, "x")}}):  # fmt: skip
            response = await api.post("/v1/detect", **sent)
            assert response.status_code == 200, response.text
        kept = await api.post("/v1/images", json={"image_url": url})
        assert kept.status_code == 201
        assert kept.json()["bytes"] == len(PICTURE)
        assert len(served.seen[OPEN]) == 4


async def test_refusals(settings: Settings, start_work: Start) -> None:
    await start_work()
    async with web(serve) as served, fetching_api(settings) as api:
        for field in ("image", "image_url"):
            private = {field: served.url(PRIVATE), "object": "x"}
            assert problem(await api.post("/v1/point", json=private)) == (422, "invalid-request", field)
        assert not served.seen[PRIVATE]
        private_upload = await api.post("/v1/images", json={"image_url": served.url(PRIVATE)})
        assert problem(private_upload) == (422, "invalid-request", "image_url")
        silent = {"image_url": served.url(OPEN, "/silent.jpg"), "object": "x", "timeout_s": 0.5}
        assert problem(await api.post("/v1/detect", json=silent)) == (422, "invalid-request", "image_url")


async def test_a_kept_answer_needs_no_second_fetch(settings: Settings, start_work: Start) -> None:
    await start_work()
    async with web(serve) as served, fetching_api(settings) as api:
        sent = {"image_url": served.url(OPEN, "/a.jpg"), "object": "x"}
        answers = [
            await api.post("/v1/detect", json=sent, headers={"idempotency-key": "k"}) for _ in range(2)
        ]
        assert answers[0].status_code == 200
        assert answers[0].content == answers[1].content
        assert len(served.seen[OPEN]) == 1


async def test_off_by_default(settings: Settings, start_work: Start) -> None:
    await start_work()
    async with web(serve) as served, fetching_api(settings, fetch="off") as api:
        response = await api.post("/v1/detect", json={"image_url": served.url(OPEN), "object": "x"})
        assert problem(response) == (422, "invalid-request", "image_url")
        assert "off on this server" in response.json()["detail"]
        assert not served.seen[OPEN]
