"""A Redis that is there and of no use: a replica, full, evicting. It is said, and it passes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest
from redis.exceptions import AuthenticationError, ConnectionError, ResponseError, TimeoutError

from app.admission.client import AdmissionClient
from app.admission.connections import producer
from app.admission.errors import Unavailable
from app.admission.faults import may_evict, unavailable
from app.admission.messages import Completed
from app.problems import KINDS, ProblemError
from tests.admission.fakes import Server, answer, ask, pings, until
from tests.admission.services import START_S, picture
from tests.app.api import serving_api


@pytest.fixture
async def trouble(own_server):
    """A server of the test's own, and its settings changed by hand."""
    await until(lambda: pings(own_server.url))
    admin = producer(own_server.url)
    yield own_server, admin
    await admin.aclose()


async def test_a_primary_that_becomes_a_replica(trouble, settings, start_work):
    """Its connections stay; the service says so, and goes on once it is a primary again."""
    server, admin = trouble
    other = Server()
    other.start()
    await until(lambda: pings(other.url))
    mine = replace(settings, redis_url=server.url)
    await start_work(redis_url=server.url)
    try:
        async with serving_api(mine) as url, httpx.AsyncClient(base_url=url, timeout=60) as api:
            assert (await _detect(api)).status_code == 200
            place = urlsplit(other.url)
            await admin.execute_command("CONFIG", "SET", "masterauth", place.password)
            await admin.execute_command("REPLICAOF", place.hostname, place.port)
            for response in (await _detect(api), await api.get("/readyz")):
                assert response.status_code == 503
                assert response.json()["detail"] == "The queue is a read-only replica now."
                assert int(response.headers["retry-after"]) >= 1
            await admin.execute_command("REPLICAOF", "NO", "ONE")
            await until(lambda: _is_ready(api))
            assert (await _detect(api)).status_code == 200
    finally:
        other.kill()


async def test_connections_to_a_replica_are_left(trouble, settings):
    """Behind the same name there may be another server by now, and only a new connection gets there."""
    server, admin = trouble
    await admin.execute_command("REPLICAOF", "127.0.0.1", "1")
    redis = producer(server.url)
    await redis.ping()
    before = [client["id"] for client in await redis.client_list()]
    with pytest.raises(ResponseError, match="READONLY"):
        await redis.set("key", "value")
    assert all(wire.closed for wire in redis._wires)
    after = [client["id"] for client in await redis.client_list()]
    assert set(after) - set(before), "the next command goes over a new connection"
    await redis.aclose()


async def test_a_full_redis(trouble, settings, start_work):
    server, admin = trouble
    mine = replace(settings, redis_url=server.url)
    await start_work(redis_url=server.url)
    async with serving_api(mine) as url, httpx.AsyncClient(base_url=url, timeout=60) as api:
        assert (await _detect(api)).status_code == 200
        await admin.config_set("maxmemory", "1mb")
        for response in (await _detect(api), await api.get("/readyz")):
            assert (response.status_code, response.json()["detail"]) == (503, "The queue has no memory left.")
            assert int(response.headers["retry-after"]) >= 1
        await admin.config_set("maxmemory", "0")
        await until(lambda: _is_ready(api))
        assert (await _detect(api)).status_code == 200


async def test_a_redis_that_may_evict(trouble, settings, start_work):
    """None starts on it; one that runs says it."""
    server, admin = trouble
    assert await may_evict(admin) is None
    await admin.config_set("maxmemory-policy", "allkeys-lru")
    assert await may_evict(admin) is None, "it has no limit"
    await admin.config_set("maxmemory", "100mb")
    mine = replace(settings, redis_url=server.url)
    for role in ("api", "worker", "serve"):
        ended = subprocess.run(
            [sys.executable, "-m", "app.cli", role, *(("--port", "0") if role != "worker" else ())],
            env={**mine.to_environ(), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        assert ended.returncode == 2, ended.stderr
        assert "maxmemory-policy allkeys-lru" in ended.stderr
    await start_work(redis_url=server.url)
    client = await AdmissionClient.connect(server.url, settings.namespace)
    await until(lambda: client._evicts)
    ready, why = await client.ready()
    assert not ready
    assert "set maxmemory-policy to noeviction" in why
    assert isinstance(await answer(await ask(client, "cat")), Completed)
    await client.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionError("10.0.0.7:6379"), "cannot be reached"),
        (OSError("10.0.0.7:6379"), "cannot be reached"),
        (TimeoutError("no answer in time"), "does not answer"),
        (ResponseError("LOADING Redis is loading the dataset in memory"), "is still being loaded"),
        (ResponseError("OOM command not allowed when used memory > 'maxmemory'."), "has no memory left"),
        (ResponseError("MISCONF Errors writing to the AOF file"), "cannot write to its disk"),
        (ResponseError("WRONGPASS invalid username-password pair"), "does not accept the service's password"),
        (AuthenticationError("NOAUTH Authentication required."), "does not accept the service's password"),
        (ResponseError("ERR something else"), "answers with an error"),
    ],
)
def test_each_trouble_has_its_own_sentence(error, words):
    told = unavailable(error)
    assert isinstance(told, Unavailable)
    assert words in told.detail
    assert told.retry_after_s >= 1
    assert "10.0.0.7" not in told.detail


@pytest.mark.parametrize("slug", [slug for slug, kind in KINDS.items() if kind.status in (429, 503)])
def test_whoever_is_to_come_again_is_told_when(slug):
    assert ProblemError(slug, "Later.").retry_after_s >= 1
    assert ProblemError(slug, "Later.", retry_after_s=7).retry_after_s == 7


async def test_a_lost_request_says_when_to_send_it_again(settings, redis, start_work):
    await start_work()
    async with serving_api(settings) as url, httpx.AsyncClient(base_url=url, timeout=60) as api:
        asked = asyncio.create_task(_detect(api, "hold"))
        pattern = f"pb1:{{{settings.namespace}}}:req:*"
        await until(lambda: redis.keys(pattern))
        await redis.delete(*await redis.keys(pattern))
        response = await asked
    assert response.status_code == 503
    assert response.json()["detail"] == "The queue lost the request; send it again."
    assert int(response.headers["retry-after"]) >= 1


async def _detect(api, phrase="cat"):
    return await api.post("/v1/detect", files={"image": picture()}, data={"object": phrase})


async def _is_ready(api):
    return (await api.get("/readyz")).status_code == 200
