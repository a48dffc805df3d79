"""Keys as callers meet them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.access.keys import KeyFault
from app.access.usage import DayOfUse, usage
from app.settings import Settings
from tests.access.serving import Api, serving
from tests.admission.fakes import PATIENCE_S, Work, until
from tests.intake.pictures import encode, plain

PICTURE = encode(plain(), "PNG")


@pytest.fixture
async def worker(start_work: Callable[..., Awaitable[Work]]) -> Work:
    return await start_work()


@pytest.fixture
async def api(
    settings: Settings, tmp_path: Path, worker: Work, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Api]:
    monkeypatch.setattr("app.access.usage.RECORD_S", 0.5)
    with_keys = replace(settings, auth="on", data_dir=str(tmp_path), bootstrap_key="the-first-key-of-all")
    async with serving(with_keys) as running:
        yield running


async def detect(api: Api, headers: dict[str, str], phrase: str = "a", **query: Any) -> httpx.Response:
    return await api.client.post(
        "/v1/detect",
        params={"object": phrase, **query},
        content=PICTURE,
        headers={"content-type": "image/png", **headers},
        timeout=60,
    )


def slug(response: httpx.Response) -> str:
    document: dict[str, Any] = response.json()
    assert document["request_id"] == response.headers["x-request-id"]
    return str(document["type"].removeprefix("/problems/"))


async def test_a_key_opens_in_either_header(api: Api) -> None:
    headers = await api.key()
    assert (await detect(api, headers)).status_code == 200
    key = headers["authorization"].removeprefix("Bearer ")
    assert (await detect(api, {"x-moondream-auth": key})).status_code == 200
    assert (await detect(api, {"x-moondream-auth": "the-first-key-of-all"})).status_code == 200
    assert (await api.client.get("/v1/models", headers=headers)).status_code == 200
    assert (await api.client.get("/models", headers={"authorization": f"bearer {key}"})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer "},
        {"authorization": "Bearer pb_aaaaaaaa_bbbb"},
        {"authorization": "Basic eDp5"},
        {"x-moondream-auth": "é"},
    ],
)
async def test_without_a_good_key_nothing_is_told(api: Api, headers: dict[str, str]) -> None:
    raw = {name: value.encode() for name, value in headers.items()}
    for response in (await detect(api, raw), await api.client.get("/v1/models", headers=raw)):  # type: ignore[arg-type]
        assert response.status_code == 401
        assert slug(response) == "unauthenticated"
        assert response.headers["www-authenticate"] == "Bearer"


async def test_health_and_schema_need_no_key(api: Api) -> None:
    for path in ("/livez", "/readyz", "/schema"):
        assert (await api.client.get(path)).status_code == 200
    schema = (await api.client.get("/schema")).json()
    assert schema["security"] == [{"bearer": []}, {"moondream": []}]
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            assert operation.get("security") == ([] if path in ("/livez", "/readyz") else None), path


async def test_use_of_the_bootstrap_key_is_counted(api: Api) -> None:
    headers = {"authorization": "Bearer the-first-key-of-all"}
    for _ in range(2):
        assert (await detect(api, headers)).status_code == 200
    found: list[DayOfUse] = []
    async with asyncio.timeout(PATIENCE_S):
        while not found:
            found = await usage(api.database, 1)
            await asyncio.sleep(0.1)
    (day,) = found
    assert (day.tenant, day.prefix) == ("default", "bootstrap")
    assert await api.keys.all() == []
    with pytest.raises(KeyFault):
        await api.keys.revoke("bootstrap")
    schema = (await api.client.get("/schema")).json()
    assert set(schema["components"]["securitySchemes"]) == {"bearer", "moondream"}
    assert {"401", "403", "429"} <= set(schema["paths"]["/v1/detect"]["post"]["responses"])


async def test_a_key_without_the_scope_is_forbidden(api: Api) -> None:
    headers = await api.key(scopes=("jobs",))
    response = await detect(api, headers)
    assert (response.status_code, slug(response)) == (403, "forbidden")
    assert "infer" in response.json()["detail"]
    assert (await api.client.get("/v1/models", headers=headers)).status_code == 200


async def test_the_rate_of_a_key(api: Api) -> None:
    headers, other = await api.key(rate_per_minute=2), await api.key(rate_per_minute=2)
    first = await detect(api, headers)
    assert first.headers["ratelimit-limit"] == "2"
    assert first.headers["ratelimit-remaining"] == "1"
    assert 1 <= int(first.headers["ratelimit-reset"]) <= 30
    assert (await detect(api, headers)).headers["ratelimit-remaining"] == "0"
    refused = await detect(api, headers)
    assert (refused.status_code, slug(refused)) == (429, "rate-limited")
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert (await detect(api, other)).status_code == 200
    assert "ratelimit-limit" not in (await detect(api, await api.key())).headers


async def test_a_key_shares_its_limits_over_all_api_processes(
    api: Api, settings: Settings, tmp_path: Path
) -> None:
    headers = await api.key(rate_per_minute=1)
    assert (await detect(api, headers)).status_code == 200
    async with serving(replace(settings, auth="on", data_dir=str(tmp_path))) as second:
        assert (await detect(second, headers)).status_code == 429


async def test_the_concurrency_of_a_key_ends_with_the_answer(api: Api, worker: Work) -> None:
    headers = await api.key(concurrency=1)
    for stream in (False, True):
        held = asyncio.create_task(detect(api, headers, "hold", stream=stream))
        await until(lambda: worker.engine.active)
        refused = await detect(api, headers)
        assert (refused.status_code, slug(refused)) == (429, "rate-limited")
        assert (await detect(api, await api.key())).status_code == 200
        worker.engine.release.set()
        assert (await held).status_code == 200
        worker.engine.release.clear()
    assert (await detect(api, headers)).status_code == 200


async def test_an_unreachable_database_is_no_fault_of_the_caller(settings: Settings, worker: Work) -> None:
    away = replace(settings, auth="on", database_url="postgresql://u:p@127.0.0.1:1/none")
    async with serving(away) as api:
        response = await detect(api, {"authorization": "Bearer pb_a"})
        assert (response.status_code, slug(response)) == (503, "unavailable")
        assert (await api.client.get("/readyz")).status_code == 503
        assert (await api.client.get("/livez")).status_code == 200
