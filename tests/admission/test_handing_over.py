"""A request for which a worker waits is handed to it as it is admitted."""

from __future__ import annotations

import asyncio

import pytest

from app.admission.messages import Completed, Metrics, WorkerInfo
from app.admission.worker_queue import WorkerQueue, report_gone
from tests.admission.fakes import Inbox, answer, ask, leftovers, until

DONE = Completed(model="tiny", width=1, height=1, objects=[], finish_reasons=["stop"], metrics=Metrics())


class Worker:
    """One side of the queue by hand."""

    def __init__(self, redis, settings, name="w1"):
        self.name = name
        self.queue = WorkerQueue(redis, settings.namespace, name, "tiny")
        self.inbox = Inbox(redis, self.queue)

    async def beat(self, *held):
        info = WorkerInfo(
            id=self.name, version="0", name="tiny", family="f", revision="0", tasks=[], capacity=8, load=0
        )
        return await self.queue.beat(info, [delivery.key for delivery in held])

    async def take(self, rows=8, batch_rows=8):
        """What was waiting. When nothing was, the worker waits itself."""
        taken, _ = await self.queue.take(rows, batch_rows, 8, 8, {})
        return taken

    async def waits(self, rows=8, batch_rows=8):
        await self.beat()
        assert await self.take(rows, batch_rows) == []
        return self


@pytest.fixture
def worker(redis, settings):
    return lambda name="w1": Worker(redis, settings, name)


async def test_the_next_request_is_handed_over_and_the_one_after_it_waits(client, worker, redis, settings):
    one = await worker().waits()
    first = await ask(client, "cat", tenant="me", priority="batch", timeout_s=30)
    second = await ask(client, "dog")
    (delivery,) = await one.inbox.read()
    assert (delivery.id, delivery.attempt, delivery.tenant, delivery.task) == (first.id, 1, "me", "detect")
    assert (delivery.priority, delivery.events, delivery.params.phrases) == ("batch", True, ["cat"])
    assert delivery.queue_ms == 0
    assert 0 < delivery.deadline - asyncio.get_running_loop().time() <= 30
    assert await one.queue.image(delivery) == b"an image"
    (other,) = await one.take()
    assert other.id == second.id
    assert await one.inbox.read() == []
    for held in (delivery, other):
        assert await one.queue.finish(held, DONE)
    assert [await answer(first), await answer(second)] == [DONE, DONE]
    assert await leftovers(redis, settings) == set()


async def test_the_worker_with_the_most_room_gets_it(client, worker):
    small, large = await worker("w1").waits(rows=2), await worker("w2").waits(rows=5)
    for _ in range(2):
        await ask(client, "cat")
    assert (len(await large.inbox.read()), len(await small.inbox.read())) == (1, 1)


async def test_nothing_is_handed_over_for_which_there_is_no_room(client, worker):
    one = await worker().waits(batch_rows=0)
    await ask(client, "cat", priority="batch")
    assert await one.inbox.read() == []
    assert len(await one.take()) == 1


async def test_nobody_passes_those_who_wait(client, worker, redis, settings):
    """The older request was given back: another lane than its own must not overtake it."""
    one = await worker("w1").waits()
    await ask(client, "cat", tenant="first")
    two = await worker("w2").waits()
    await one.queue.leave()
    await ask(client, "dog", tenant="second")
    assert await two.inbox.read() == []


async def test_a_worker_that_was_silent_too_long_gets_nothing(client, worker, redis, settings):
    one, two = await worker("w1").waits(rows=8), await worker("w2").waits(rows=2)
    await report_gone(redis, settings.namespace, "w1")
    await ask(client, "cat")
    assert len(await two.inbox.read()) == 1
    assert await one.inbox.read() == []


async def test_a_worker_whose_beat_is_late_gets_nothing(client, worker, redis, settings):
    late, fresh = await worker("w1").waits(rows=8), await worker("w2").waits(rows=2)
    await redis.pexpire(f"pb1:{{{settings.namespace}}}:worker:w1", 1400)
    await ask(client, "cat")
    assert (len(await late.inbox.read()), len(await fresh.inbox.read())) == (0, 1)


async def test_nothing_stays_of_a_worker_that_waited(worker, redis, settings):
    await worker("w1").waits()
    idle = f"pb1:{{{settings.namespace}}}:idle:1:tiny:interactive"
    assert await redis.zrange(idle, 0, -1) == [b"w1"]
    assert 0 < await redis.pttl(idle) <= 60_000
    await report_gone(redis, settings.namespace, "w1")
    assert not await redis.exists(idle)


async def test_a_worker_that_refuses_gets_nothing(client, worker):
    one = await worker().waits()
    await one.queue.refuse()
    await ask(client, "cat")
    assert await one.inbox.read() == []


async def test_a_worker_that_leaves_gives_back_what_it_has_not_heard_of(client, worker, redis, settings):
    one = await worker("w1").waits()
    ticket = await ask(client, "cat")
    await one.queue.leave()
    two = worker("w2")
    lost, _ = await two.beat()
    assert lost
    delivery = await two.queue.reclaim()
    assert (delivery.id, delivery.attempt) == (ticket.id, 2)
    assert await two.queue.finish(delivery, DONE)
    assert await answer(ticket) == DONE
    assert await leftovers(redis, settings) == set()


async def test_what_a_dying_worker_has_not_heard_of_is_redelivered(client, worker, redis, settings):
    await worker("w1").waits()
    ticket = await ask(client, "cat")
    await report_gone(redis, settings.namespace, "w1")
    delivery = await worker("w2").queue.reclaim()
    assert (delivery.id, delivery.attempt) == (ticket.id, 2)


async def test_a_request_that_runs_alone_stays_alone(client, worker, redis, settings):
    """Whoever reclaims one waits for no other, and does not reclaim while another is on its way to it."""
    one, two = await worker("w1").waits(rows=8), await worker("w2").waits(rows=2)
    lost, heard = await ask(client, "cat"), await ask(client, "dog")
    await report_gone(redis, settings.namespace, "w1")
    assert await two.queue.reclaim() is None, "it does not know of the dog yet"
    (dog,) = await two.inbox.read()
    assert dog.id == heard.id
    assert await two.queue.finish(dog, DONE)
    await two.waits()
    cat = await two.queue.reclaim()
    assert cat.id == lost.id
    await ask(client, "bird")
    assert await two.inbox.read() == []
    assert await one.inbox.read() == []


async def test_a_busy_worker_that_must_empty_itself_gets_no_more(client, worker, redis, settings):
    await worker("w1").waits(rows=8)
    await ask(client, "cat")
    two = await worker("w2").waits()
    await ask(client, "dog")
    (dog,) = await two.inbox.read()
    assert await two.take() == []
    await report_gone(redis, settings.namespace, "w1")
    lost, _ = await two.beat(dog)
    assert lost
    await ask(client, "bird")
    assert await two.inbox.read() == []


async def test_workers_of_another_version_are_left_alone(client, worker, redis, settings, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("app.admission.worker_queue.ENTRY_VERSION", "2")
        one = await worker().waits()
    await ask(client, "cat")
    assert await one.inbox.read() == []


async def test_a_worker_gets_a_request_that_is_cancelled_before_it_heard_of_it(client, start_work):
    """And then the cancellation, in this order."""
    work = await start_work()
    tickets = [await ask(client, "slow") for _ in range(3)]
    await asyncio.gather(*(ticket.cancel() for ticket in tickets))
    done = await answer(await ask(client, "cat"))
    assert isinstance(done, Completed)
    await until(lambda: work.feeder.load == 0)
