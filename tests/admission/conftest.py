"""A Valkey for the whole run, a namespace for each test, workers that end with it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis

from app.admission.client import AdmissionClient, Limits
from app.admission.connections import producer
from app.settings import Settings
from tests.admission.fakes import FakeEngine, Server, Work, fake_decode, pings, until


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_server() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def settings(shared_server: Server) -> Settings:
    """A namespace of its own for each test."""
    await until(lambda: pings(shared_server.url))
    return Settings(redis_url=shared_server.url, namespace=f"t-{uuid.uuid4().hex}", model="tiny", max_batch=8)


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    client = producer(settings.redis_url or "")
    yield client
    await client.aclose()


@pytest.fixture
async def start_work(settings: Settings) -> AsyncIterator[Callable[..., Awaitable[Work]]]:
    """Starts a feeder and waits until it is registered."""
    started: list[Work] = []

    async def start(
        engine: FakeEngine | None = None, decode: Callable[[bytes], Any] = fake_decode, **changes: Any
    ) -> Work:
        work = Work(replace(settings, **changes), engine or FakeEngine(), decode)
        started.append(work)
        probe = producer(work.feeder._settings.redis_url or "")
        key = f"pb1:{{{settings.namespace}}}:worker:{work.feeder.id}"
        await until(lambda: probe.exists(key))
        await probe.aclose()
        return work

    yield start
    for work in started:
        work.engine.close()
        await work.crash()


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[AdmissionClient]:
    limits = Limits.of(settings)
    client = await AdmissionClient.connect(settings.redis_url or "", settings.namespace, limits)
    yield client
    await client.close()
