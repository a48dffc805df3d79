"""Caps, deadlines, races, dead workers, and a Redis that comes and goes."""

from __future__ import annotations

import asyncio
import contextlib
import uuid

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from app.admission.client import AdmissionClient, Limits
from app.admission.errors import QueueFull, TenantQueueFull, Unavailable
from app.admission.execution import EngineDied
from app.admission.messages import (
    Completed,
    Failure,
    Metrics,
    ObjectEvent,
    SpatialParams,
    WorkerInfo,
    encode,
)
from app.admission.worker_queue import WorkerQueue, report_gone
from tests.admission.fakes import (
    PATIENCE_S,
    FakeEngine,
    announce,
    answer,
    ask,
    leftovers,
    pings,
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


# caps


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


async def test_retry_after_follows_the_measured_rate(settings, redis):
    await announce(redis, settings)
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace, Limits(depth=50))
    for _ in range(50):
        await ask(client, "cat")
    seconds, _ = await redis.time()
    rate = {"count": 300, "at": seconds * 1000, "since": (seconds - 600) * 1000}  # 300 in 30 s: 10 a second
    await redis.hset(f"pb1:{{{settings.namespace}}}:rate", mapping=rate)
    with pytest.raises(QueueFull) as caught:
        await ask(client, "cat")
    assert 5 <= caught.value.retry_after_s <= 7
    await client.close()


async def test_a_refused_request_sends_no_image(settings, redis):
    await announce(redis, settings)
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace, Limits(depth=1))
    await ask(client, "cat", image=b"first")
    with pytest.raises(QueueFull):
        await ask(client, "cat", image=b"second")
    assert len(await redis.keys(f"pb1:{{{settings.namespace}}}:image:*")) == 1
    await client.close()


# deadlines


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


# cancel and finish


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
        (delivery,) = await queue.take(8)
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
    (old,) = await first.take(8)
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
    assert [event async for event in ticket.events()] == [one, two, done]


async def test_events_lost_on_the_way_are_in_the_answer(client, queue_of, redis):
    queue = queue_of("w1")
    await queue.beat(info("w1"), [])
    ticket = await ask(client, "cat")
    (delivery,) = await queue.take(8)
    one, two = ObjectEvent(0, (0.1, 0.1, 0.2, 0.2), 0.9), ObjectEvent(0, (0.3, 0.3, 0.4, 0.4), 0.9)
    await queue.emit(delivery, 0, [one])
    await until(lambda: ticket._events)
    done = completed(one.box, two.box)
    async with redis.pipeline() as both:  # the answer's event vanishes before it can be read
        both.set(f"{client._prefix}result:{ticket.id}", encode(done))
        both.delete(f"{client._prefix}req:{ticket.id}")
        await both.execute()
    assert [event async for event in ticket.events()] == [one, two, done]


# the same request twice


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
    run, lost = client._scripts.run, []

    async def flaky(name, *arguments):
        result = await run(name, *arguments)
        if name == "admit" and result[0] == b"admitted" and not lost:
            lost.append(result)
            raise RedisConnectionError("the reply is lost")
        return result

    monkeypatch.setattr(client._scripts, "run", flaky)
    assert isinstance(await answer(await ask(client, "cat")), Completed)
    assert (len(lost), work.engine.runs) == (1, [("cat",)])


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


# workers that die


async def test_what_a_dead_worker_held_is_answered_by_another_once_each(client, start_work, redis, settings):
    first = await start_work()
    tickets = [await ask(client, f"hold {n}") for n in range(12)]
    await until(lambda: len(first.engine.runs) >= 8)
    await first.crash()
    await report_gone(redis, settings.namespace, first.feeder.id)
    engine = FakeEngine()
    engine.release.set()
    second = await start_work(engine)
    answers = await asyncio.gather(*map(answer, tickets))
    assert all(isinstance(done, Completed) and len(done.objects) == 3 for done in answers)
    assert sorted(second.engine.runs) == sorted(set(second.engine.runs)), "none twice"
    for ticket in tickets:
        assert len([event async for event in ticket.events()]) == 3 + 1 + 1, "no object twice"
    counts = await redis.hgetall(f"pb1:{{{settings.namespace}}}:usage:anonymous")
    assert counts == {b"completed": b"12"}
    assert await leftovers(redis, settings) == set()


async def test_without_a_supervisor_the_lease_ends(client, start_work):
    first = await start_work()
    ticket = await ask(client, "hold")
    await until(lambda: first.engine.runs)
    await first.crash()
    engine = FakeEngine()
    engine.release.set()
    await start_work(engine)
    assert isinstance(await answer(ticket), Completed)


async def test_a_request_that_crashes_each_worker_is_given_up_and_its_neighbours_are_answered(
    client, start_work, redis, settings
):
    tickets = {}
    engine, deaths = None, []
    work = await start_work()
    for name in ("hold a", "hold poison", "hold b"):
        tickets[name] = await ask(client, name)
    await until(lambda: len(work.engine.runs) == 3)
    while not all(ticket.terminal for ticket in tickets.values()):
        deaths.append(list(work.engine.runs))
        await work.crash()
        await report_gone(redis, settings.namespace, work.feeder.id)
        engine = PoisonEngine()
        work = await start_work(engine)
        running, this = engine, work
        await until(lambda: running.poisoned or all(t.terminal for t in tickets.values()))  # noqa: B023
        assert running.together == [1] * len(running.together), "each redelivered request ran alone"
        assert this.feeder.load <= 1
    assert (await answer(tickets["hold poison"])).problem == "worker-crashed"
    assert isinstance(await answer(tickets["hold a"]), Completed)
    assert isinstance(await answer(tickets["hold b"]), Completed)
    assert len(deaths) == 2, "once among others and once alone"
    assert await leftovers(redis, settings) == set()


class PoisonEngine(FakeEngine):
    """Answers all but the poison, which it takes to its end."""

    def __init__(self):
        super().__init__()
        self.release.set()
        self.poisoned = False

    def submit(self, request, on_event):
        if "poison" not in request.phrases[0]:
            return super().submit(request, on_event)
        self.poisoned = True
        self.runs.append(request.phrases)
        self.together.append(1)

        class Nothing:
            def cancel(self):
                return None

        return Nothing()


async def test_an_engine_that_ends_ends_its_worker(client, start_work, redis, settings):
    work = await start_work()
    work.engine.died = True
    ticket = await ask(client, "cat")
    with pytest.raises(EngineDied, match="engine has ended"):
        await asyncio.wait_for(work.task, PATIENCE_S)
    await report_gone(redis, settings.namespace, work.feeder.id)
    await start_work()
    assert isinstance(await answer(ticket), Completed)


# an orderly end


async def test_drain_finishes_what_is_in_flight_and_takes_no_more(client, start_work, redis, settings):
    work = await start_work()
    flying = [await ask(client, f"hold {n}") for n in range(3)]
    await until(lambda: len(work.engine.runs) == 3)
    draining = asyncio.create_task(work.drain())
    await asyncio.sleep(0)
    late = await ask(client, "late")
    work.engine.release.set()
    await draining
    assert all(isinstance(done, Completed) for done in await asyncio.gather(*map(answer, flying)))
    assert ("late",) not in work.engine.runs
    await start_work()
    assert isinstance(await answer(late), Completed)
    assert await leftovers(redis, settings) == set()


async def test_what_a_drain_cannot_finish_is_given_back_and_is_no_crash(client, start_work):
    tickets, work = [], await start_work(drain_s=0.2)
    tickets.append(await ask(client, "hold"))
    for _ in range(3):
        await until(lambda: work.engine.runs)  # noqa: B023
        await work.drain()
        work = await start_work(drain_s=0.2)
    work.engine.release.set()
    assert isinstance(await answer(tickets[0]), Completed)


# Redis comes and goes


async def test_redis_away_and_back(own_server, settings, start_work):
    await until(lambda: pings(own_server.url))
    work = await start_work(redis_url=own_server.url)
    client = await AdmissionClient.connect(own_server.url, settings.namespace)
    assert isinstance(await answer(await ask(client, "cat")), Completed)
    waiting = await ask(client, "hold")
    await until(lambda: len(work.engine.runs) == 2)

    own_server.kill()
    with pytest.raises(Unavailable):
        await ask(client, "cat")
    with pytest.raises(Unavailable):
        await client.models()
    ready, why = await client.ready()
    assert not ready
    assert "Redis" in why

    own_server.start()
    assert (await answer(waiting)).problem == "unavailable", "Redis came back empty"
    await until(lambda: _is_ready(client))
    assert isinstance(await answer(await ask(client, "cat")), Completed)
    await until(lambda: work.engine.cancelled == [("hold",)])
    await client.close()


async def _is_ready(client):
    return (await client.ready())[0]


async def test_redis_away_for_good_fails_the_waiting(own_server, settings, start_work, monkeypatch):
    monkeypatch.setattr("app.admission.client.AWAY_S", 0.5)
    await until(lambda: pings(own_server.url))
    await start_work(redis_url=own_server.url)
    client = await AdmissionClient.connect(own_server.url, settings.namespace)
    waiting = await ask(client, "hold")
    own_server.kill()
    assert (await answer(waiting)).problem == "unavailable"
    await client.close()


async def test_closing_the_client_fails_open_tickets(settings, redis):
    await announce(redis, settings)
    client = await AdmissionClient.connect(settings.redis_url, settings.namespace)
    ticket = await client.submit(
        request_id="r",
        model="tiny",
        task="detect",
        params=SpatialParams(phrases=["cat"]),
        image=b"x",
        timeout_s=9,
    )
    await client.close()
    assert (await answer(ticket)).problem == "unavailable"
