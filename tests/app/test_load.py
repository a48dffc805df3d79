"""A small queue fills up, callers are told when to come back, and SIGTERM loses nothing."""

from __future__ import annotations

import asyncio
import base64
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.admission.fakes import Server
from tests.app.running import Service, serving


async def crowd(url: str, asked: dict[str, Any], many: int) -> list[httpx.Response]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        return await asyncio.gather(*(client.post("/v1/detect", json=asked) for _ in range(many)))


async def fill_and_drain(service: Service, scene: bytes, status: int, slug: str) -> None:
    """Of twenty callers some are refused; of four, whom SIGTERM meets, none."""
    asked = {"image": base64.b64encode(scene).decode(), "objects": ["shape"] * 32}
    responses = await crowd(service.url, asked, 20)
    refused = [response for response in responses if response.status_code != 200]
    assert 4 <= len(responses) - len(refused) < 20
    for response in refused:
        assert response.status_code == status
        assert response.json()["type"] == f"/problems/{slug}"
        assert int(response.headers["retry-after"]) >= 1
    async with (
        httpx.AsyncClient(base_url=service.url, timeout=60) as client,
        AsyncExitStack() as open_ones,
    ):
        streams = [
            await open_ones.enter_async_context(
                client.stream("POST", "/v1/detect", json=asked | {"stream": True})
            )
            for _ in range(4)
        ]
        assert [stream.status_code for stream in streams] == [200] * 4  # all are in the queue
        service.process.send_signal(signal.SIGTERM)
        for stream in streams:
            assert b"event: done" in await stream.aread()
    assert await asyncio.to_thread(service.process.wait, 30) == 0


async def test_full_queues_and_drains(tmp_path: Path, scene: bytes, shared_server: Server) -> None:
    """A whole service, and before that one more API in front of its worker."""
    place = {"POINTBOX_REDIS_URL": shared_server.url, "POINTBOX_NAMESPACE": "load"}
    with serving(tmp_path / "log.txt", POINTBOX_QUEUE_DEPTH="4", **place) as service:
        with serving(tmp_path / "api.txt", "api", POINTBOX_TENANT_QUEUE_DEPTH="4", **place) as api:
            await fill_and_drain(api, scene, 429, "tenant-queue-full")
        await fill_and_drain(service, scene, 503, "queue-full")
