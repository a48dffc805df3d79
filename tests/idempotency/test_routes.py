"""A request that is sent again under its key is answered again, and worked on once."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.idempotency import replays
from app.settings import Settings
from tests.admission.fakes import FakeEngine, Work, until
from tests.app.api import serving_api
from tests.intake.pictures import encode, plain

PICTURE = encode(plain(), "PNG")
IMAGE = base64.b64encode(PICTURE).decode()
Start = Callable[..., Awaitable[Work]]


def body(**fields: Any) -> dict[str, Any]:
    return {"image": IMAGE, "object": "x"} | fields


def keyed(key: str) -> dict[str, str]:
    return {"idempotency-key": key}


async def detect(api: httpx.AsyncClient, key: str, **fields: Any) -> httpx.Response:
    return await api.post("/v1/detect", json=body(**fields), headers=keyed(key))


def problem(response: httpx.Response) -> tuple[int, str, str | None]:
    document = response.json()
    return response.status_code, document["type"].removeprefix("/problems/"), document.get("field")


async def test_the_same_answer_and_no_second_run(api: httpx.AsyncClient, start_work: Start) -> None:
    work = await start_work()
    first, second = await detect(api, "one"), await detect(api, "one")
    assert first.status_code == second.status_code == 200
    assert first.content == second.content
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert len(work.engine.runs) == 1
    assert (await detect(api, "two")).content != first.content
    assert len(work.engine.runs) == 2


async def test_the_parsed_request_counts_not_its_spelling(api: httpx.AsyncClient, start_work: Start) -> None:
    work = await start_work()
    raw = {"content-type": "image/png", **keyed("k")}
    answers = [
        await detect(api, "k"),
        await detect(api, "k", dedupe=True, max_objects=50, image=f"data:image/png;base64,{IMAGE}"),
        await api.post("/v1/detect", files={"image": PICTURE}, data={"object": "x"}, headers=keyed("k")),
        await api.post("/detect", params={"object": "x"}, content=PICTURE, headers=raw),
    ]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len(work.engine.runs) == 1


@pytest.mark.parametrize(
    "changed",
    [{"object": "y"}, {"max_objects": 3}, {"units": "pixels"}, {"stream": True}, {"id": "mine"},
     {"image": base64.b64encode(PICTURE + b"\0").decode()}],
)  # fmt: skip
async def test_another_request_under_the_key_is_refused(
    api: httpx.AsyncClient, start_work: Start, changed: dict[str, Any]
) -> None:
    await start_work()
    assert (await detect(api, "k")).status_code == 200
    assert problem(await detect(api, "k", **changed)) == (422, "idempotency-mismatch", "Idempotency-Key")


async def test_while_the_first_runs(api: httpx.AsyncClient, start_work: Start) -> None:
    work = await start_work()
    first = asyncio.create_task(detect(api, "k", object="hold"))
    await until(lambda: work.engine.runs)
    second = await detect(api, "k", object="hold")
    assert problem(second) == (409, "idempotency-in-flight", "Idempotency-Key")
    assert int(second.headers["retry-after"]) >= 1
    assert problem(await detect(api, "k"))[1] == "idempotency-mismatch"
    work.engine.release.set()
    assert (await first).status_code == 200
    assert (await detect(api, "k", object="hold")).content == (await first).content
    assert len(work.engine.runs) == 1


async def test_of_many_at_once_one_runs(api: httpx.AsyncClient, start_work: Start) -> None:
    work = await start_work()
    answers = await asyncio.gather(*(detect(api, "k", object="hold") for _ in range(10)), _release(work))
    statuses = [answer.status_code for answer in answers[:-1]]
    assert statuses.count(200) >= 1
    assert set(statuses) <= {200, 409}
    assert len(work.engine.runs) == 1


async def _release(work: Work) -> Any:
    await until(lambda: work.engine.runs)
    await asyncio.sleep(0.2)
    work.engine.release.set()


async def test_failures_are_not_kept(api: httpx.AsyncClient, start_work: Start) -> None:
    assert problem(await detect(api, "k"))[1] == "unavailable"
    work = await start_work()
    assert (await detect(api, "k")).status_code == 200
    for _ in range(2):
        assert problem(await detect(api, "b", object="bad"))[1] == "invalid-phrase"
    assert len(work.engine.runs) == 3
    half = {"image": base64.b64encode(b"broken").decode()}
    assert problem(await detect(api, "c", **half))[1] == "unsupported-media"
    assert (await detect(api, "c")).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_run_frees_its_key(api: httpx.AsyncClient, start_work: Start, stream: bool) -> None:
    work = await start_work()
    asked = body(object="slow", stream=stream)
    first = asyncio.create_task(api.post("/v1/detect", json=asked, headers=keyed("k")))
    await until(lambda: work.engine.runs)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await until(lambda: work.engine.cancelled)

    async def free() -> bool:
        return (await detect(api, "k")).status_code == 200

    await until(free)


async def test_a_stream_is_told_again(api: httpx.AsyncClient, start_work: Start) -> None:
    work = await start_work()
    first, second = await detect(api, "k", stream=True), await detect(api, "k", stream=True)
    assert first.text.count("event: object\n") == 3
    assert first.text.count("event: done\n") == 1
    assert second.text == first.text
    assert second.headers["content-type"].startswith("text/event-stream")
    assert second.headers["idempotent-replayed"] == "true"
    assert len(work.engine.runs) == 1


async def test_an_answer_outlives_its_image(api: httpx.AsyncClient, start_work: Start) -> None:
    await start_work()
    raw = {"content-type": "image/png"}
    image_id = (await api.post("/v1/images", content=PICTURE, headers=raw)).json()["image_id"]
    asked = {"image_id": image_id, "object": "x"}
    first = await api.post("/v1/detect", json=asked, headers=keyed("k"))
    assert (await api.delete(f"/v1/images/{image_id}")).status_code == 204
    assert (await api.post("/v1/detect", json=asked, headers=keyed("k"))).content == first.content


async def test_routes_have_keys_of_their_own(api: httpx.AsyncClient, start_work: Start) -> None:
    work = await start_work()
    assert (await detect(api, "k", object="bad")).status_code == 422
    assert (await detect(api, "k")).status_code == 200
    other = await api.post("/v1/point", json=body(object="bad"), headers=keyed("k"))
    assert problem(other)[1] == "invalid-phrase"
    assert len(work.engine.runs) == 3


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 256])
async def test_what_is_no_key(api: httpx.AsyncClient, key: str) -> None:
    response = await api.post("/v1/detect", json=body(), headers={"idempotency-key": key.encode()})
    assert problem(response) == (422, "invalid-request", "Idempotency-Key")


async def test_two_keys(api: httpx.AsyncClient) -> None:
    headers = [("idempotency-key", "a"), ("idempotency-key", "b")]
    response = await api.post("/v1/detect", json=body(), headers=headers)
    assert problem(response) == (422, "invalid-request", "Idempotency-Key")
    assert response.json()["detail"] == "The header Idempotency-Key is given twice."


async def test_the_key_of_an_api_that_died_is_free_again(
    settings: Settings, start_work: Start, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "LEASE_S", 0.6)
    await start_work()
    claim = await replays.Replays(redis, settings.namespace).claim("anonymous", "detect", "k", "f")
    assert isinstance(claim, replays.Claim)  # claimed by somebody who never comes back
    async with serving_api(settings) as url, httpx.AsyncClient(base_url=url, timeout=60) as api:

        async def free() -> bool:
            return (await detect(api, "k")).status_code == 200

        await until(free)


async def test_an_upload(api: httpx.AsyncClient, start_work: Start) -> None:
    work = await start_work()
    raw = {"content-type": "image/png", **keyed("k")}
    first = await api.post("/v1/images", content=PICTURE, headers=raw)
    again = await api.post("/v1/images", json={"image": IMAGE}, headers=keyed("k"))
    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert len(work.engine.runs) == 1
    other = await api.post("/v1/images", content=PICTURE + b"\0", headers=raw)
    assert problem(other) == (422, "idempotency-mismatch", "Idempotency-Key")
    assert (await detect(api, "k")).status_code == 200  # keys belong to a route
    asked = await api.post("/v1/detect", json={"image_id": again.json()["image_id"], "object": "x"})
    assert asked.status_code == 200


class HoldingEngine(FakeEngine):
    def _answer(self, *arguments: Any) -> None:
        self.release.wait(30)
        super()._answer(*arguments)


async def test_an_upload_under_way_and_one_that_failed(api: httpx.AsyncClient, start_work: Start) -> None:
    raw = {"content-type": "image/png", **keyed("k")}
    failed = await api.post("/v1/images", content=PICTURE, headers=raw)
    assert failed.status_code == 503  # no worker
    work = await start_work(HoldingEngine())
    first = asyncio.create_task(api.post("/v1/images", content=PICTURE, headers=raw))
    await until(lambda: work.engine.runs)
    second = await api.post("/v1/images", content=PICTURE, headers=raw)
    assert problem(second) == (409, "idempotency-in-flight", "Idempotency-Key")
    work.engine.release.set()
    assert (await first).status_code == 201
