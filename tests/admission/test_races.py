"""Cancel against finish, old attempts against new ones, one id submitted twice."""

from __future__ import annotations

import asyncio
import contextlib
import uuid

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from app.admission.client import AdmissionClient
from app.admission.messages import (
    Completed,
    Failure,
    Metrics,
    ObjectEvent,
    PhraseEvent,
    WorkerInfo,
    encode,
)
from app.admission.worker_queue import WorkerQueue, report_gone
from tests.admission.fakes import (
    announce,
    answer,
    ask,
    leftovers,
    until,
)

CANCELLED = Failure(problem="cancelled", detail="The request was cancelled.")


@pytest.fixture
def queue_of(redis, settings):
    """The worker's side of the queue by hand."""
    return lambda worker: WorkerQueue(redis, settings.namespace, worker, "tiny")


def info(worker):
    return WorkerInfo(
        id=worker, version="0", name="tiny", family="fake", revision="0", tasks=["detect"], capacity=8, load=0
    )


def completed(*boxes):
    return Completed(
        model="tiny",
        width=6,
        height=4,
        objects=[ObjectEvent(0, box, 0.9) for box in boxes],
        finish_reasons=["stop"],
        metrics=Metrics(),
    )


async def test_cancel_stops_the_work(client, start_work, redis, settings):
    work = await start_work()
    ticket = await ask(client, "slow")
    first = await anext(ticket.events())
    await ticket.cancel()
    assert await answer(ticket) == CANCELLED
    await until(lambda: work.engine.cancelled == [("slow",)])
    await until(lambda: work.feeder.load == 0)
    assert [event async for event in ticket.events()] == [first, CANCELLED]
    assert await leftovers(redis, settings) == set()
    assert isinstance(await answer(await ask(client, "cat")), Completed)


async def test_cancel_while_queued(client, start_work, redis, settings):
    await announce(redis, settings)
    ticket = await ask(client, "cat")
    await ticket.cancel()
    await ticket.cancel()
    assert await answer(ticket) == CANCELLED
    assert await leftovers(redis, settings) == set()
    work = await start_work()
    await answer(await ask(client, "dog"))
    assert work.engine.runs == [("dog",)]


async def test_finish_and_cancel_race_has_one_winner(client, redis, settings, queue_of):
    """Whoever comes first decides; nothing is told after it."""
    queue = queue_of("w1")
    await queue.beat(info("w1"), [])
    outcomes = set()
    for n in range(30):
        ticket = await ask(client, f"cat {n}")
        (delivery,), _ = await queue.take(8, 8, 8, 8, {})
        done = completed((0.1, 0.1, 0.2, 0.2))
        finished, _ = await asyncio.gather(queue.finish(delivery, done), ticket.cancel())
        final = await answer(ticket)
        assert final == (done if finished else CANCELLED)
        assert not await queue.emit(delivery, 0, done.objects)
        assert not await queue.finish(delivery, done)
        outcomes.add(finished)
        events = [event async for event in ticket.events()]
        assert sum(isinstance(event, Completed | Failure) for event in events) == 1
    counts = await redis.hgetall(f"pb1:{{{settings.namespace}}}:usage:anonymous")
    assert sum(map(int, counts.values())) == 30
    assert await leftovers(redis, settings) == set()


async def test_events_of_an_old_attempt_and_after_the_end_are_refused(client, queue_of, redis, settings):
    first, second = queue_of("w1"), queue_of("w2")
    await first.beat(info("w1"), [])
    ticket = await ask(client, "cat")
    (old,), _ = await first.take(8, 8, 8, 8, {})
    one, two = ObjectEvent(0, (0.1, 0.1, 0.2, 0.2), 0.9), ObjectEvent(0, (0.3, 0.3, 0.4, 0.4), 0.9)
    assert await first.emit(old, 0, [one])
    await report_gone(redis, settings.namespace, "w1")
    new = await second.reclaim()
    assert new is not None
    assert (new.id, new.attempt) == (old.id, 2)
    assert not await first.emit(old, 1, [two])
    assert not await first.finish(old, completed())
    _, gone = await first.beat(info("w1"), [old.key])
    assert gone == {old.id}
    assert await second.emit(new, 0, [one, two])
    assert await second.emit(new, 0, [one, two]), "a repeated command whose reply was lost"
    done = completed(one.box, two.box)
    assert await second.finish(new, done)
    assert [event async for event in ticket.events()] == [one, two, PhraseEvent(0, "stop"), done]


async def test_an_old_attempt_is_refused_from_the_same_worker_too(client, queue_of, redis, settings):
    queue = queue_of("w1")
    await queue.beat(info("w1"), [])
    ticket = await ask(client, "cat")
    (old,), _ = await queue.take(8, 8, 8, 8, {})
    await report_gone(redis, settings.namespace, "w1")  # which was wrong: it lives
    new = await queue.reclaim()
    assert new is not None
    assert not await queue.emit(old, 0, [ObjectEvent(0, (0.1, 0.1, 0.2, 0.2), 0.9)])
    assert not await queue.finish(old, completed())
    _, gone = await queue.beat(info("w1"), [old.key])
    assert gone == {old.id}
    assert await queue.finish(new, completed())
    assert isinstance(await answer(ticket), Completed)


async def test_replies_to_an_api_that_is_gone_do_not_stay(settings, queue_of, redis):
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace)
    queue = queue_of("w1")
    await queue.beat(info("w1"), [])
    await ask(client, "cat")
    (delivery,), _ = await queue.take(8, 8, 8, 8, {})
    for task in client._tasks:
        task.cancel()
    await asyncio.wait(client._tasks)
    assert await queue.finish(delivery, completed())
    assert await redis.xlen(client._reply) == 1
    assert await redis.pttl(client._reply) > 0
    await client.close()


async def test_events_lost_on_the_way_are_in_the_answer(client, queue_of, redis):
    queue = queue_of("w1")
    await queue.beat(info("w1"), [])
    ticket = await ask(client, "cat")
    (delivery,), _ = await queue.take(8, 8, 8, 8, {})
    one, two = ObjectEvent(0, (0.1, 0.1, 0.2, 0.2), 0.9), ObjectEvent(0, (0.3, 0.3, 0.4, 0.4), 0.9)
    await queue.emit(delivery, 0, [one])
    await until(lambda: ticket._events)
    done = completed(one.box, two.box)
    async with redis.pipeline() as both:  # the answer's event vanishes before it can be read
        both.set(f"{client._prefix}result:{ticket.id}", encode(done))
        both.delete(f"{client._prefix}req:{ticket.id}")
        await both.execute()
    assert [event async for event in ticket.events()] == [one, two, PhraseEvent(0, "stop"), done]


async def test_submitting_an_id_twice_enqueues_once(client, start_work, redis, settings):
    await announce(redis, settings)
    tickets = [await ask(client, "cat", request_id="same") for _ in range(3)]
    assert await redis.xlen(f"pb1:{{{settings.namespace}}}:q:tiny:interactive:anonymous") == 1
    work = await start_work()
    answers = await asyncio.gather(*map(answer, tickets))
    assert len({id(done) for done in answers}) == 1
    assert work.engine.runs == [("cat",)]
    assert await leftovers(redis, settings) == set()


async def test_a_lost_reply_does_not_enqueue_twice(client, start_work, redis, settings, monkeypatch):
    work = await start_work()
    run, lost = client._scripts.run_after, []

    async def flaky(command, name, arguments):
        result = await run(command, name, arguments)
        if result[0] == b"admitted" and not lost:
            lost.append(result)
            raise RedisConnectionError("the reply is lost")
        return result

    monkeypatch.setattr(client._scripts, "run_after", flaky)
    assert isinstance(await answer(await ask(client, "cat")), Completed)
    assert (len(lost), work.engine.runs) == (1, [("cat",)])
    assert await leftovers(redis, settings) == set()


async def test_a_caller_that_goes_away_while_submitting_leaves_nothing(client, redis, settings):
    await announce(redis, settings)
    for delay in range(20):
        submitting = asyncio.create_task(ask(client, "cat", image=uuid.uuid4().bytes))
        for _ in range(delay):
            await asyncio.sleep(0)
        submitting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await submitting).cancel()  # the submission was faster
    await until(lambda: _nothing_left(redis, settings))


async def _nothing_left(redis, settings):
    return await leftovers(redis, settings) == set()
