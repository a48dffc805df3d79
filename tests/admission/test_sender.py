"""The bytes of an image go ahead of their request, and do not stay without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.admission.client import AdmissionClient, Limits
from app.admission.connections import producer
from app.admission.errors import QueueFull, Unavailable, UnknownModel
from app.admission.messages import Completed, Metrics
from app.admission.worker_queue import WorkerQueue
from tests.admission.fakes import announce, answer, ask, leftovers, pings, until


@pytest.fixture
async def client_with(settings):
    clients = []

    async def connect(**limits):
        clients.append(
            await AdmissionClient.connect(settings.redis_url, settings.namespace, Limits(**limits))
        )
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()


async def test_refused_bytes_are_dropped(client_with, redis, settings):
    client = await client_with(depth=0)
    with pytest.raises(Unavailable):
        await ask(client, "cat")
    await announce(redis, settings)
    with pytest.raises(QueueFull):
        await ask(client, "cat", image=b"another one")
    other = await client_with()
    with pytest.raises(UnknownModel):
        await ask(other, "cat", model="none such")
    assert await leftovers(redis, settings) == set()


async def test_bytes_that_another_process_has_sent_are_dropped(client_with, redis, settings):
    await announce(redis, settings)
    for _ in range(2):
        await ask(await client_with(), "cat")
    assert await leftovers(redis, settings) & {"image", "staged"} == {"image"}


async def test_a_redis_that_has_forgotten_the_scripts_gets_them_again(client_with, start_work, redis):
    await start_work()
    client = await client_with()
    await redis.script_flush()
    assert isinstance(await answer(await ask(client, "cat")), Completed)


async def test_bytes_for_which_redis_has_no_room_are_told_at_once(client_with, own_server, settings):
    """Not the script's answer, which would be that they are missing."""
    await until(lambda: pings(own_server.url))
    redis = producer(own_server.url)
    here = replace(settings, redis_url=own_server.url)
    client = await AdmissionClient.connect(own_server.url, settings.namespace)
    await announce(redis, here)
    await redis.config_set("maxmemory", 1)
    with pytest.raises(Unavailable, match="no memory left"):
        await ask(client, "cat", image=b"x" * 100_000)
    await redis.config_set("maxmemory", 0)
    await ask(client, "cat")
    await client.close()
    await redis.aclose()


async def test_a_redis_without_memory_lets_requests_end(own_server, settings):
    await until(lambda: pings(own_server.url))
    redis = producer(own_server.url)
    queue = WorkerQueue(redis, settings.namespace, "w", "tiny")
    client = await AdmissionClient.connect(own_server.url, settings.namespace)
    await announce(redis, settings)
    tickets = [await ask(client, "cat") for _ in range(2)]
    ((delivery,), _) = await queue.take(1, 1, 8, 8, {})
    await redis.config_set("maxmemory", 1)
    done = Completed(model="tiny", width=1, height=1, objects=[], finish_reasons=["stop"], metrics=Metrics())
    assert await queue.finish(delivery, done)
    assert await answer(tickets[0]) == done
    await tickets[1].cancel()
    await client.close()
    await redis.aclose()
