"""A service whose worker dies in the middle of a job goes on with it by itself."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import msgspec

from tests.admission.fakes import until
from tests.admission.services import http, service
from tests.jobs.folders import stores

IMAGES, SHARD = 200, 10
END_S = 300


async def test_a_worker_killed_in_the_middle_of_a_job(tmp_path: Path) -> None:
    keys = [f"{number:03}.jpg" for number in range(IMAGES)]
    (tmp_path / "in").mkdir()
    for key in keys:
        shutil.copy("examples/scene.jpg", tmp_path / "in" / key)
    environ = {"POINTBOX_DATA_DIR": str(tmp_path / "data"), "POINTBOX_STORES": stores(tmp_path)}
    program = Path(__file__).with_name("brief_leases.py")
    with service([sys.executable, str(program), "serve"], **environ) as running:
        await running.ready()
        async with http(running) as client:
            asked = {"source": {"store": "in"}, "out": {"store": "out"}, "objects": ["red circle"]}
            answer = await client.post("/v1/jobs", json=asked | {"shard_size": SHARD})
            job = answer.json()["id"]
            results = tmp_path / "out" / job / "results"
            await until(lambda: (results / "00001.jsonl").exists())
            os.kill(running.child("worker"), signal.SIGKILL)
            written = {path.name: path.stat().st_mtime_ns for path in results.glob("*.jsonl")}
            assert 2 <= len(written) < IMAGES // SHARD
            async with asyncio.timeout(END_S):
                while (shown := (await client.get(f"/v1/jobs/{job}")).json())["state"] == "running":
                    await asyncio.sleep(0.2)
            assert (shown["state"], shown["progress"]["done"], shown["progress"]["errors"]) == (
                "completed",
                IMAGES,
                0,
            )
            lines = (await client.get(f"/v1/jobs/{job}/results")).text.splitlines()
        assert Counter(msgspec.json.decode(line)["key"] for line in lines) == Counter(keys)
        after = {path.name: path.stat().st_mtime_ns for path in results.glob("*.jsonl")}
        assert written.items() <= after.items()
