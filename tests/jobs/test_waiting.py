"""A job that cannot go on says what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from app.admission.client import AdmissionClient
from app.jobs.errors import StoreAway
from app.jobs.queued import QueueAnswerer
from app.jobs.records import JobSpec
from app.settings import Settings
from tests.access.serving import serving
from tests.admission.fakes import PATIENCE_S, FakeEngine, Work
from tests.jobs.folders import stores

ASKED = {"source": {"store": "in"}, "out": {"store": "out"}, "objects": ["cat"]}


async def says(client: httpx.AsyncClient, job: str, reason: str) -> None:
    """Polls until the job does, alone and in the list."""
    shown = listed = ""
    async with asyncio.timeout(PATIENCE_S):
        while shown != reason or listed != reason:
            await asyncio.sleep(0.1)
            shown = (await client.get(f"/v1/jobs/{job}")).json()["reason"]
            listed = (await client.get("/v1/jobs")).json()["jobs"][-1]["reason"]


async def test_workers_and_models_that_are_not_there(
    settings: Settings, tmp_path: Path, start_work: Callable[..., Awaitable[Work]]
) -> None:
    changed = replace(settings, auth="off", data_dir=str(tmp_path / "data"), stores=stores(tmp_path))
    async with serving(changed) as api:
        answer = await api.client.post("/v1/jobs", json=ASKED | {"model": "tiny"})
        assert answer.status_code == 201, "nothing is known of models before the first worker comes"
        job = answer.json()["id"]
        await says(api.client, job, "waits for a worker: none is running")
        tiny = await start_work()
        await says(api.client, job, "waits for a worker that runs jobs: there is none")
        second = await start_work(stores=changed.stores)
        await says(api.client, job, "")
        await start_work(FakeEngine("other"))
        await tiny.drain()
        await second.drain()
        await says(api.client, job, "waits for a worker that serves the model 'tiny': there is none")
        again = await api.client.post("/v1/jobs", json=ASKED | {"model": "tiny"})
        assert again.status_code == 201, "a worker that left a moment ago may come back"
        unknown = await api.client.post("/v1/jobs", json=ASKED | {"model": "cat"})
        assert unknown.json()["detail"] == "There is no model 'cat'; there are other, tiny."
        await api.client.post(f"/v1/jobs/{job}/cancel")
        await says(api.client, job, "")


async def test_a_model_that_left_holds_up_no_runner(
    settings: Settings, start_work: Callable[..., Awaitable[Work]]
) -> None:
    """Its job is put back, so that jobs for other models get their turn."""
    await start_work(FakeEngine("other"))
    client = await AdmissionClient.connect(settings.redis_url or "", settings.namespace)
    spec = JobSpec(source="in", task="detect", phrases=["cat"], model="tiny", revision="0")
    answerer = QueueAnswerer(client, "anonymous", "", 1)
    with pytest.raises(StoreAway, match="no worker serves the model 'tiny'"):
        await asyncio.wait_for(answerer.answer("a.png", b"an image", ["cat"], spec), PATIENCE_S)
    await client.close()
