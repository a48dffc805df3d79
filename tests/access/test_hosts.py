"""Without keys, pages of other sites cannot use the server."""

from __future__ import annotations

import httpx
import pytest
from litestar import Litestar, get
from litestar.types import ASGIApp

from app.access.hosts import KnownHosts
from app.correlation import Correlation
from app.settings import Settings


@get("/")
async def page() -> str:
    return "here"


def client(**settings: str) -> httpx.AsyncClient:
    app: ASGIApp = Correlation(KnownHosts(Litestar([page]), Settings(**settings)))  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8000", "localhost", "LOCALHOST:8000", "[::1]:8000", "192.168.1.7", "box", "vision.lan:80"],
)
async def test_its_own_names(host: str) -> None:
    async with client(host="box", allowed_hosts="vision.lan, other.lan") as asking:
        assert (await asking.get("/", headers={"host": host})).status_code == 200
        own = {"host": host, "origin": f"http://{host}"}
        assert (await asking.get("/", headers=own)).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[", "a b"]
)
async def test_a_name_that_a_page_had_resolve_to_here(host: str) -> None:
    async with client() as asking:
        response = await asking.get("/", headers={"host": host})
    assert response.status_code == 403
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["type"] == "/problems/forbidden"
    assert document["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost", "file://127.0.0.1:8000", ""],
)
async def test_a_form_that_another_site_sends(origin: str) -> None:
    async with client() as asking:
        headers = {"host": "127.0.0.1:8000", "origin": origin}
        assert (await asking.get("/", headers=headers)).status_code == 403


async def test_an_allowed_name_may_be_an_origin_too() -> None:
    async with client(allowed_hosts="tools.lan") as asking:
        headers = {"host": "127.0.0.1:8000", "origin": "https://tools.lan"}
        assert (await asking.get("/", headers=headers)).status_code == 200
