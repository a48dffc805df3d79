"""Final answers are counted for the key that asked, once, in the same step that ends the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redis.asyncio import Redis

from app.admission.client import AdmissionClient
from app.settings import Settings
from tests.admission.fakes import Work, answer, ask


async def counts(redis: Redis, settings: Settings, name: str) -> dict[str, int]:
    prefix = f"pb1:{{{settings.namespace}}}:"
    names = [key async for key in redis.scan_iter(f"{prefix}{name}")]
    pairs = [pair for key in names for pair in (await redis.hgetall(key)).items()]
    return {name.decode(): int(count) for name, count in pairs if name != b"since"}


async def test_each_outcome_counts_once(
    start_work: Callable[..., Awaitable[Work]], client: AdmissionClient, redis: Redis, settings: Settings
) -> None:
    await start_work()
    await answer(await ask(client, "a", "b", key_id="k1"))
    await answer(await ask(client, "bad", key_id="k1"))
    await answer(await ask(client, "c", key_id="k2"))
    await answer(await ask(client, "d"))
    assert await counts(redis, settings, "used:*") == {
        "k1:completed": 1, "k1:failed": 1, "k1:phrases": 3, "k1:input_tokens": 7, "k1:output_tokens": 5,
        "k2:completed": 1, "k2:phrases": 1, "k2:input_tokens": 7, "k2:output_tokens": 5,
    }  # fmt: skip
    assert await counts(redis, settings, "counts") == {
        "admitted:interactive": 4, "completed": 3, "failed": 1
    }  # fmt: skip


async def test_a_cancelled_request_counts_and_one_sent_twice_counts_once(
    start_work: Callable[..., Awaitable[Work]], client: AdmissionClient, redis: Redis, settings: Settings
) -> None:
    work = await start_work()
    ticket = await ask(client, "hold", key_id="k1")
    await ticket.cancel()
    work.engine.release.set()
    for _ in range(2):
        await answer(await ask(client, "a", key_id="k1", request_id="the same"))
    used = await counts(redis, settings, "used:*")
    assert (used["k1:cancelled"], used["k1:completed"], used["k1:phrases"]) == (1, 1, 2)
