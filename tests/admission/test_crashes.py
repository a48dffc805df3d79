"""Workers that die, workers that leave, and a Redis that comes and goes."""

from __future__ import annotations

import asyncio

import pytest

from app.admission.client import AdmissionClient
from app.admission.errors import Unavailable
from app.admission.execution import EngineDied
from app.admission.messages import (
    Completed,
    SpatialParams,
)
from app.admission.registry import LEASE_S
from app.admission.worker_queue import report_gone
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


async def test_a_request_that_takes_longer_than_the_lease_stays_where_it_is(client, start_work):
    first = await start_work()
    ticket = await ask(client, "hold")
    await until(lambda: first.engine.runs)
    second = await start_work()
    await asyncio.sleep(LEASE_S + 0.5)
    first.engine.release.set()
    assert isinstance(await answer(ticket), Completed)
    assert (len(first.engine.runs), second.engine.runs) == (1, [])


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


async def test_of_several_busy_workers_one_empties_itself_for_what_was_lost(
    client, start_work, redis, settings
):
    dying, first, second = await start_work(), await start_work(), await start_work()
    tickets, busy = [], {}
    for n, work in enumerate((dying, first, second)):
        others = [w for w in (dying, first, second) if w is not work]
        for other in others:
            other.feeder._alone = True  # so that each gets one
            await other.feeder._queue.refuse()
        tickets.append(await ask(client, f"hold {n}"))
        await until(lambda: work.engine.runs)  # noqa: B023
        for other in others:
            other.feeder._alone = False
        busy[work] = n
    await dying.crash()
    await report_gone(redis, settings.namespace, dying.feeder.id)
    await until(lambda: first.feeder._lost or second.feeder._lost)
    for n in range(3):
        assert isinstance(await answer(await ask(client, f"new {n}")), Completed), "the other goes on"
    draining, going = (first, second) if first.feeder._lost else (second, first)
    assert not going.feeder._lost
    assert len(draining.engine.runs) == 1
    first.engine.release.set()
    second.engine.release.set()
    assert all([isinstance(await answer(ticket), Completed) for ticket in tickets])


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


async def test_drain_finishes_what_is_in_flight_and_takes_no_more(client, start_work, redis, settings):
    work = await start_work()
    flying = [await ask(client, f"hold {n}") for n in range(3)]
    await until(lambda: len(work.engine.runs) == 3)
    idle = f"pb1:{{{settings.namespace}}}:idle:1:tiny:interactive"
    await until(lambda: redis.exists(idle))
    draining = asyncio.create_task(work.drain())

    async def takes_no_more():
        return not await redis.exists(idle)

    await until(takes_no_more)
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
    assert why == "The queue cannot be reached."

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
