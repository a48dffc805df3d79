"""Use per key and day: from the queue's counts into the database, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis

from app.access.keys import Keys, NewKey
from app.access.usage import usage, write_usage
from app.admission.client import AdmissionClient
from app.db.database import Database
from app.db.migrations import upgrade
from app.settings import Settings
from tests.admission.fakes import Work, answer, ask


async def test_use_is_written_once_however_often_it_is_written(
    database: Database,
    start_work: Callable[..., Awaitable[Work]],
    client: AdmissionClient,
    redis: Redis,
    settings: Settings,
) -> None:
    await upgrade(database)
    await start_work()
    first, _ = await Keys(database).create(NewKey(tenant="acme"))
    second, _ = await Keys(database).create(NewKey(tenant="acme"))
    for key_id in (first.id, first.id, second.id, "a key of another database"):
        await answer(await ask(client, "a", "b", key_id=key_id))
    await asyncio.gather(*(write_usage(redis, settings.namespace, database) for _ in range(3)))
    numbers = {"completed": 2, "phrases": 4, "input_tokens": 14, "output_tokens": 10}
    days = await usage(database, 1)
    assert {day.prefix: day.numbers for day in days} == {
        first.prefix: numbers,
        second.prefix: {what: number // 2 for what, number in numbers.items()},
    }

    await redis.flushdb()  # a Redis that lost its data: what follows is added to what was written
    await start_work()
    await answer(await ask(client, "a", key_id=first.id))
    await write_usage(redis, settings.namespace, database)
    after = {day.prefix: day.numbers for day in await usage(database, 2)}
    assert after[first.prefix] == {"completed": 3, "phrases": 5, "input_tokens": 21, "output_tokens": 15}
