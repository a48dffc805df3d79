"""Bodies that do not fit or do not end, answers that nobody reads, and more connections than there may be."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import structlog
import uvicorn
from litestar.types import Receive, Scope, Send

from app.connections import SPARE
from app.listening import free_port
from app.server import wired
from app.settings import Settings
from tests.admission.fakes import until
from tests.app.api import serving_api

NOWHERE = "redis://127.0.0.1:1"
MIB = 1024 * 1024
POST = b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def settings(**others: Any) -> Settings:
    return Settings(redis_url=NOWHERE, **others)


async def opened(url: str, *sent: bytes) -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
    for part in sent:
        writer.write(part)
    await writer.drain()
    return reader, writer


async def answer(connection: Connection) -> tuple[int, dict[str, str], Any]:
    """Status, headers and document of the next answer."""
    reader, _ = connection
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).decode()
    line, *fields = head.strip().splitlines()
    headers = dict(field.lower().split(": ", 1) for field in fields)
    content = await asyncio.wait_for(reader.readexactly(int(headers["content-length"])), 30)
    return int(line.split()[1]), headers, json.loads(content) if content else None


async def test_a_body_that_does_not_fit_is_refused_before_it_is_read() -> None:
    limits = settings(body_limit_bytes=3 * MIB, bodies_bytes=4 * MIB)
    async with serving_api(limits) as url:
        held = await opened(url, POST, b"Content-Length: %d\r\n\r\n" % (3 * MIB), bytes(2 * MIB))
        await asyncio.sleep(0.3)
        refused = await opened(url, POST, b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (3 * MIB))
        status, headers, document = await answer(refused)
        assert (status, headers["retry-after"]) == (503, "1")
        assert document["type"] == "/problems/unavailable"
        assert "POINTBOX_BODIES_BYTES" in document["detail"]
        assert document["request_id"] == headers["x-request-id"]
        small = await opened(url, POST, b"Content-Length: 3\r\n\r\nabc")
        assert (await answer(small))[0] == 422
        too_long = await opened(url, POST, b"Content-Length: %d\r\n\r\n" % (9 * MIB))
        assert (await answer(too_long))[0] == 413

        held[1].close()
        await asyncio.sleep(0.3)
        whole = await opened(url, POST, b"Content-Length: %d\r\n\r\n" % (3 * MIB), bytes(3 * MIB))
        assert (await answer(whole))[0] in (415, 422)


async def test_a_body_without_a_length_counts_as_it_comes() -> None:
    limits = settings(body_limit_bytes=3 * MIB, bodies_bytes=4 * MIB)
    piece = b"%x\r\n%s\r\n" % (MIB, bytes(MIB))
    async with serving_api(limits) as url:
        held = await opened(url, POST, b"Transfer-Encoding: chunked\r\n\r\n", piece, piece)
        await asyncio.sleep(0.3)
        over = await opened(url, POST, b"Transfer-Encoding: chunked\r\n\r\n", piece, piece)
        over[1].write(piece)
        status, headers, document = await answer(over)
        assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "1")
        assert "POINTBOX_BODIES_BYTES" in document["detail"]
        held[1].write(b"0\r\n\r\n")
        assert (await answer(held))[0] in (415, 422)


async def test_bodies_that_stop_half_way_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.connections.SLOW_S", 1.0)
    limits = settings(body_limit_bytes=4 * MIB, bodies_bytes=8 * MIB)
    length = b"Content-Length: %d\r\n\r\n" % (4 * MIB)
    async with serving_api(limits) as url:
        stopped = [await opened(url, POST, length, bytes(2 * MIB)) for _ in range(3)]
        await asyncio.sleep(0.3)
        assert (await answer(await opened(url, POST, length)))[0] == 503
        await asyncio.sleep(1)
        whole = await opened(url, POST, length, bytes(4 * MIB))
        assert (await answer(whole))[0] in (415, 422)
        status, _, document = await answer(stopped[0])  # the first to begin
        assert status == 503
        assert "POINTBOX_BODIES_BYTES" in document["detail"]
        for one in stopped[1:]:
            one[1].write(bytes(2 * MIB))
            assert (await answer(one))[0] in (415, 422)


async def test_a_body_that_drips_has_an_end() -> None:
    async with serving_api(settings(body_timeout_s=2.0)) as url:
        slow = await opened(url, POST, b"Content-Length: 1000\r\n\r\n")

        async def drip() -> None:
            while True:
                slow[1].write(b"x")
                await asyncio.sleep(0.2)

        dripping = asyncio.create_task(drip())
        status, _, document = await answer(slow)
        dripping.cancel()
        assert status == 408
        assert document["type"] == "/problems/invalid-request"


@asynccontextmanager
async def serving(app: Any, limits: Settings) -> AsyncIterator[str]:
    config = wired(app, limits)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    await until(lambda: server.started or running.done())
    try:
        yield f"http://127.0.0.1:{config.port}"
    finally:
        server.should_exit = True
        await running


class Streaming:
    """Answers with a body of 64 MiB in one piece, or without end in many; remembers how far it came."""

    def __init__(self) -> None:
        self.pieces = 0
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            return
        scope["state"]["request_id"] = "x"
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            if scope["path"] == "/whole":
                await send({"type": "http.response.body", "body": bytes(64 * MIB), "more_body": False})
                return
            while (await self.connected(receive)) and scope["path"] == "/endless":
                await send({"type": "http.response.body", "body": bytes(1 * MIB), "more_body": True})
                self.pieces += 1
        finally:
            self.ended.set()

    async def connected(self, receive: Receive) -> bool:
        try:
            async with asyncio.timeout(0.001):
                while True:
                    if (await receive())["type"] == "http.disconnect":
                        return False
        except TimeoutError:
            return True


@pytest.mark.parametrize("path", ["/whole", "/endless"])
async def test_an_answer_that_nobody_reads(path: str) -> None:
    app = Streaming()
    limits = settings(unread_timeout_s=1.0, port=free_port(), drain_s=1.0)
    async with serving(app, limits) as url:
        asked = socket.create_connection(("127.0.0.1", httpx.URL(url).port or 80))
        asked.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
        async with asyncio.timeout(30):
            await app.ended.wait()
        assert app.pieces < 32
        asked.settimeout(10)
        came = 0
        while piece := asked.recv(MIB):
            came += len(piece)
        assert came < 32 * MIB  # of what the kernel held
        asked.close()


async def test_a_slow_reader_gets_everything() -> None:
    async with serving(Streaming(), settings(unread_timeout_s=1.0, port=free_port(), drain_s=1.0)) as url:
        connection = await opened(url, b"GET /whole HTTP/1.0\r\nHost: localhost\r\n\r\n")
        head = await connection[0].readuntil(b"\r\n\r\n")
        assert b"transfer-encoding" not in head.lower()
        assert b"connection: close" in head.lower()
        length = 0
        while piece := await connection[0].read(4 * MIB):
            length += len(piece)
            if length < 8 * MIB:
                await asyncio.sleep(0.1)
        assert length == 64 * MIB


async def test_idle_connections_make_room() -> None:
    async with serving_api(settings(connections=4)) as url:
        kept = [await opened(url, GET) for _ in range(3)]
        assert [(await answer(one))[0] for one in kept] == [200, 200, 200]
        silent = await opened(url)
        busy = await opened(url, POST, b"Content-Length: 9\r\n\r\n")  # the first is closed for it
        assert await asyncio.wait_for(kept[0][0].read(), 10) == b""
        kept[1][1].write(GET)
        assert (await answer(kept[1]))[0] == 200
        more = [await opened(url, GET) for _ in range(20)]
        assert (await answer(more[-1]))[0] == 200
        assert await asyncio.wait_for(silent[0].read(), 10) == b""
        busy[1].write(b"123456789")
        assert (await answer(busy))[0] in (415, 422)


async def test_no_room_for_a_connection_is_told() -> None:
    async with serving_api(settings(connections=2)) as url:
        busy = [await opened(url, POST, b"Content-Length: 9\r\n\r\n") for _ in range(2)]
        await asyncio.sleep(0.2)
        status, headers, document = await answer(await opened(url, GET.replace(b"/livez", b"/schema")))
        assert (status, headers["retry-after"]) == (503, "1")
        assert "POINTBOX_CONNECTIONS" in document["detail"]
        assert (await answer(await opened(url, GET)))[0] == 200  # the probe of whoever watches the process
        silent = [await opened(url) for _ in range(3 * SPARE)]
        assert (await answer(await opened(url, GET)))[0] == 200
        for one in busy:
            one[1].write(b"123456789")
            assert (await answer(one))[0] in (415, 422)
        assert silent
        assert (await answer(await opened(url, GET.replace(b"/livez", b"/schema"))))[0] == 200


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
@pytest.mark.parametrize("together", [True, False])
async def test_an_upgrade_is_not_made_and_the_body_is_read(upgrade: str, together: bool) -> None:
    body = b'{"image": "AAAA", "object": "\xff"}'
    fields = (
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    head = b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\n" + fields.encode()
    async with serving_api(settings()) as url:
        connection = await opened(url, *([head + body + head + body + GET] if together else [head]))
        if not together:
            await asyncio.sleep(0.1)
            connection[1].write(body[:5])
            await asyncio.sleep(0.1)
            connection[1].write(body[5:] + head + body + GET)
        for _ in range(2):
            status, _, document = await answer(connection)
            assert status == 400
            assert document["detail"].startswith("The body is not JSON")
        assert (await answer(connection))[0] == 200


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"GET http://localhost/livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "slash"),
        (b"GET http://evil.example/livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "slash"),
        (b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", "slash"),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", "slash"),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "Host"),
        (b"GET /livez HTTP/1.1\r\n\r\n", "Host"),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n\r\n", "Host"),
    ],
)
async def test_targets_and_hosts_that_can_be_read_in_two_ways(head: bytes, says: str) -> None:
    async with serving_api(settings()) as url:
        status, headers, document = await answer(await opened(url, head))
    assert status == 400
    assert says in document["detail"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(("origins", "policy"), [("", "same-origin"), ("https://a.example", "cross-origin")])
async def test_headers_of_every_answer(origins: str, policy: str) -> None:
    async with serving_api(settings(cors_origins=origins)) as url, httpx.AsyncClient(base_url=url) as client:
        for path in ("/livez", "/readyz", "/", "/assets/page.css", "/nowhere", "/schema", "/v1/models"):
            response = await client.get(path)
            assert response.headers.get_list("x-content-type-options") == ["nosniff"], path
            assert response.headers.get_list("cross-origin-resource-policy") == [policy], path


async def test_http_1_0_gets_no_chunks() -> None:
    async with serving_api(settings()) as url:
        reader, _ = await opened(url, b"GET /livez HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        whole = await asyncio.wait_for(reader.read(), 10)
    head, _, content = whole.partition(b"\r\n\r\n")
    assert not re.search(rb"(?i)transfer-encoding", head)
    assert json.loads(content) == {"status": "ok"}


async def test_unknown_paths_are_logged_as_they_were_sent_and_cut() -> None:
    long = "/" + 1000 * "x"
    with structlog.testing.capture_logs() as lines:
        async with serving_api(settings()) as url:
            for path in ("/nowhere%0a%1b%5b31m%e2%80%ae", long, "/~caf\N{LATIN SMALL LETTER E WITH ACUTE}"):
                head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
                await answer(await opened(url, head))
            await asyncio.sleep(0.1)
    told = [line["path"] for line in lines if line["event"] == "request"]
    assert told == ["/nowhere%0a%1b%5b31m%e2%80%ae", long[:200] + "..."]
