"""Places of a key: kept while a request lasts, free again when its API process dies."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from app.access import limits
from app.access.caller import Caller
from app.access.keyring import Grant
from app.access.limits import Limits
from app.problems import ProblemError
from app.settings import Settings
from tests.admission.fakes import until

GRANT = Grant(Caller("acme", "k1", frozenset({"infer"})), concurrency=1)


async def is_free(one: Limits) -> bool:
    with suppress(ProblemError):
        async with one.entered(GRANT):
            return True
    return False


async def test_a_long_request_keeps_its_place_and_a_dead_process_loses_it(
    redis: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEASE_S", 3.0)
    mine, other = Limits(redis, settings.namespace), Limits(redis, settings.namespace)
    held = f"pb1:{{{settings.namespace}}}:key-held:k1"

    async def ends() -> float:
        ((_, at),) = await redis.zrange(held, 0, -1, withscores=True)
        return float(at)

    keeping = asyncio.create_task(mine.keep())
    async with mine.entered(GRANT):
        assert not await is_free(other)
        first = await ends()

        async def is_kept() -> bool:
            return await ends() > first

        await until(is_kept)
        keeping.cancel()  # as if the process had died with the request
        await until(lambda: is_free(other))
    assert await is_free(other)


async def test_a_refused_request_costs_nothing(redis: Redis, settings: Settings) -> None:
    both = Grant(GRANT.caller, rate_per_minute=2, concurrency=1)
    one = Limits(redis, settings.namespace)
    async with one.entered(both) as headers:
        assert headers["ratelimit-remaining"] == "1"
        assert not await is_free(one)
    async with one.entered(both) as headers:
        assert headers["ratelimit-remaining"] == "0"
    with pytest.raises(ProblemError) as refused:
        async with one.entered(both):
            pass
    assert 0 < (refused.value.retry_after_s or 0) <= 30
    assert await is_free(one)
