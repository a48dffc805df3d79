"""What nobody can read lies in every key and stream: requests are answered, and it is counted."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from app.admission import unreadable
from app.admission.messages import Completed
from app.supervised import RESTARTS, supervised
from tests.admission.fakes import answer, ask, until
from tests.app.api import serving_api

GARBAGE = b"\xff\xfe not msgpack \x00"


@pytest.fixture
def prefix(settings):
    return f"pb1:{{{settings.namespace}}}:"


@pytest.fixture(autouse=True)
def counted():
    unreadable.READINGS.clear()
    yield unreadable.READINGS
    unreadable.READINGS.clear()


async def _write_records(redis, prefix):
    """A worker of another version, a name that is no text, and counts that are no numbers."""
    await redis.sadd(f"{prefix}workers", "newer", b"\xff\xfe")
    await redis.set(f"{prefix}worker:newer", GARBAGE, ex=100)
    await redis.set(f"{prefix}worker:".encode() + b"\xff\xfe", b"\x80", ex=100)
    await redis.zadd(f"{prefix}models", {b"\xff\xfe": 9e15})
    await redis.hset(f"{prefix}counts", b"\xff\xfe", b"many")


async def test_records_that_cannot_be_read_are_left_out(settings, redis, prefix, start_work, counted):
    await start_work()
    async with serving_api(settings) as url, httpx.AsyncClient(base_url=url, timeout=60) as api:
        await _write_records(redis, prefix)
        seen = counted["worker"]
        await until(lambda: counted["worker"] > seen + 2)  # the watcher met them again and goes on
        models = (await api.get("/v1/models")).json()["models"]
        assert [(model["name"], model["workers"]) for model in models] == [("tiny", 1)]
        assert (await api.get("/readyz")).status_code == 200
        form = {"files": {"image": b"GIF89a"}, "data": {"object": "cat", "model": "nobody"}}
        assert (await api.post("/v1/detect", **form)).status_code < 500
        metrics = (await api.get("/metrics")).text
    assert 'pointbox_unreadable_records_total{kind="worker"}' in metrics
    assert "pointbox_queue_up 1.0" in metrics


async def test_a_request_is_answered_beside_unreadable_workers(client, redis, prefix, start_work):
    await start_work()
    await _write_records(redis, prefix)
    assert isinstance(await answer(await ask(client, "cat")), Completed)
    assert await client.ready() == (True, "")


@pytest.mark.parametrize(
    "fields",
    [
        {b"what": GARBAGE},
        {b"id": GARBAGE, b"attempt": b"1", b"seq": b"1", b"event": b""},
        {b"id": b"ID", b"attempt": b"one", b"seq": b"1", b"event": GARBAGE},
        {b"id": b"ID", b"attempt": b"1", b"seq": b"1", b"event": GARBAGE},
    ],
)
async def test_entries_of_the_reply_stream(client, redis, start_work, fields, counted):
    work = await start_work()
    ticket = await ask(client, "hold")
    fields = {key: ticket.id.encode() if value == b"ID" else value for key, value in fields.items()}
    await redis.xadd(client._reply, fields)
    await until(lambda: counted["reply"] == 1)
    work.engine.release.set()
    assert isinstance(await answer(ticket), Completed)


async def test_entries_of_the_inbox(client, redis, prefix, start_work, counted):
    work = await start_work()
    inbox = f"{prefix}inbox:{work.feeder.id}"
    await redis.xadd(inbox, {b"what": GARBAGE})
    await redis.xadd(inbox, {b"id": GARBAGE, b"attempt": GARBAGE})
    await redis.xadd(inbox, {b"id": b"x", b"attempt": b"1", b"params": GARBAGE})
    await until(lambda: counted["inbox"] == 3)
    assert isinstance(await answer(await ask(client, "cat")), Completed)
    assert not work.task.done()


async def test_entries_of_the_queue(client, redis, prefix, start_work):
    work = await start_work()
    first = await ask(client, "hold")  # so that its lane exists
    await until(lambda: work.engine.runs)
    lane = f"{prefix}q:tiny:interactive:anonymous"
    await redis.xadd(lane, {b"what": GARBAGE})
    await redis.xadd(lane, {b"v": b"1"})
    second = await ask(client, "cat")
    assert isinstance(await answer(second), Completed)
    work.engine.release.set()
    assert isinstance(await answer(first), Completed)
    assert await redis.hget(f"{prefix}counts", "unreadable") == b"2"


async def test_a_request_that_no_worker_can_read_ends(client, redis, prefix, start_work, counted):
    """It waits while the worker is away, and what it asks for is overwritten."""
    work = await start_work(max_batch=1)
    held = [await ask(client, "hold") for _ in range(3)]
    await until(lambda: work.feeder.load == 3)
    ticket = await ask(client, "cat")
    lane = f"{prefix}q:tiny:interactive:anonymous"
    entry, fields = (await redis.xrevrange(lane, count=1))[0]
    await redis.xdel(lane, entry)
    await redis.xadd(lane, {**fields, b"params": GARBAGE})
    await redis.hset(f"{prefix}req:{ticket.id}", "entry", (await redis.xrevrange(lane, count=1))[0][0])
    work.engine.release.set()
    assert (await answer(ticket)).problem == "internal"
    assert counted["request"] == 1
    for other in held:
        assert isinstance(await answer(other), Completed)
    assert isinstance(await answer(await ask(client, "dog")), Completed)


async def test_an_answer_that_cannot_be_read(client, redis, prefix, start_work, counted):
    await start_work()
    ticket = await ask(client, "hold")
    await redis.delete(f"{prefix}req:{ticket.id}")
    await redis.set(f"{prefix}result:{ticket.id}", GARBAGE)
    assert (await answer(ticket)).problem == "internal"
    assert counted["answer"]


async def test_the_watcher_goes_on_after_what_nobody_expected(client, start_work, monkeypatch):
    await start_work()
    calls = []
    settle = client._settle

    def fails_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("nobody expected this")
        settle(*arguments)

    monkeypatch.setattr(client, "_settle", fails_once)
    before = RESTARTS["admission-watch"]
    await until(lambda: len(calls) > 2)
    assert RESTARTS["admission-watch"] == before + 1
    assert isinstance(await answer(await ask(client, "cat")), Completed)


async def test_a_supervised_task_ends_when_it_returns_or_is_cancelled():
    async def short():
        return None

    await supervised("short", short)
    task = asyncio.create_task(supervised("long", lambda: asyncio.sleep(1000)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
