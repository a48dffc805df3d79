"""Runners killed with -9 at random moments: nothing is missing, nothing twice, little is done again."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.admission.services import http, service
from tests.jobs.buckets import PHRASE, fill, pictures, records
from tests.jobs.folders import stores
from tests.jobs.servers import ADMIN, Weed, client_of, store_at

pytestmark = pytest.mark.long

IMAGES, SHARD, KILLS = 1500, 50, 3
SHARDS = IMAGES // SHARD
END_S = 1800


def moments(seed: int) -> list[tuple[int, float]]:
    """After how many shards, and how many seconds after these, a runner is killed; none near the end."""
    chance = random.Random(seed)
    shards = sorted(chance.sample(range(SHARDS * 2 // 3), KILLS))
    return [(count, chance.uniform(0, 2)) for count in shards]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_batch(weed: Weed, bucket: str, seed: int) -> None:
    client = client_of(weed.endpoint)
    filled = fill(client, bucket, "in/", IMAGES, 40)
    where = [f"s3://{bucket}/in", "--detect", PHRASE, "--out", f"s3://{bucket}/out", "--job", "killed"]
    command = [sys.executable, "-m", "app.cli", "batch", *where, "--shard-size", str(SHARD)]
    command += ["--s3-endpoint", weed.endpoint, "--s3-path-style", "--s3-allow-http"]
    environ = os.environ | {"AWS_ACCESS_KEY_ID": ADMIN[0], "AWS_SECRET_ACCESS_KEY": ADMIN[1]}

    def written() -> dict[str, Any]:
        """When the results of each shard were written."""
        listed = client.list_objects_v2(Bucket=bucket, Prefix="out/killed/results/")
        return {found["Key"]: found["LastModified"] for found in listed.get("Contents", ())}

    before: dict[str, Any] = {}
    for shards, seconds in moments(seed):
        with subprocess.Popen(command, env=environ) as job:
            wait_until(lambda count=shards: len(written()) >= count, job)
            time.sleep(seconds)
            job.send_signal(signal.SIGKILL)
        after = written()
        assert before.items() <= after.items()  # no shard that had results was written again
        assert len(after) < SHARDS
        before = after
    subprocess.run(command, env=environ, check=True, timeout=END_S)
    assert before.items() <= written().items()
    target = store_at(weed.endpoint, bucket, "out/killed/")
    filled.check(records(target, "results"), records(target, "errors"))


def wait_until(done: Any, job: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + END_S
    while not done():
        assert job.poll() is None, "the job ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("seed", [3])
async def test_a_service(tmp_path: Path, seed: int) -> None:
    (tmp_path / "in").mkdir()
    good = {f"{number:04}.jpg": data for number, data in enumerate(pictures(IMAGES))}
    for name, data in good.items():
        (tmp_path / "in" / name).write_bytes(data)
    environ = {"POINTBOX_DATA_DIR": str(tmp_path / "data"), "POINTBOX_STORES": stores(tmp_path)}
    asked = {"source": {"store": "in"}, "out": {"store": "out"}, "objects": [PHRASE], "shard_size": SHARD}
    with service([sys.executable, "-m", "app.cli", "serve", "--port", "0"], **environ) as running:
        await running.ready()
        async with http(running) as client:
            job = (await client.post("/v1/jobs", json=asked)).json()["id"]
            results = tmp_path / "out" / job / "results"

            def written() -> dict[str, int]:
                return {path.name: path.stat().st_mtime_ns for path in results.glob("*.jsonl")}

            for shards, seconds in moments(seed):
                async with asyncio.timeout(END_S):
                    while len(written()) < shards:
                        await asyncio.sleep(0.05)
                await asyncio.sleep(seconds)
                before = written()
                worker = running.child("worker")
                os.kill(worker, signal.SIGKILL)
                await running.new_child("worker", worker)
                assert len(before) < SHARDS
            async with asyncio.timeout(END_S):
                while (shown := (await client.get(f"/v1/jobs/{job}")).json())["state"] == "running":
                    await asyncio.sleep(0.2)
            lines = (await client.get(f"/v1/jobs/{job}/results")).text.splitlines()
    assert (shown["state"], shown["progress"]["done"]) == ("completed", IMAGES)
    assert sorted(json.loads(line)["key"] for line in lines) == sorted(good)
    assert before.items() <= written().items()
    (database,) = (tmp_path / "data").glob("*.db")
    with sqlite3.connect(database) as rows:
        (attempts,) = rows.execute("select sum(attempts) from job_shard").fetchone()
    assert SHARDS <= attempts <= SHARDS + KILLS
