"""Workers killed with -9 at random under load: everybody is answered, once, as if nothing had been."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import random
import signal
import sys
import time
import uuid
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from app.admission.connections import producer
from app.admission.registry import workers
from app.admission.scripts import prefix
from tests.admission.fakes import pings, until
from tests.admission.services import children, fake, http, service

COLOURS = ("red", "green", "blue", "yellow")
TIMEOUT_S = 240.0
SERVE = [sys.executable, "-m", "app.cli", "serve"]


def scene(number):
    """A circle and a square; different for each number."""
    image = Image.new("RGB", (160, 128), "white")
    draw = ImageDraw.Draw(image)
    draw.ellipse((10 + number, 20, 60 + number, 70), fill=COLOURS[number % 4])
    draw.rectangle((95, 60 - number, 135, 100 - number), fill=COLOURS[(number + 1) % 4])
    sink = io.BytesIO()
    image.save(sink, "PNG")
    return sink.getvalue()


class Fire:
    """Callers of a service whose workers are shot at."""

    def __init__(self, running, server, namespace, phrases, seed):
        self.running, self.phrases = running, phrases
        self.redis, self.prefix = producer(server.url), prefix(namespace)
        self.dice = random.Random(seed)
        self.killed, self.answers = 0, []

    async def ask(self, client, number):
        """One question, streamed every third time; notes (number, status, document)."""
        body = {
            "object": self.phrases[number % len(self.phrases)],
            "image": base64.b64encode(scene(number % 16)).decode(),
            "timeout_s": TIMEOUT_S,
            "stream": number % 3 == 0,
        }
        response = await client.post("/v1/detect", json=body, timeout=TIMEOUT_S + 30)
        document = _last_event(response.text) if body["stream"] else response.json()
        self.answers.append((number, document.get("status", response.status_code), document))

    async def callers(self, concurrency, seconds, kills):
        """They go on asking until the time is over and enough were killed."""
        end, numbers = time.monotonic() + seconds, iter(range(10**9))

        def over():
            return time.monotonic() > end and self.killed >= kills and self._calm

        async def one(client):
            while not over():
                await self.ask(client, next(numbers))

        async with http(self.running) as client:
            await asyncio.gather(*(one(client) for _ in range(concurrency)))

    @property
    def _calm(self):
        """Whether a hundred were asked for each worker killed: that one may take a lone request with it."""
        return len(self.answers) >= 100 * self.killed

    async def shoot(self, least_s, most_s, kills):
        """Kills a worker that works, again and again."""
        while self.killed < kills:
            await asyncio.sleep(self.dice.uniform(least_s, most_s))
            while not self._calm:
                await asyncio.sleep(0.05)
            live = {info.id for info in await workers(self.redis, self.prefix)}
            targets = [pid for pid in children(self.running.process.pid) if _worker_id(pid) in live]
            if targets:
                os.kill(self.dice.choice(targets), signal.SIGKILL)
                self.killed += 1

    async def counts(self):
        """How requests ended, as Redis counted."""
        return {
            k.decode(): int(n) for k, n in (await self.redis.hgetall(self.prefix + "usage:anonymous")).items()
        }

    async def undisturbed(self):
        """The answer to every question that was asked, with nobody shooting."""
        async with http(self.running) as client:
            asked = len(self.phrases) * 16
            seen = {number % asked for number, _, _ in self.answers}
            before, self.answers = self.answers, []
            for start in range(0, asked, 8):
                await asyncio.gather(*(self.ask(client, n) for n in range(start, start + 8) if n in seen))
            told, self.answers = self.answers, before
        return {number: _objects(document) for number, _, document in told}


def _last_event(text):
    """The document of an event stream, whose objects must have come one by one before, each once.

    What another worker told before it was killed may differ in the last bits.
    """
    events = [part.split("\n") for part in text.strip().split("\n\n") if not part.startswith(":")]
    named = [
        (lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))) for lines in events
    ]
    name, last = named[-1]
    if name == "done":
        told = [document for name, document in named[:-1] if name == "object"]
        assert close(_objects({"objects": told}), _objects(last))
    return last


def _objects(document):
    return [(thing["label"], thing["x_min"], thing["y_min"], thing["x_max"]) for thing in document["objects"]]


def _worker_id(pid):
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    named = [entry for entry in environ if entry.startswith(b"POINTBOX_WORKER_ID=")]
    return named[0].split(b"=")[1].decode() if named else ""


def close(one, other):
    """Equal up to the last bits of batches of other shapes."""
    return len(one) == len(other) and all(
        a[0] == b[0] and all(abs(x - y) < 0.01 for x, y in zip(a[1:], b[1:], strict=True))
        for a, b in zip(one, other, strict=True)
    )


async def under_fire(server, command, phrases, *, seconds, kills, every_s, seed):
    """Runs the service, the callers and the shooter, and judges."""
    namespace = f"fire-{uuid.uuid4().hex}"
    settings = {"REDIS_URL": server.url, "NAMESPACE": namespace, "WORKERS": "3", "PORT": "0"}
    await until(lambda: pings(server.url))
    with service(command, **{f"POINTBOX_{name}": value for name, value in settings.items()}) as running:
        await running.ready()
        fire = Fire(running, server, namespace, phrases, seed)
        least, most = kills
        shooting = asyncio.create_task(fire.shoot(*every_s, most))
        await fire.callers(24, seconds, least)
        shooting.cancel()
        await asyncio.wait({shooting})
        answered = [(number, document) for number, status, document in fire.answers if status == 200]
        crashed = [document for _, status, document in fire.answers if status != 200]
        assert fire.killed >= least
        assert len(answered) >= 0.99 * len(fire.answers), [document["type"] for document in crashed]
        assert {document["type"] for document in crashed} <= {"/problems/worker-crashed"}
        counts = await fire.counts()
        assert counts["completed"] == len(answered), "each exactly once"
        assert counts.get("crashed", 0) == len(crashed)
        expected = await fire.undisturbed()
        asked = len(phrases) * 16
        same = [close(_objects(document), expected[number % asked]) for number, document in answered]
        assert sum(same) >= 0.999 * len(same)
        assert await running.end(signal.SIGTERM) == 0
        await fire.redis.aclose()
    print(f"{len(fire.answers)} requests, {fire.killed} workers killed, {len(crashed)} not answered")


async def test_workers_die_at_random(shared_server):
    """The short form, with an engine that answers at once what is expected."""
    phrases = [f"while {n}" for n in range(4)]
    await under_fire(shared_server, fake("serve"), phrases, seconds=3, kills=(2, 2), every_s=(0.5, 2), seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
async def test_engine_workers_die_at_random_for_a_minute(shared_server, seed):
    phrases = ["red circle", "square", "blue shape", "shape"]
    await under_fire(shared_server, SERVE, phrases, seconds=60, kills=(5, 1000), every_s=(4, 12), seed=seed)


@pytest.mark.parametrize(("seconds", "poisons"), [(1, 2), pytest.param(60, 10, marks=pytest.mark.long)])
async def test_poison_takes_nobody_with_it(seconds, poisons):
    """Every poison request ends two workers; everyone beside it is answered, and the service lives."""
    with service(fake("serve"), POINTBOX_WORKERS="2") as running:
        await running.ready()
        async with http(running) as client:
            end, statuses = time.monotonic() + seconds, []

            async def ask(phrase):
                body = {
                    "object": phrase,
                    "image": base64.b64encode(scene(1)).decode(),
                    "timeout_s": TIMEOUT_S,
                }
                return await client.post("/v1/detect", json=body, timeout=TIMEOUT_S + 30)

            async def innocent():
                while time.monotonic() < end:
                    statuses.append((await ask("while")).status_code)

            asked = [asyncio.create_task(innocent()) for _ in range(12)]
            poison = [asyncio.create_task(ask("die")) for _ in range(poisons)]
            ended = await asyncio.gather(*poison)
            await asyncio.gather(*asked)
        assert [answer.json()["type"] for answer in ended] == ["/problems/worker-crashed"] * poisons
        assert set(statuses) == {200}
        assert await running.end(signal.SIGTERM) == 0
