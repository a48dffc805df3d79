"""The real service: API, Redis, and the engine with the default model."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
from PIL import Image, ImageDraw

from app.admission.connections import producer
from tests.admission.fakes import Server, pings, until
from tests.admission.services import Service, detect, http, service
from tests.models.adapters import TEXT, Recipe, write_adapter
from tests.models.checkpoints import TINY

COLOURS = ("red", "green", "blue", "yellow")
PHRASES = ("red circle", "blue square", "circle", "shape")


def scene(number: int) -> bytes:
    """A circle and a square; different for each number."""
    image = Image.new("RGB", (160, 128), "white")
    draw = ImageDraw.Draw(image)
    draw.ellipse((10 + number, 20, 60 + number, 70), fill=COLOURS[number % 4])
    draw.rectangle((95, 60 + number, 135, 100 + number), fill=COLOURS[number // 4 % 4])
    sink = io.BytesIO()
    image.save(sink, "PNG")
    return sink.getvalue()


@pytest.fixture(scope="module")
def namespace() -> str:
    return f"real-{os.getpid()}"


@pytest.fixture(scope="module")
def running(
    shared_server: Server, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """With few rows and an adapter; `ready` is to be awaited. In the end it must obey SIGTERM."""
    folder = write_adapter(tmp_path_factory.mktemp("adapters") / "mine", TINY, Recipe(TEXT, strength=1.0))
    settings = {"REDIS_URL": shared_server.url, "NAMESPACE": namespace, "MAX_BATCH": "4", "PORT": "0"}
    environ = {f"POINTBOX_{name}": value for name, value in settings.items()}
    asyncio.run(until(lambda: pings(shared_server.url)))
    command = [sys.executable, "-m", "app.cli", "serve", "--adapter", f"mine={folder}"]
    with service(command, **environ) as running:
        yield running
        assert asyncio.run(running.end(signal.SIGTERM)) == 0


async def test_kill_9_of_the_engine_worker_while_20_requests_wait(shared_server, namespace, running):
    """Three wide requests on few rows: one is in the engine when it dies, the others wait in Redis."""
    redis = producer(shared_server.url)
    prefix = f"pb1:{{{namespace}}}:"

    async def in_the_engine() -> bool:
        states = [await redis.hget(key, "state") for key in await redis.keys(prefix + "req:*")]
        return b"taken" in states

    async def all_admitted() -> bool:
        return int(await redis.hget(prefix + "open", "depth")) == 20

    async def counted() -> Counter[bytes]:
        counts = await redis.hgetall(prefix + "usage:anonymous")
        return Counter({name: int(count) for name, count in counts.items()})

    await running.ready()
    worker, before = running.child("app.cli worker"), await counted()
    async with http(running) as client:
        asked = [asyncio.create_task(detect(client, [PHRASES[n]] * 12, scene(n))) for n in range(3)]
        await until(in_the_engine)
        os.kill(worker, signal.SIGSTOP)
        asked += [asyncio.create_task(detect(client, PHRASES[n % 4], scene(n))) for n in range(3, 20)]
        await until(all_admitted)
        assert await in_the_engine()
        os.kill(worker, signal.SIGKILL)
        answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [200] * 20
    labels = [answer.json()["phrases"][0]["object"] for answer in answers]
    assert labels == [PHRASES[n % 4] for n in range(20)]
    assert await counted() - before == {b"completed": 20}
    await redis.aclose()


async def test_an_adapter_is_chosen_by_request(running):
    await running.ready()
    async with http(running) as client:

        async def ask(**more: str) -> httpx.Response:
            query = {"object": "shape", "dedupe": "false", **more}
            headers = {"content-type": "image/png"}
            return await client.post("/v1/detect", params=query, content=scene(1), headers=headers)

        (model,) = (await client.get("/v1/models")).json()["models"]
        assert model["adapters"] == ["mine"]
        plain, adapted = await asyncio.gather(ask(), ask(adapter="mine"))
        assert plain.status_code == adapted.status_code == 200
        assert plain.json()["objects"] != adapted.json()["objects"]
        unknown = await ask(adapter="yours")
        assert unknown.status_code == 404
        problem = unknown.json()
        assert (problem["type"], problem["field"]) == ("/problems/unknown-model", "adapter")
        assert "mine" in problem["detail"]
