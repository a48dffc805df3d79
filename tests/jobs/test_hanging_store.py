"""A store that takes requests and never answers: whoever wants to see a job's results waits, nobody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from app.bodies import INLINE_BYTES
from app.jobs import service
from tests.access.serving import serving
from tests.admission.fakes import PATIENCE_S, until
from tests.jobs.service import Jobs

READERS = 40
"""More than threads of any kind."""


@dataclass
class Silent:
    url: str
    callers: list[asyncio.StreamWriter]


@pytest.fixture
async def silent() -> AsyncIterator[Silent]:
    callers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: callers.append(writer), "127.0.0.1")
    yield Silent(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", callers)
    server.close()
    for writer in callers:
        writer.transport.abort()


async def test_it_holds_up_nobody_else(
    running: Jobs, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.fill(3)
    (running.root / "in" / "bad.png").write_bytes(b"nonsense")
    job = (await running.submit()).json()["id"]
    await running.in_state(job, "completed")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    s3 = {"url": "s3://out", "endpoint": silent.url, "path_style": True, "allow_http": True, "write": True}
    stores = json.loads(running.settings.stores) | {"out": s3}
    monkeypatch.setattr(service, "READ_S", 2 * PATIENCE_S)
    async with serving(replace(running.settings, stores=json.dumps(stores))) as api:
        paths = ("results", "errors", "samples", "samples/0")
        readers = [
            asyncio.create_task(api.client.get(f"/v1/jobs/{job}/{paths[n % len(paths)]}", timeout=None))
            for n in range(READERS)
        ]
        await until(lambda: len(silent.callers) >= service.READS_AT_ONCE)
        long = json.dumps({"image": "A" * INLINE_BYTES, "object": "cat"}).encode()
        async with asyncio.timeout(PATIENCE_S):
            answer = await api.client.post(
                "/v1/detect", content=long, headers={"content-type": "application/json"}
            )
        assert answer.status_code == 415
        assert not any(reader.done() for reader in readers)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        monkeypatch.setattr(service, "READ_S", 0.1)
        for path in paths:
            refused = await api.client.get(f"/v1/jobs/{job}/{path}", timeout=None)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5"), path
