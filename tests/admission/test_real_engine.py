"""The real service: API, Redis, and the engine with the default model."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys

from PIL import Image, ImageDraw

from app.admission.connections import producer
from tests.admission.fakes import pings, until
from tests.admission.services import detect, http, service

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


async def test_kill_9_of_the_engine_worker_while_20_requests_wait(shared_server):
    """Few rows, so that most wait in Redis and some are in the engine when it dies."""
    namespace = f"real-{os.getpid()}"
    settings = {"REDIS_URL": shared_server.url, "NAMESPACE": namespace, "MAX_BATCH": "4", "PORT": "0"}
    environ = {f"POINTBOX_{name}": value for name, value in settings.items()}
    await until(lambda: pings(shared_server.url))
    redis = producer(shared_server.url)
    usage = f"pb1:{{{namespace}}}:usage:anonymous"

    async def answered() -> int:
        return int(await redis.hget(usage, "completed") or 0)

    with service([sys.executable, "-m", "app.cli", "serve"], **environ) as running:
        await running.ready()
        worker = running.child("app.cli worker")
        async with http(running) as client:
            asked = [
                asyncio.create_task(detect(client, PHRASES[n % 4], scene(n), timeout_s=60)) for n in range(20)
            ]
            await until(answered)
            os.kill(worker, signal.SIGKILL)
            assert await answered() < 20
            answers = await asyncio.gather(*asked)
        assert [answer.status_code for answer in answers] == [200] * 20
        assert [answer.json()["phrases"][0]["object"] for answer in answers] == [
            PHRASES[n % 4] for n in range(20)
        ]
        assert await redis.hgetall(usage) == {b"completed": b"20"}
        assert await running.end(signal.SIGTERM) == 0
    await redis.aclose()
