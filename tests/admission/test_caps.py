"""How much is admitted, how late it may be, and what is said to the rest."""

from __future__ import annotations

import asyncio

import pytest

from app.admission.client import AdmissionClient, Limits
from app.admission.errors import QueueFull, TenantQueueFull
from tests.admission.fakes import (
    announce,
    answer,
    ask,
    leftovers,
    until,
)


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        (Limits(depth=3), QueueFull),
        (Limits(tenant_depth=3), TenantQueueFull),
        (Limits(bytes=250), QueueFull),
        (Limits(tenant_bytes=250), TenantQueueFull),
    ],
)
async def test_caps_on_depth_and_bytes(settings, redis, limits, refusal):
    await announce(redis, settings)
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace, limits)
    by_bytes = min(limits.bytes, limits.tenant_bytes) == 250
    tickets = [await ask(client, "cat", image=bytes([n]) * 100) for n in range(2 if by_bytes else 3)]
    with pytest.raises(refusal) as caught:
        await ask(client, "cat", image=b"z" * 100)
    assert 1 <= caught.value.retry_after_s <= 60
    if by_bytes:
        tickets.append(await ask(client, "dog", image=bytes([0]) * 100))  # those bytes are there already
    if refusal is TenantQueueFull:
        tickets.append(await ask(client, "cat", tenant="other", image=b"z" * 100))
    for ticket in tickets:
        await ticket.cancel()
    await ask(client, "cat", image=b"z" * 100)
    await client.close()


async def set_rate(redis, settings, answers, seconds, lane=""):
    now, _ = await redis.time()
    rate = {"count": answers, "ms": seconds * 1000, "at": now * 1000}
    await redis.hset(f"pb1:{{{settings.namespace}}}:rate:tiny{lane}", mapping=rate)


async def test_retry_after_follows_the_measured_rate(settings, redis):
    await announce(redis, settings)
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace, Limits(depth=50))
    for _ in range(50):
        await ask(client, "cat")
    await set_rate(redis, settings, 100, 10)
    with pytest.raises(QueueFull) as caught:
        await ask(client, "cat")
    assert caught.value.retry_after_s == 5
    await client.close()


async def test_who_cannot_be_answered_in_time_hears_so_at_once(client, redis, settings):
    await announce(redis, settings)
    await set_rate(redis, settings, 20, 10)
    for _ in range(20):
        await ask(client, "cat", tenant="flood")
    with pytest.raises(QueueFull) as caught:
        await ask(client, "cat", tenant="flood", timeout_s=10)
    assert caught.value.retry_after_s == 3, "ten seconds of work wait, and 7 of 10 seconds may be waited"
    await ask(client, "cat", tenant="flood", timeout_s=20)
    await ask(client, "cat", tenant="quiet", timeout_s=10)
    with pytest.raises(QueueFull):
        await ask(client, "cat", tenant="quiet", timeout_s=10, priority="batch")
    for _ in range(6):
        await ask(client, "cat", tenant="quiet")
    with pytest.raises(TenantQueueFull):
        await ask(client, "cat", tenant="quiet", timeout_s=8)


async def test_who_is_held_back_hears_by_the_rate_of_its_own_lane(client, redis, settings):
    await announce(redis, settings)
    await set_rate(redis, settings, 100, 10)
    await set_rate(redis, settings, 20, 10, lane=":interactive:flood")
    for _ in range(20):
        await ask(client, "cat", tenant="flood")
    await ask(client, "cat", tenant="quiet", timeout_s=10)
    with pytest.raises(TenantQueueFull) as caught:
        await ask(client, "cat", tenant="flood", timeout_s=10)
    assert caught.value.retry_after_s == 3
    await ask(client, "cat", tenant="quiet", timeout_s=10)


async def test_the_rate_is_measured_while_requests_wait(client, start_work, redis, settings):
    key = f"pb1:{{{settings.namespace}}}:rate:tiny"
    work = await start_work(max_batch=2)
    for _ in range(3):
        await answer(await ask(client, "cat"))
    assert await redis.hget(key, "count") is None, "nobody waited"
    tickets = [await ask(client, "hold") for _ in range(12)]
    await asyncio.sleep(0.5)
    work.engine.release.set()
    await asyncio.gather(*map(answer, tickets))
    counted, ms = (float(n) for n in await redis.hmget(key, "count", "ms"))
    assert 0 < counted < 12
    assert ms > 400
    assert {int(n) for n in await redis.hvals(f"pb1:{{{settings.namespace}}}:waiting")} <= {0}


async def test_a_refused_request_sends_no_image(settings, redis):
    await announce(redis, settings)
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace, Limits(depth=1))
    await ask(client, "cat", image=b"first")
    with pytest.raises(QueueFull):
        await ask(client, "cat", image=b"second")
    assert len(await redis.keys(f"pb1:{{{settings.namespace}}}:image:*")) == 1
    await client.close()


async def test_a_request_that_nobody_takes_ends_at_its_deadline(client, redis, settings):
    await announce(redis, settings)
    ticket = await ask(client, "cat", timeout_s=0.3)
    assert (await answer(ticket)).problem == "deadline-exceeded"
    assert await leftovers(redis, settings) == set()


async def test_a_worker_that_overruns_the_deadline_is_stopped(client, start_work, redis, settings):
    work = await start_work()
    ticket = await ask(client, "slow", timeout_s=0.5)
    assert (await answer(ticket)).problem == "deadline-exceeded"
    await until(lambda: work.engine.cancelled == [("slow",)])
    assert await leftovers(redis, settings) == set()


async def test_the_engine_is_told_the_deadline(client, start_work):
    work = await start_work()
    asked = asyncio.get_running_loop().time()
    await answer(await ask(client, "cat", timeout_s=7))
    assert work.engine.deadlines[0] == pytest.approx(asked + 7, abs=1.5)
