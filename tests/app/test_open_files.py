"""A service whose clients leave more connections open than it may have files."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx

from tests.admission.services import detect, fake, http, service

OPEN_FILES = 256


@contextmanager
def few_files() -> Iterator[None]:
    """For processes that are started meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_idle_connections_do_not_end_a_healthy_api() -> None:
    with ExitStack() as stack:
        with few_files():
            started = stack.enter_context(service(fake("serve"), POINTBOX_STALL_S="3"))
        await started.ready()
        api = started.child(" api")
        port = httpx.URL(started.url).port
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * OPEN_FILES)]
        async with http(started) as client:
            until = time.monotonic() + 8
            while time.monotonic() < until:
                assert (await detect(client, "x")).status_code == 200
                idle.append(await asyncio.open_connection("127.0.0.1", port))
                await asyncio.sleep(0.2)
        assert started.child(" api") == api
        for _, writer in idle:
            writer.close()
        log = started.text
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    (told, *_) = [line for line in lines if "POINTBOX_CONNECTIONS" in line["event"]]
    assert told["open_files"] == OPEN_FILES
    assert told["connections_limit"] == OPEN_FILES - 144
    assert not [line for line in lines if line["event"].startswith("child")]
