"""Keys as Redis holds them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from app.admission.connections import producer
from app.admission.errors import Unavailable
from app.idempotency import replays
from app.idempotency.replays import Claim, Replays
from app.problems import ProblemError
from app.settings import Settings


async def claimed(store: Replays, key: str = "k", fingerprint: str = "f", tenant: str = "us") -> Claim:
    claim = await store.claim(tenant, "detect", key, fingerprint)
    assert isinstance(claim, Claim)
    return claim


async def test_tenants_have_keys_of_their_own(redis: Redis, settings: Settings) -> None:
    store = Replays(redis, settings.namespace)
    async with await claimed(store) as claim:
        await claim.keep(b"ours")
    async with await claimed(store, fingerprint="other", tenant="them") as claim:
        await claim.keep(b"theirs")
    assert await store.claim("us", "detect", "k", "f") == b"ours"
    assert await store.claim("them", "detect", "k", "other") == b"theirs"


async def test_answers_are_kept_for_a_day(redis: Redis, settings: Settings) -> None:
    store = Replays(redis, settings.namespace)
    async with await claimed(store) as claim:
        await claim.keep(b"an answer")
    (key,) = await redis.keys(f"*{settings.namespace}*:idempotency:*")
    assert 23.9 * 3600 < await redis.ttl(key) <= 24 * 3600


async def test_a_claim_is_held_for_as_long_as_it_takes(
    redis: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "LEASE_S", 0.3)
    store = Replays(redis, settings.namespace)
    async with await claimed(store):
        await asyncio.sleep(1)
        with pytest.raises(ProblemError) as running:
            await store.claim("us", "detect", "k", "f")
        assert running.value.slug == "idempotency-in-flight"
    await claimed(store)


async def test_who_lost_its_claim_changes_nothing(redis: Redis, settings: Settings) -> None:
    store = Replays(redis, settings.namespace)
    async with await claimed(store) as late:
        await redis.delete(*await redis.keys(f"*{settings.namespace}*:idempotency:*"))  # its lease ran out
        async with await claimed(store, fingerprint="g") as claim:
            await late.keep(b"late")
            await claim.keep(b"an answer")
    assert await store.claim("us", "detect", "k", "g") == b"an answer"


async def test_without_redis() -> None:
    redis = producer("redis://127.0.0.1:1")
    with pytest.raises(Unavailable) as away:
        await Replays(redis, "nowhere").claim("us", "detect", "k", "f")
    assert "127.0.0.1" not in away.value.detail
    await redis.aclose()


async def test_an_answer_is_kept_though_a_connection_is_lost(redis: Redis, settings: Settings) -> None:
    store = Replays(redis, settings.namespace)
    async with await claimed(store) as claim:
        settle, failures = claim._script, [RedisConnectionError("lost")] * 3

        async def flaky(**arguments: Any) -> Any:
            if failures:
                raise failures.pop()
            return await settle(**arguments)

        claim._script = flaky  # type: ignore[assignment]
        await claim.keep(b"an answer")
    assert await store.claim("us", "detect", "k", "f") == b"an answer"
