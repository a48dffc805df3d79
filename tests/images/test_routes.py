"""Upload once, ask often, forget."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.settings import Settings
from tests.admission.fakes import Work, until
from tests.intake.pictures import encode, plain, with_orientation

PICTURE = encode(plain(), "PNG")
RAW = {"content-type": "image/png"}
Start = Callable[..., Awaitable[Work]]


def problem(response: httpx.Response) -> tuple[int, str, str | None]:
    document = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, document["type"].removeprefix("/problems/"), document.get("field")


async def upload(api: httpx.AsyncClient, **sent: Any) -> dict[str, Any]:
    response = await api.post("/v1/images", **(sent or {"content": PICTURE, "headers": RAW}))
    assert response.status_code == 201, response.text
    document: dict[str, Any] = response.json()
    return document


async def test_every_door(api: httpx.AsyncClient, start_work: Start) -> None:
    await start_work()
    encoded = base64.b64encode(PICTURE).decode()
    doors: list[dict[str, Any]] = [
        {"content": PICTURE, "headers": RAW},
        {"content": PICTURE, "headers": RAW, "params": {"model": "tiny"}},
        {"files": {"image": PICTURE}, "data": {"model": "tiny"}},
        {"json": {"image": encoded}},
        {"json": {"image_url": f"data:image/png;base64,{encoded}"}},
    ]
    ids = set()
    for sent in doors:
        kept = await upload(api, **sent)
        assert kept["bytes"] == len(PICTURE)
        assert kept["expires_in_s"] == 3600
        assert kept["model"] == "tiny"
        ids.add(kept["image_id"])
    assert len(ids) == len(doors)


async def test_ask_by_id_and_forget(api: httpx.AsyncClient, start_work: Start) -> None:
    work = await start_work()
    image_id = (await upload(api))["image_id"]
    assert work.engine.runs == [("object",)]  # a worker has decoded and prefilled it
    for route in ("/v1/detect", "/detect"):
        response = await api.post(route, json={"image_id": image_id, "object": "x", "id": "mine"})
        assert response.status_code == 200, response.text
        assert response.json()["image"]["id"] == image_id
        assert response.json()["id"] == "mine"
        assert len(response.json()["objects"]) == 3
    form = await api.post("/v1/detect", files={"image_id": (None, image_id), "object": (None, "x")})
    assert form.status_code == 200
    assert (await api.delete(f"/v1/images/{image_id}")).status_code == 204
    assert problem(await api.delete(f"/v1/images/{image_id}")) == (404, "not-found", "image_id")
    asked = await api.post("/v1/detect", json={"image_id": image_id, "object": "x"})
    assert problem(asked) == (404, "not-found", "image_id")


async def test_a_region_in_pixels_of_an_uploaded_image(api: httpx.AsyncClient, start_work: Start) -> None:
    await start_work()
    image_id = (await upload(api, content=with_orientation(6), headers=RAW))["image_id"]  # 40 x 100 upright
    body = {"image_id": image_id, "object": "x", "units": "pixels"}
    assert (await api.post("/v1/detect", json=body | {"region": [0, 50, 40, 100]})).status_code == 200
    refused = await api.post("/v1/detect", json=body | {"region": [0, 50, 100, 100]})
    assert problem(refused) == (422, "invalid-request", "region")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"content": b"", "headers": RAW}, (422, "invalid-image", "image")),
        ({"content": b"text", "headers": RAW}, (415, "unsupported-media", "image")),
        ({"content": PICTURE, "headers": {"content-type": "text/plain"}}, (415, "unsupported-media", None)),
        ({"content": PICTURE, "headers": RAW, "params": {"object": "x"}}, (422, "invalid-request", "object")),
        ({"content": PICTURE, "headers": RAW, "params": {"model": "other"}}, (404, "unknown-model", "model")),
        ({"content": PICTURE, "headers": RAW, "params": {"timeout_s": 601}},
         (422, "invalid-request", "timeout_s")),
        ({"json": {}}, (422, "invalid-request", "image")),
        ({"json": {"image": "QUJD!!!"}}, (400, "invalid-request", "image")),
        ({"json": {"image_url": "https://example.org/a.png"}}, (422, "invalid-request", "image_url")),
        ({"json": {"image_id": "a"}}, (422, "invalid-request", "image_id")),
    ],
)  # fmt: skip
async def test_refusals(
    api: httpx.AsyncClient, start_work: Start, sent: dict[str, Any], expected: tuple[int, str, str | None]
) -> None:
    await start_work()
    assert problem(await api.post("/v1/images", **sent)) == expected


async def test_what_cannot_be_prefilled_is_not_kept(
    settings: Settings, api: httpx.AsyncClient, start_work: Start, redis: Redis
) -> None:
    assert problem(await api.post("/v1/images", content=PICTURE, headers=RAW))[:2] == (503, "unavailable")
    work = await start_work()

    def broken(request: Any, on_event: Any) -> Any:
        raise RuntimeError("no")

    work.engine.submit = broken  # type: ignore[method-assign]
    assert (await api.post("/v1/images", content=PICTURE, headers=RAW)).status_code == 500

    async def nothing() -> bool:
        return not await redis.keys(f"*{settings.namespace}*:handle:*")

    await until(nothing)


async def test_unknown_ids_on_every_route(api: httpx.AsyncClient, start_work: Start) -> None:
    await start_work()
    for route in ("/v1/detect", "/v1/point"):
        body = {"image_id": "no-such-image", "object": "x"}
        assert problem(await api.post(route, json=body)) == (404, "not-found", "image_id")
        assert problem(await api.post(route, json=body | {"stream": True})) == (404, "not-found", "image_id")
    assert problem(await api.delete("/v1/images/no-such-image")) == (404, "not-found", "image_id")
