"""Bad requests to the running service: each gets its problem document, and the service goes on."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.app.running import Service
from tests.intake.pictures import chunk, encode, plain, png_claiming

JSON = {"content-type": "application/json"}


def body(image: bytes, /, **fields: Any) -> dict[str, Any]:
    return {"image": base64.b64encode(image).decode(), "object": "red circle"} | fields


def problem(response: httpx.Response) -> tuple[int, str, str | None]:
    document = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert document["status"] == response.status_code
    assert document["request_id"] == response.headers["x-request-id"]
    return response.status_code, document["type"].removeprefix("/problems/"), document.get("field")


def test_the_list(client: httpx.Client, scene: bytes) -> None:
    def post(**sent: Any) -> tuple[int, str, str | None]:
        return problem(client.post("/v1/detect", **sent))

    assert post(json={"object": "x"}) == (422, "invalid-request", "image")
    assert post(files={"image": scene}) == (422, "invalid-request", "object")
    assert post(json=body(scene, image="QUJD!!!")) == (400, "invalid-request", "image")
    assert post(json=body(b"just text, no picture")) == (415, "unsupported-media", "image")
    assert post(json=body(scene[: len(scene) // 2])) == (422, "invalid-image", "image")
    assert post(json=body(scene, object="  ")) == (422, "invalid-phrase", "object")
    assert post(json=body(scene, max_objects=0)) == (422, "invalid-request", "max_objects")
    assert post(json=body(scene, colour="red")) == (422, "invalid-request", "colour")
    assert post(json=body(scene, model="no-such-model")) == (404, "unknown-model", "model")
    as_text = json.dumps(body(scene)).encode()
    assert post(content=as_text, headers={"content-type": "text/plain"}) == (415, "unsupported-media", None)
    assert post(content=b"") == (422, "invalid-image", "image")
    assert post(json=body(scene, image="https://example.org/a.jpg")) == (422, "invalid-request", "image")
    assert client.post("/v1/detect", json=body(scene)).status_code == 200


def test_half_a_jpeg_says_truncated(client: httpx.Client, scene: bytes) -> None:
    response = client.post("/v1/detect", json=body(scene[: len(scene) // 2]))
    assert "truncated" in response.json()["detail"]


def test_what_the_worker_finds_wrong_names_the_field_that_was_sent(
    client: httpx.Client, scene: bytes
) -> None:
    half = base64.b64encode(scene[: len(scene) // 2]).decode()
    sent = {"image_url": f"data:image/jpeg;base64,{half}", "object": "x"}
    assert problem(client.post("/v1/detect", json=sent)) == (422, "invalid-image", "image_url")


def test_a_body_of_60_mb(client: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(60):
            yield b"\xff" * 1_000_000

    big = b"\xff" * 60_000_000
    headers = {"content-type": "image/jpeg"}
    for sent in ({"content": big}, {"content": chunks()}):
        try:
            response = client.post("/v1/detect?object=x", headers=headers, **sent)
        except httpx.WriteError:  # refused before all of it was sent
            continue
        assert problem(response) == (413, "image-too-large", "image")
    assert client.get("/livez").status_code == 200


def test_sizes_are_judged_by_the_header(client: httpx.Client) -> None:
    def sent(image: bytes) -> tuple[int, str, str | None]:
        return problem(client.post("/v1/detect", json=body(image)))

    assert sent(png_claiming(13_500, 13_500)) == (413, "image-too-large", "image")
    assert sent(png_claiming(1, 1_000_000)) == (413, "image-too-large", "image")
    assert sent(encode(plain(2, 2), "PNG")) == (422, "invalid-image", "image")
    assert sent(encode(plain(1, 201), "PNG")) == (422, "invalid-image", "image")


async def test_a_header_that_takes_long_holds_up_nobody(service: Service) -> None:
    png = encode(plain(), "PNG")
    texts = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(500_000))) * 1_000 + chunk(b"tEXt", b"a\0b") * 3_000
    longest = png[:33] + texts + png[33:]
    hostile = png[:33] + chunk(b"tEXt", b"a\0b") * 400_000 + png[33:]
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        headers = {"content-type": "image/png"}
        refused = await client.post("/detect?object=x", content=hostile, headers=headers)
        slow = asyncio.create_task(client.post("/detect?object=x", content=longest, headers=headers))
        probes = 0
        while not slow.done():
            assert (await client.get("/livez")).status_code == 200
            probes += 1
    assert slow.result().status_code == 200
    assert probes > 5
    assert problem(refused) == (422, "invalid-image", "image")
    assert "more than 4,096 chunks of metadata" in refused.json()["detail"]


def test_routes_and_methods(client: httpx.Client) -> None:
    assert problem(client.get("/v1/nothing")) == (404, "not-found", None)
    assert problem(client.get("/v1/detect"))[:2] == (405, "invalid-request")
    assert problem(client.delete("/livez"))[:2] == (405, "invalid-request")
    assert client.get("/v1/detect").headers["allow"]


def test_request_ids(client: httpx.Client, scene: bytes) -> None:
    for url, sent in (("/v1/detect", body(scene)), ("/v1/detect", {}), ("/nowhere", {})):
        response = client.post(url, json=sent, headers={"x-request-id": "mine-42"})
        assert response.headers["x-request-id"] == response.json()["request_id"] == "mine-42"


async def test_hanging_up_cancels_the_work(service: Service, client: httpx.Client, scene: bytes) -> None:
    """Twenty requests of 32 phrases take seconds; once their callers are gone, a new one does not wait."""
    asked = body(scene, objects=["shape"] * 32, dedupe=False)
    del asked["object"]
    started = time.monotonic()
    assert client.post("/v1/detect", json=asked).status_code == 200
    one_s = time.monotonic() - started
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as crowd:
        streams = [asked | {"stream": bool(index % 2)} for index in range(20)]
        waiting = [asyncio.create_task(crowd.post("/v1/detect", json=sent)) for sent in streams]
        await asyncio.sleep(min(one_s, 1))
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    started = time.monotonic()
    assert client.post("/v1/detect", json=body(scene)).status_code == 200
    assert time.monotonic() - started < max(5 * one_s, 1)


def test_neither_phrases_nor_images_are_logged(service: Service, client: httpx.Client, scene: bytes) -> None:
    asked = body(scene, object="a very secret phrase")
    assert client.post("/v1/detect", json=asked, headers={"x-request-id": "logged-1"}).status_code == 200
    raw = {"content-type": "image/jpeg", "x-request-id": "logged-2"}
    client.post("/v1/detect", params={"object": "a very secret phrase"}, content=scene, headers=raw)
    time.sleep(0.2)
    log = service.log.read_text()
    assert "secret" not in log
    assert asked["image"][:60] not in log
    lines = [json.loads(line) for line in log.splitlines() if '"logged-' in line]
    assert {line["request_id"] for line in lines} == {"logged-1", "logged-2"}
    assert all(
        line["status"] == 200 and line["path"] == "/v1/detect" for line in lines if line["event"] == "request"
    )


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_health(client: httpx.Client, path: str) -> None:
    assert client.get(path).json() == {"status": "ok"}


def test_models(client: httpx.Client) -> None:
    for path in ("/v1/models", "/models"):
        (model,) = client.get(path).json()["models"]
        assert model["name"] == "tiny"
        assert model["workers"] == 1
        assert set(model["tasks"]) == {"detect", "point"}
