"""A proxy between the API and Redis drops replies: nothing is enqueued or counted twice."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from app.admission.client import AdmissionClient, Limits
from app.admission.messages import Completed
from tests.admission.fakes import announce, answer, ask, leftovers


class Proxy:
    """Passes everything on to Redis; `drop` cuts the connection of the next reply that has `word` in it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._password = parts.password
        self._word = b""
        self.dropped = 0

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"redis://:{self._password}@127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    def drop(self, word: bytes) -> None:
        self._word = word

    def close(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(self._host, self._port)
        passing = asyncio.create_task(self._pass(reader, ours))
        try:
            while data := await theirs.read(65536):
                if self._word and self._word in data:
                    self._word = b""
                    self.dropped += 1
                    break
                writer.write(data)
        finally:
            passing.cancel()
            writer.close()
            ours.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)


@pytest.fixture
async def proxy(settings):
    proxy = Proxy(settings.redis_url)
    proxy.url = await proxy.start()
    yield proxy
    proxy.close()


async def test_a_request_whose_admission_is_not_heard_of_is_enqueued_once(proxy, start_work, redis, settings):
    await announce(redis, settings)
    client = await AdmissionClient.connect(proxy.url, settings.namespace, Limits())
    proxy.drop(b"admitted")
    ticket = await ask(client, "cat")
    assert proxy.dropped == 1
    assert await redis.xlen(f"pb1:{{{settings.namespace}}}:q:tiny:interactive:anonymous") == 1
    work = await start_work()
    assert isinstance(await answer(ticket), Completed)
    assert work.engine.runs == [("cat",)]
    assert await leftovers(redis, settings) == set()
    await client.close()


async def test_an_answer_whose_booking_is_not_heard_of_is_counted_once(
    client, proxy, start_work, redis, settings
):
    """The worker's connection breaks after `finish` ran: it repeats it, and is told that it is done."""
    work = await start_work(redis_url=proxy.url)
    ticket = await ask(client, "hold")
    while not work.engine.runs:
        await asyncio.sleep(0.01)
    scripts, finish = work.feeder._queue._scripts, []
    run = scripts.run

    async def watched(name, *arguments):
        if name == "finish":
            finish.append(name)
            if len(finish) == 1:
                proxy.drop(b":1\r\n")
        return await run(name, *arguments)

    scripts.run = watched
    work.engine.release.set()
    assert isinstance(await answer(ticket), Completed)
    while work.feeder.load:
        await asyncio.sleep(0.01)
    assert proxy.dropped == 1
    counts = await redis.hgetall(f"pb1:{{{settings.namespace}}}:usage:anonymous")
    assert counts == {b"completed": b"1"}
    assert await leftovers(redis, settings) == set()
