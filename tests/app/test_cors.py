"""Which web pages may call the service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.server import create_app, layered
from app.settings import Settings

PAGE = "https://app.example.com"
OTHER = "https://evil.example.com"


@pytest.fixture
async def client(request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(redis_url="redis://127.0.0.1:1", cors_origins=request.param)
    transport = httpx.ASGITransport(layered(create_app(settings)))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize("client", [f" {PAGE}/ , https://b.example.com"], indirect=True)
async def test_pages_on_the_list(client: httpx.AsyncClient) -> None:
    for path, status in (("/livez", 200), ("/nowhere", 404)):
        response = await client.get(path, headers={"origin": PAGE})
        assert response.status_code == status
        assert response.headers["access-control-allow-origin"] == PAGE
        assert "x-request-id" in response.headers["access-control-expose-headers"].lower()
        assert "access-control-allow-credentials" not in response.headers
    asked = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type, authorization, idempotency-key",
    }
    preflight = await client.options("/v1/detect", headers=asked)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == PAGE
    refused = await client.get("/livez", headers={"origin": OTHER})
    assert refused.status_code == 403
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("client", [""], indirect=True)
async def test_none_by_default(client: httpx.AsyncClient) -> None:
    response = await client.get("/livez", headers={"origin": PAGE})
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("client", ["*"], indirect=True)
async def test_all_of_them(client: httpx.AsyncClient) -> None:
    response = await client.get("/livez", headers={"origin": OTHER})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "*"


PREFLIGHT = {"origin": PAGE, "access-control-request-method": "POST"}


@pytest.mark.parametrize("auth", ["on", "off"])
@pytest.mark.parametrize(
    ("origins", "changes", "says"),
    [
        (PAGE, {"origin": OTHER}, "POINTBOX_CORS_ORIGINS"),
        ("", {}, "POINTBOX_CORS_ORIGINS"),
        (PAGE, {"access-control-request-method": "PUT"}, "may not send PUT; they may send GET, POST, DELETE"),
        (PAGE, {"access-control-request-headers": "content-type, x-mine"}, "the header x-mine"),
    ],
)
async def test_a_preflight_that_is_refused(
    auth: Any, origins: str, changes: dict[str, str], says: str
) -> None:
    settings = Settings(redis_url="redis://127.0.0.1:1", cors_origins=origins, auth=auth)
    transport = httpx.ASGITransport(layered(create_app(settings)))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
        refused = await asking.options("/v1/detect", headers=PREFLIGHT | changes)
    assert refused.status_code == 403
    assert refused.headers["content-type"] == "application/problem+json"
    assert "access-control-allow-origin" not in refused.headers
    document = refused.json()
    assert document["type"] == "/problems/forbidden"
    assert document["request_id"] == refused.headers["x-request-id"]
    assert says in document["detail"]
