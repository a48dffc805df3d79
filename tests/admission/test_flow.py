"""A request's way through the queue when nothing goes wrong."""

from __future__ import annotations

import asyncio

import pytest

from app.admission.client import AdmissionClient, Limits
from app.admission.errors import Unavailable, UnknownModel
from app.admission.messages import Completed, Failure, ObjectEvent, PhraseEvent
from app.admission.worker_queue import WorkerQueue
from tests.admission.fakes import FakeEngine, announce, answer, ask, leftovers, until


async def test_objects_then_the_whole_answer(client, start_work, redis, settings):
    await start_work()
    ticket = await ask(client, "cat", "dog")
    events = [event async for event in ticket.events()]
    objects = [event for event in events if isinstance(event, ObjectEvent)]
    done = events[-1]
    assert isinstance(done, Completed)
    assert done.objects == sorted(objects, key=lambda item: item.phrase_index)
    assert [item.phrase_index for item in done.objects] == [0, 0, 0, 1, 1, 1]
    assert sum(isinstance(event, PhraseEvent) for event in events) == 2
    assert (done.width, done.height, done.model, done.notes) == (6, 4, "tiny", ["fake"])
    assert done.finish_reasons == ["stop", "stop"]
    assert done.metrics.output_tokens == 5
    assert done.metrics.total_ms >= done.metrics.queue_ms >= 0
    assert await answer(ticket) is done
    assert [event async for event in ticket.events()] == events, "a later reader sees the same"
    assert await leftovers(redis, settings) == set()


async def test_many_requests_of_few_images_leave_nothing_behind(client, start_work, redis, settings):
    await start_work()
    tickets = [await ask(client, f"thing {n}", image=b"image %d" % (n % 3)) for n in range(40)]
    answers = await asyncio.gather(*map(answer, tickets))
    assert all(isinstance(done, Completed) and len(done.objects) == 3 for done in answers)
    assert await leftovers(redis, settings) == set()
    prefix = f"pb1:{{{settings.namespace}}}:"
    assert await redis.hget(prefix + "usage:anonymous", "completed") == b"40"
    assert await redis.hgetall(prefix + "open") == {b"depth": b"0", b"bytes": b"0"}


async def test_image_bytes_travel_once(client, redis, settings):
    await announce(redis, settings)
    for _ in range(3):
        await ask(client, "cat", image=b"x" * 1000)
    await ask(client, "cat", image=b"y" * 10)
    prefix = f"pb1:{{{settings.namespace}}}:"
    images = await redis.keys(prefix + "image:*")
    assert sorted([await redis.strlen(key) for key in images]) == [10, 1000]
    assert await redis.hget(prefix + "open", "bytes") == b"1010"
    assert min([await redis.pttl(key) for key in images]) > 20_000, "longer than the deadline"


async def test_the_reply_stream_is_trimmed_and_one_reader_serves_all(client, start_work, redis, settings):
    await start_work()
    await asyncio.gather(*[answer(await ask(client, "cat")) for _ in range(10)])
    stream = client._reply
    await until(lambda: _empty(redis, stream))
    assert await redis.pttl(stream) > 0


async def _empty(redis, stream):
    return await redis.xlen(stream) == 0


async def test_a_bad_image_and_an_engine_error_name_problem_and_field(client, start_work):
    await start_work()
    broken = await answer(await ask(client, "cat", image=b"broken"))
    assert broken == Failure(problem="invalid-image", detail="The image is broken.", field="image")
    bad = await answer(await ask(client, "bad"))
    assert bad == Failure(problem="invalid-phrase", detail="a bad phrase", field="object")


async def test_unknown_model_and_no_worker(client, start_work):
    with pytest.raises(Unavailable):
        await ask(client, "cat")
    await start_work()
    with pytest.raises(UnknownModel):
        await ask(client, "cat", model="huge")


async def test_the_registry_shows_live_workers_only(client, start_work):
    assert await client.ready() == (False, "no worker is running")
    assert await client.models() == []
    first, second = await start_work(), await start_work()
    assert await client.ready() == (True, "")
    (model,) = await client.models()
    assert (model.name, model.family, model.workers, model.capacity) == ("tiny", "fake", 2, 20)
    assert model.tasks == ["detect", "point"]
    await first.drain()
    (model,) = await client.models()
    assert model.workers == 1
    await second.crash()
    await until(lambda: _not_ready(client))


async def _not_ready(client):
    return not (await client.ready())[0]


async def test_the_worker_takes_no_more_than_it_has_room_for(client, start_work, redis, settings):
    work = await start_work(max_batch=4)  # and two phrases on their way
    tickets = [await ask(client, f"hold {n}") for n in range(10)]
    await until(lambda: len(work.engine.runs) == 6)
    assert work.feeder.load == 6
    work.engine.release.set()
    await asyncio.gather(*map(answer, tickets))
    assert max(work.engine.together) <= 6


async def test_a_request_wider_than_the_engine_still_runs(client, start_work):
    await start_work(max_batch=2)
    done = await answer(await ask(client, *[f"thing {n}" for n in range(32)]))
    assert isinstance(done, Completed)
    assert len(done.objects) == 96


async def test_entries_of_another_version_stay_unclaimed(client, start_work, redis, settings, monkeypatch):
    work = await start_work()
    monkeypatch.setattr("app.admission.client.ENTRY_VERSION", "2")
    await ask(client, "cat", tenant="newer", timeout_s=3)
    monkeypatch.setattr("app.admission.client.ENTRY_VERSION", "1")
    assert isinstance(await answer(await ask(client, "dog")), Completed)
    lane = f"pb1:{{{settings.namespace}}}:q:tiny:interactive:newer"
    assert await redis.xpending(lane, "workers") == {
        "pending": 0, "min": None, "max": None, "consumers": [],
    }  # fmt: skip
    assert work.engine.runs == [("dog",)]


async def test_tenants_take_turns(client, start_work, redis, settings):
    await announce(redis, settings)
    flood = [await ask(client, f"flood {n}", tenant="flood") for n in range(30)]
    quiet = [await ask(client, f"quiet {n}", tenant="quiet") for n in range(3)]
    work = await start_work(FakeEngine(), max_batch=1)
    await asyncio.gather(*map(answer, flood + quiet))
    places = [n for n, (phrase,) in enumerate(work.engine.runs) if phrase.startswith("quiet")]
    assert max(places) < 12, "three requests of a quiet tenant pass a flood of thirty"


async def test_a_tenant_that_floods_leaves_rows_to_others_while_they_need_some(client, redis, settings):
    await announce(redis, settings)
    queue = WorkerQueue(redis, settings.namespace, "w", "tiny")
    flood = [await ask(client, "much", tenant="flood") for _ in range(10)]

    async def take(rows, **held):
        taken, more = await queue.take(rows, 8, 4, 4, held)
        return [delivery.tenant for delivery in taken], more

    quiet = await ask(client, "little", tenant="quiet")
    assert await take(2) == (["flood", "flood"], True), "its turn"
    assert await take(3, flood=2) == (["flood", "flood", "quiet"], True)
    assert await take(8, flood=4, quiet=1) == ([], True)
    assert await take(1, flood=3, quiet=1) == (["flood"], True)
    await flood[-1].cancel()
    assert await take(1, flood=4, quiet=1) == (["flood"], True), "four that wait are no flood"
    flood += [await ask(client, "much", tenant="flood") for _ in range(3)]
    assert await take(8, flood=5, quiet=1) == ([], True)
    await quiet.cancel()
    assert await take(8, flood=5) == (["flood"] * 6, False), "nobody else needs them"
    for ticket in flood:
        await ticket.cancel()


async def test_interactive_goes_before_batch(client, start_work, redis, settings):
    await announce(redis, settings)
    tickets = [await ask(client, "batch", priority="batch") for _ in range(5)]
    tickets += [await ask(client, "now") for _ in range(5)]
    work = await start_work(max_batch=1)
    await asyncio.gather(*map(answer, tickets))
    places = [n for n, run in enumerate(work.engine.runs) if run == ("now",)]
    assert max(places) < 5 + 2, "all but those decoded at the same time"


async def test_an_answer_is_found_by_its_id(client, start_work, settings):
    work = await start_work()
    done = await answer(await ask(client, "cat", request_id="same"))
    other = await AdmissionClient.connect(settings.redis_url, settings.namespace, Limits())
    again = await ask(other, "cat", request_id="same")
    assert await answer(again) == done
    await other.close()
    assert len(work.engine.runs) == 1


async def test_objects_that_nobody_follows_come_with_the_answer_alone(client, start_work, redis):
    work = await start_work()
    quiet, followed = await ask(client, "hold", events=False), await ask(client, "hold")
    await until(lambda: followed._events)
    assert not quiet._events
    work.engine.release.set()
    events = [event async for event in quiet.events()]
    assert events[:-1] == [event async for event in followed.events()][:-1]
