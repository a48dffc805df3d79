"""A service with stores over folders, and a runner of its jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.jobs.opening import jobs_beside
from app.settings import Settings
from tests.access.serving import Api, serving
from tests.admission.fakes import PATIENCE_S, FakeEngine, Work
from tests.intake.pictures import encode, plain

PICTURE = encode(plain(), "PNG")
ASKED = {"source": {"store": "in"}, "out": {"store": "out"}, "objects": ["cat"], "shard_size": 5}


@dataclass
class Jobs:
    """A service with two stores and, while `runs` is awaited, a runner."""

    api: Api
    settings: Settings
    root: Path

    def fill(self, count: int) -> set[str]:
        """That many pictures."""
        (self.root / "in").mkdir(exist_ok=True)
        keys = {f"{number:03} #ü.png" for number in range(count)}
        for key in keys:
            (self.root / "in" / key).write_bytes(PICTURE)
        return keys

    async def submit(self, **changes: Any) -> httpx.Response:
        """`...` takes a field away."""
        asked = {name: value for name, value in (ASKED | changes).items() if value is not ...}
        return await self.api.client.post("/v1/jobs", json=asked)

    async def show(self, job: str) -> dict[str, Any]:
        return (await self.api.client.get(f"/v1/jobs/{job}")).json()  # type: ignore[no-any-return]

    async def in_state(self, job: str, *states: str) -> dict[str, Any]:
        async with asyncio.timeout(2 * PATIENCE_S):
            while (shown := await self.show(job))["state"] not in states:
                await asyncio.sleep(0.1)
        return shown

    async def lines(self, job: str, what: str, **query: int) -> list[dict[str, Any]]:
        answer = await self.api.client.get(f"/v1/jobs/{job}/{what}", params=query)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture
async def jobs(
    settings: Settings, tmp_path: Path, start_work: Callable[..., Awaitable[Work]]
) -> AsyncIterator[Jobs]:
    stores = {
        "in": {"url": str(tmp_path / "in")},
        "out": {"url": str(tmp_path / "out"), "write": True},
        "theirs": {"url": str(tmp_path / "theirs"), "write": True, "tenants": ["acme"]},
    }
    changed = replace(settings, auth="off", data_dir=str(tmp_path / "data"), stores=json.dumps(stores))
    await start_work(FakeEngine())
    async with serving(changed) as api:
        yield Jobs(api, changed, tmp_path)


@pytest.fixture
async def running(jobs: Jobs) -> AsyncIterator[Jobs]:
    stop = asyncio.Event()
    ready = asyncio.Event()

    async def run() -> None:
        async with jobs_beside(jobs.settings, stop):
            ready.set()
            await stop.wait()

    task = asyncio.create_task(run())
    await ready.wait()
    yield jobs
    stop.set()
    await task
