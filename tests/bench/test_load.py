"""Our load client, and the whole load measurement in small."""

from __future__ import annotations

import asyncio

import pytest

from bench.caller import Caller, Reply
from bench.load import Fate, _fate, run


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says how many bytes came; hangs up when told to."""
    while head := await reader.readuntil(b"\r\n\r\n"):
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        if body == b"bye":
            writer.close()
            return
        text = b"%d" % len(body)
        writer.write(b"HTTP/1.1 200 OK\r\nX-Test: Yes\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))


async def test_a_caller_keeps_connections_and_uses_none_twice_at_a_time() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    caller = Caller(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    replies = await asyncio.gather(*(caller.post("/", b"x" * size, {"a": "b"}) for size in range(4)))
    assert [reply.body for reply in replies] == [b"0", b"1", b"2", b"3"]
    assert replies[0] == Reply(200, {"x-test": "Yes", "content-length": "1"}, b"0")
    assert len(caller._idle) == 4
    await caller.post("/", b"", {})
    assert len(caller._idle) == 4
    with pytest.raises(EOFError):
        await caller.post("/", b"bye", {})
    assert len(caller._idle) == 3
    caller.close()
    server.close()


@pytest.mark.parametrize(
    ("reply", "fate"),
    [
        (Reply(200, {}, b'{"finish_reason": "stop"}'), "answered"),
        (Reply(200, {}, b'{"finish_reason": "deadline"}'), "missed its deadline"),
        (Reply(504, {}, b""), "missed its deadline"),
        (Reply(503, {"retry-after": "3"}, b""), "refused"),
        (Reply(429, {"retry-after": "3"}, b""), "refused"),
        (Reply(503, {}, b""), "refused without Retry-After"),
        (Reply(500, {"retry-after": "3"}, b""), "failed with 500"),
        (Reply(422, {}, b""), "failed with 422"),
    ],
)
def test_what_becomes_of_a_request(reply: Reply, fate: Fate) -> None:
    assert _fate(reply) == fate


def test_everybody_is_answered_or_refused_politely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.load.PICTURES", 20)
    told: list[str] = []
    load = run(2, 2, 60, told.append)
    assert len(told) == 4
    assert set(load.fates) <= {"answered", "refused"}
    assert sum(load.fates.values()) == round(load.offered * 2)
    assert load.missed_share == 0
    assert min(load.memory_mb) > 100
    assert load.as_json()["goodput_share"] == load.goodput_share
