"""What decoding costs counts in the caps, the estimates, the turns and a tenant's share."""

from __future__ import annotations

import time

import pytest

from app.admission.client import AdmissionClient, Limits
from app.admission.errors import QueueFull, TenantQueueFull
from app.admission.messages import Completed
from app.admission.worker_queue import WorkerQueue, handed_over
from app.intake.cost import COSTLY, ORDINARY, Cost
from tests.admission.fakes import Inbox, announce, answer, ask, leftovers
from tests.admission.test_caps import set_rate
from tests.admission.test_handing_over import DONE

DEAR = Cost(60, 700_000_000)


def key(settings, name):
    return f"pb1:{{{settings.namespace}}}:{name}"


async def take(queue, rows=50, costly=50, flood=(100, 100), **held):
    """The tenants of what is taken, in order."""
    taken, _ = await queue.take(rows, rows, *flood, held, costly)
    return "".join(delivery.tenant for delivery in taken)


@pytest.mark.parametrize(
    ("limits", "refusal"), [(Limits(depth=100), QueueFull), (Limits(tenant_depth=100), TenantQueueFull)]
)
async def test_a_request_counts_with_its_price_in_the_caps(settings, redis, limits, refusal):
    await announce(redis, settings)
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace, limits)
    tickets = [await ask(client, "cat", cost=DEAR) for _ in range(2)]
    with pytest.raises(refusal) as caught:
        await ask(client, "cat")
    assert 1 <= caught.value.retry_after_s <= 60
    await tickets[0].cancel()
    tickets[0] = await ask(client, "cat")
    for ticket in tickets:
        await ticket.cancel()
    assert await redis.hgetall(key(settings, "open")) == {b"depth": b"0", b"bytes": b"0"}
    assert {int(price) for price in await redis.hvals(key(settings, "backlog"))} <= {0}
    only = await ask(client, "cat", cost=Cost(1000, 1))
    assert only.admitted, "whatever it costs, the first one is"
    await client.close()


async def test_a_request_counts_with_its_price_in_the_time_to_wait(client, redis, settings):
    await announce(redis, settings)
    await set_rate(redis, settings, 20, 10)
    await ask(client, "cat", tenant="flood", cost=Cost(20, 1))
    with pytest.raises(QueueFull) as caught:
        await ask(client, "cat", tenant="flood", timeout_s=10)
    assert caught.value.retry_after_s == 3, "ten seconds of work wait, and 7 of 10 seconds may be waited"
    await ask(client, "cat", tenant="quiet", timeout_s=10)


async def test_an_answer_counts_with_its_price_in_the_rate(client, redis, settings):
    await announce(redis, settings)
    queue = WorkerQueue(redis, settings.namespace, "w", "tiny")
    first = await ask(client, "cat", cost=DEAR)
    await ask(client, "cat")
    taken, _ = await queue.take(1, 1, 8, 8, {})
    assert [delivery.id for delivery in taken] == [first.id]
    await queue.finish(taken[0], DONE)
    assert float(await redis.hget(key(settings, "rate:tiny"), "count")) == pytest.approx(60)


async def test_tenants_take_turns_by_price(client, redis, settings):
    await announce(redis, settings)
    queue = WorkerQueue(redis, settings.namespace, "w", "tiny")
    for _ in range(3):
        await ask(client, "cat", tenant="a", cost=Cost(9, 1))
    for _ in range(12):
        await ask(client, "cat", tenant="b")
    assert await take(queue) == "bbbbbbbbabbbbaa"


async def test_a_price_counts_in_what_a_flood_holds(client, redis, settings):
    await announce(redis, settings)
    queue = WorkerQueue(redis, settings.namespace, "w", "tiny")
    for _ in range(4):
        await ask(client, "cat", tenant="a", cost=Cost(9, 1))
    await ask(client, "cat", tenant="b")
    assert await take(queue, flood=(20, 4)) == "ba", "the others wait: 27 rows' worth"
    assert await take(queue, flood=(20, 4), a=9, b=1) == ""
    assert await take(queue, flood=(30, 4), a=9, b=1) == "aaa", "no flood"


async def test_a_worker_takes_costly_pictures_as_it_can(client, redis, settings):
    await announce(redis, settings)
    queue = WorkerQueue(redis, settings.namespace, "w", "tiny")
    for _ in range(3):
        await ask(client, "cat", tenant="a", cost=DEAR)
    for _ in range(2):
        await ask(client, "cat", tenant="b")
    await ask(client, "cat", tenant="c", cost=Cost(COSTLY - 1, 1))
    assert await take(queue, costly=0) == "bbc"
    assert await take(queue, costly=2) == "aa"
    assert await take(queue, costly=0) == ""


async def test_a_costly_picture_is_taken_and_never_handed_over(client, redis, settings):
    await announce(redis, settings)
    queue = WorkerQueue(redis, settings.namespace, "w", "tiny")
    inbox = Inbox(redis, queue)
    await redis.set(key(settings, "worker:w"), b"", px=60_000)
    assert await take(queue) == ""
    await ask(client, "cat", tenant="a", cost=DEAR)
    assert await inbox.read() == []
    taken, _ = await queue.take(8, 8, 8, 8, {})
    assert [delivery.cost for delivery in taken] == [DEAR]
    assert await take(queue) == ""
    await ask(client, "cat", tenant="b", cost=Cost(3, 5))
    assert [delivery.cost for delivery in await inbox.read()] == [Cost(3, 5)], "an ordinary one is"


async def test_entries_of_a_version_without_prices_are_ordinary(client, redis, settings):
    await announce(redis, settings)
    fields = {b"id": b"1", b"attempt": b"1", b"admitted_ms": b"1", b"deadline_ms": b"9", b"tenant": b"t"}
    fields |= {b"task": b"detect", b"priority": b"batch", b"events": b"", b"image": b"", b"traceparent": b""}
    delivery = handed_over(fields | {b"params": b"\x81\xa7phrases\x91\xa3cat"})
    assert delivery is not None
    assert delivery.cost == ORDINARY
    queue = WorkerQueue(redis, settings.namespace, "w", "tiny")
    ticket = await ask(client, "cat", cost=Cost(5, 1))
    await redis.hdel(key(settings, f"req:{ticket.id}"), "price")
    await redis.delete(key(settings, "backlog"))
    assert await take(queue) == "anonymous"
    await ticket.cancel()
    assert await redis.hgetall(key(settings, "open")) == {b"depth": b"0", b"bytes": b"0"}
    assert await leftovers(redis, settings) == set()


async def test_usage_counts_phrases_and_not_prices(client, start_work, redis, settings):
    await start_work()
    ticket = await ask(client, "cat", "dog", cost=Cost(5, 1), key_id="k")
    assert isinstance(await answer(ticket), Completed)
    day = int(time.time() // 86400)
    assert await redis.hget(key(settings, f"used:{day}"), "k:phrases") == b"2"
