"""Callers are answered in time though Redis stands still or its clock is wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace

import httpx
import pytest

from app.admission import scripts
from app.admission.client import AdmissionClient
from app.admission.messages import Completed
from tests.admission.fakes import answer, ask, pings, until
from tests.admission.services import picture
from tests.app.api import serving_api

TIMEOUT_S = 1.0
SOON_S = TIMEOUT_S + 0.5
SLACK_S = 1.0
"""Of a busy machine that runs this test; without a clock of its own the API would take minutes."""


@pytest.fixture
def clock(settings, redis, monkeypatch):
    """Sets the clock of Redis, as the scripts see it, so many seconds off."""
    read = scripts._read
    key = f"pb1:{{{settings.namespace}}}:off"

    def shifted(name):
        real = "return tonumber(time[1]) * 1000"
        assert name != "common" or real in read(name)
        return read(name).replace(
            real, f"return tonumber(redis.call('GET', '{key}') or 0) + tonumber(time[1]) * 1000"
        )

    monkeypatch.setattr(scripts, "_read", shifted)

    async def set_off(seconds):
        await redis.set(key, round(seconds * 1000))

    return set_off


@pytest.mark.parametrize("off_s", [-3600, 3600])
async def test_a_clock_that_jumps(clock, settings, start_work, off_s):
    work = await start_work()
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace)
    ticket = await ask(client, "slow", timeout_s=TIMEOUT_S)
    began = time.monotonic()
    await until(lambda: work.engine.runs)
    await clock(off_s)
    assert (await answer(ticket)).problem == "deadline-exceeded"
    assert time.monotonic() < began + SOON_S + SLACK_S
    await until(lambda: work.engine.cancelled == [("slow",)])
    for phrase in ("cat", "dog", "bird"):  # the rates that were measured are of use still
        assert isinstance(await answer(await ask(client, phrase, timeout_s=20)), Completed)
    await client.close()


async def test_no_worker_ends_it_and_the_clock_is_back(clock, settings, redis, start_work):
    """Waiting, not taken: nothing in Redis ends it for an hour."""
    work = await start_work(max_batch=1)
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace)
    held = [await ask(client, "slow") for _ in range(3)]
    await until(lambda: work.feeder.load == 3)
    ticket = await ask(client, "cat", timeout_s=TIMEOUT_S)
    began = time.monotonic()
    await clock(-3600)
    assert (await answer(ticket)).problem == "deadline-exceeded"
    assert time.monotonic() < began + SOON_S + SLACK_S
    for other in held:
        await other.cancel()
    await client.close()


@pytest.mark.parametrize("what", ["admitted", "new", "stream", "replay", "upload"])
async def test_a_redis_that_stands_still(own_server, settings, start_work, what):
    await until(lambda: pings(own_server.url))
    work = await start_work(redis_url=own_server.url)
    mine = replace(settings, redis_url=own_server.url)
    body = {"object": "slow", "timeout_s": TIMEOUT_S, "stream": what == "stream"}
    async with serving_api(mine) as url, httpx.AsyncClient(base_url=url, timeout=60) as api:
        assert (
            await _post(api, body | {"object": "cat", "stream": False, "timeout_s": 60})
        ).status_code == 200
        async with _stopped(own_server) as stop:
            if what == "new":
                stop()
            began = time.monotonic()
            if what == "upload":
                stop()
                response = await api.post(
                    "/v1/images", files={"image": picture(3)}, data={"timeout_s": TIMEOUT_S}
                )
            else:
                headers = {"Idempotency-Key": "k"} if what == "replay" else {}
                if what in ("admitted", "stream"):
                    response = await _asked_then(api, body, headers, lambda: len(work.engine.runs) == 2, stop)
                else:
                    stop()
                    response = await _post(api, body, headers)
            took = time.monotonic() - began
    assert took < SOON_S + SLACK_S
    if what == "stream":
        assert response.text.rpartition("event: ")[2].startswith("error\n")
        assert "/problems/deadline-exceeded" in response.text
    else:
        assert (response.status_code, response.json()["type"]) == (504, "/problems/deadline-exceeded")


async def _asked_then(api, body, headers, condition, act):
    asked = asyncio.create_task(_post(api, body, headers))
    await until(condition)
    act()
    return await asked


async def _post(api, body, headers=None):
    fields = {name: str(value).lower() if isinstance(value, bool) else value for name, value in body.items()}
    return await api.post("/v1/detect", files={"image": picture()}, data=fields, headers=headers or {})


class _stopped:
    """Lets go on what was stopped."""

    def __init__(self, server):
        self.pid = server.process.pid

    async def __aenter__(self):
        return lambda: os.kill(self.pid, signal.SIGSTOP)

    async def __aexit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)
