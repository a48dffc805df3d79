"""The pieces of the service that need no queue: heartbeats, and errors nobody foresaw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
from litestar import Litestar, get

from app.correlation import Correlation
from app.errors import handlers
from app.spatial.service import with_silences


async def slow_pair() -> AsyncIterator[str]:
    yield "first"
    await asyncio.sleep(0.25)
    yield "second"


async def test_silences_are_filled_and_nothing_is_lost() -> None:
    events = [event async for event in with_silences(slow_pair(), 0.1)]
    assert events == ["first", None, None, "second"]


async def test_leaving_early_ends_the_source() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                await asyncio.sleep(10)
                yield 1
        finally:
            ended.set()

    filled = with_silences(endless(), 0.01)
    assert await anext(filled) is None
    await filled.aclose()
    await asyncio.wait_for(ended.wait(), 1)


@get("/")
async def broken() -> None:
    raise RuntimeError("a secret detail")


async def test_an_error_nobody_foresaw_says_nothing_of_the_inside() -> None:
    app = Correlation(Litestar([broken], exception_handlers=handlers(), logging_config=None))
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.get("/")
    assert response.status_code == 500
    assert response.json()["type"] == "/problems/internal"
    assert "secret" not in response.text
