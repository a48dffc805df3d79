"""The API and the workers as programs of their own, with nobody who watches over them."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace

import httpx

from app.listening import free_port
from tests.admission.fakes import until
from tests.admission.services import START_S, detect, fake, picture, service

API = [sys.executable, "-m", "app.cli", "api"]


async def test_an_api_two_models_and_a_worker_that_is_killed(settings, tmp_path):
    """Without a supervisor the lease ends, and the other worker of the model answers."""
    port, gate = free_port(), tmp_path / "gate"
    environ = replace(settings, port=port).to_environ() | {"FAKE_GATE": str(gate)}
    with ExitStack() as stack:
        api = stack.enter_context(service(API, **environ))
        first, second, other = (
            stack.enter_context(service(fake("worker"), **environ | {"POINTBOX_MODEL": model}))
            for model in ("tiny", "tiny", "other")
        )
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=START_S) as client:
            await until(lambda: serves(client, {"tiny": 2, "other": 1}))
            body = {"object": "cat", "image": base64.b64encode(picture()).decode(), "model": "other"}
            assert (await client.post("/v1/detect", json=body)).json()["model"] == "other"
            asked = [asyncio.create_task(detect(client, f"hold {n}", picture(n))) for n in range(16)]
            await until(lambda: load(client, "tiny", 16))
            os.kill(first.process.pid, signal.SIGKILL)
            gate.touch()
            answers = await asyncio.gather(*asked)
            assert [answer.status_code for answer in answers] == [200] * 16
            await until(lambda: serves(client, {"tiny": 1, "other": 1}))
        for process in (second, other, api):
            assert await process.end(signal.SIGTERM) == 0


async def models(client):
    try:
        return (await client.get("/v1/models")).json()["models"]
    except (httpx.TransportError, KeyError):
        return []


async def serves(client, wanted):
    return {model["name"]: model["workers"] for model in await models(client)} == wanted


async def load(client, name, phrases):
    return sum(model["load"] for model in await models(client) if model["name"] == name) == phrases
