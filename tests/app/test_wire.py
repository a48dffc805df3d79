"""What is not HTTP, or too much of it, gets a problem document too, and the service goes on."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from app.http import HEAD_BYTES
from app.settings import Settings
from tests.app.api import serving_api
from tests.app.asking import told

GET = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
LONG = b"x" * HEAD_BYTES


def refusal(answer: bytes) -> tuple[int, dict[str, Any]]:
    """Status and problem document."""
    head, _, content = answer.partition(b"\r\n\r\n")
    line, *fields = head.decode().splitlines()
    headers = dict(field.lower().split(": ", 1) for field in fields)
    document = json.loads(content)
    status = int(line.split()[1])
    assert headers["content-type"] == "application/problem+json"
    assert int(headers["content-length"]) == len(content)
    assert document["status"] == status
    assert document["request_id"] == headers["x-request-id"]
    assert document["type"] == "/problems/invalid-request"
    return status, document


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/models?x=" + LONG + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/models?x=" + 4 * LONG,
        GET + b"X-A: " + LONG + b"\r\n\r\n",
        GET + b"".join(b"X-%d: %s\r\n" % (n, LONG[:1000]) for n in range(70)),
        GET + b"X-A: " + 9 * LONG,
    ],
    ids=["long query", "endless query", "long header", "many headers", "endless header"],
)
def test_a_head_that_is_too_long(client: httpx.Client, head: bytes) -> None:
    pieces = [head[n : n + 10_000] for n in range(0, len(head), 10_000)]
    for parts in ([head], pieces):
        status, document = refusal(told(client, *parts))
        assert status == 431
        assert "65,536 bytes" in document["detail"]
    assert client.get("/livez").status_code == 200


@pytest.mark.parametrize("size", [1_000, 60_000])
def test_a_head_below_the_limit_in_pieces(client: httpx.Client, size: int) -> None:
    head = GET + b"Connection: close\r\nX-A: " + LONG[:size] + b"\r\n\r\n"
    answer = told(client, *(head[n : n + 7_000] for n in range(0, len(head), 7_000)))
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_long_body_and_the_next_request_in_one_piece(client: httpx.Client) -> None:
    body = b"x" * 200_000
    post = b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    answer = told(client, post + length + body + GET, b"Connection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"415", b"200"]


@pytest.mark.parametrize(
    "nonsense",
    [
        b"hello\r\n\r\n",
        b"FETCH /v1/models HTTP/1.1\r\n\r\n",
        b"GET /v1/models HTTP/9.9\r\n\r\n",
        GET + b"Content-Length: many\r\n\r\n",
        GET + b"no colon\r\n\r\n",
        GET + b"A\0B: c\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_no_http(client: httpx.Client, nonsense: bytes) -> None:
    status, document = refusal(told(client, nonsense))
    assert status == 400
    assert document["detail"] == "This is no HTTP request that can be read."
    assert client.get("/livez").status_code == 200


async def statuses(url: str, *sent: bytes) -> list[int]:
    """Of the answers to these bytes, a little apart, once the service has ended the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
    for part in sent:
        writer.write(part)
        await asyncio.sleep(0.2)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    if b" 408 " in answer:
        refusal(answer[answer.rindex(b"HTTP/1.1 408 ") :])
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+) ", answer)]


async def test_a_request_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.http.HEAD_S", 3.0)
    monkeypatch.setattr("app.http.PAUSE_S", 3.0)
    whole = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    post = b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
    async with serving_api(Settings(redis_url="redis://127.0.0.1:1")) as url:
        ended = await asyncio.gather(
            statuses(url),
            statuses(url, b"\r\n"),
            statuses(url, whole[:20]),
            statuses(url, whole, whole[:20]),
            statuses(url, whole, b"\r\n"),
            statuses(url, post + b"Content-Length: 9\r\n\r\n", *(b"%d" % n for n in range(5))),
        )
    assert ended == [[408], [408], [408], [200, 408], [200], [408]]
