"""A service's job over S3 stores that have keys of their own and are granted to tenants."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.app.running import same, serving
from tests.jobs.buckets import PHRASE, fill
from tests.jobs.servers import ADMIN, READER, Weed, client_of

END_S = 900
KEYS = {
    "IN_KEY": READER[0],
    "IN_SECRET": READER[1],
    "OUT_KEY": ADMIN[0],
    "OUT_SECRET": ADMIN[1],
    "WRONG_SECRET": "wrong",
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
}


@dataclass(frozen=True)
class Labels:
    """A service whose stores lie in one bucket."""

    client: httpx.Client
    bucket: str
    environ: dict[str, str]
    keys: dict[str, dict[str, str]] = field(default_factory=dict)

    def key(self, tenant: str) -> dict[str, str]:
        """The header of the tenant's key."""
        if tenant not in self.keys:
            self.keys[tenant] = self._new_key(tenant)
        return self.keys[tenant]

    def _new_key(self, tenant: str) -> dict[str, str]:
        command = [
            sys.executable,
            "-m",
            "app.cli",
            "keys",
            "create",
            "--tenant",
            tenant,
            "--scopes",
            "infer,jobs",
        ]
        made = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=True)
        return {"authorization": f"Bearer {made.stdout.strip()}"}

    def run(self, asked: dict[str, Any], key: dict[str, str]) -> dict[str, Any]:
        """The job when it has ended."""
        answer = self.client.post("/v1/jobs", json=asked, headers=key)
        assert answer.status_code == 201, answer.text
        until = time.monotonic() + END_S
        while (job := self.show(answer.json()["id"], key))["state"] in ("queued", "running"):
            assert time.monotonic() < until, job
            time.sleep(0.2)
        return job

    def show(self, job: str, key: dict[str, str]) -> dict[str, Any]:
        return self.client.get(f"/v1/jobs/{job}", headers=key).json()  # type: ignore[no-any-return]

    def lines(self, job: str, what: str, key: dict[str, str]) -> list[dict[str, Any]]:
        answer = self.client.get(f"/v1/jobs/{job}/{what}", headers=key)
        return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture(scope="module")
def labels(weed: Weed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labels]:
    folder, bucket = tmp_path_factory.mktemp("labels"), f"b{uuid4().hex[:12]}"
    client_of(weed.endpoint).create_bucket(Bucket=bucket)
    environ = {"POINTBOX_DATA_DIR": str(folder), "POINTBOX_STORES": stores(weed, bucket, folder)}
    environ |= KEYS | {"POINTBOX_AUTH": "on"}
    with (
        serving(folder / "log.txt", **environ) as running,
        httpx.Client(base_url=running.url, timeout=120) as client,
    ):
        yield Labels(client, bucket, {**os.environ, **environ})


def stores(weed: Weed, bucket: str, folder: Path) -> str:
    """The path of a file for POINTBOX_STORES."""
    there = {"endpoint": weed.endpoint, "path_style": True, "allow_http": True}
    reading = there | {"access_key_env": "IN_KEY", "secret_key_env": "IN_SECRET"}
    writing = there | {"access_key_env": "OUT_KEY", "secret_key_env": "OUT_SECRET", "write": True}
    wrong = there | {"access_key_env": "OUT_KEY", "secret_key_env": "WRONG_SECRET"}
    named = {
        "in": reading | {"url": f"s3://{bucket}/in"},
        "out": writing | {"url": f"s3://{bucket}/out/"},
        "readable": reading | {"url": f"s3://{bucket}/out", "write": True},
        "wrong": wrong | {"url": f"s3://{bucket}/in"},
        "nowhere": reading | {"url": "s3://nowhere"},
        "acme": writing | {"url": f"s3://{bucket}/acme", "tenants": ["acme"]},
    }
    path = folder / "stores.json"
    path.write_text(json.dumps(named))
    return str(path)


@pytest.mark.parametrize(("images", "corrupt"), [(60, 8), pytest.param(1500, 40, marks=pytest.mark.long)])
def test_every_key_of_a_store(labels: Labels, weed: Weed, images: int, corrupt: int) -> None:
    filled = fill(client_of(weed.endpoint), labels.bucket, f"in/{images} +#%/", images, corrupt)
    key = labels.key("acme")
    asked = {"source": {"store": "in", "prefix": f"{images} +#%"}, "out": {"store": "acme", "prefix": "a b"}}
    job = labels.run(asked | {"objects": [PHRASE]}, key)
    assert (job["state"], job["reason"]) == ("completed", "")
    assert (job["progress"]["done"], job["progress"]["errors"]) == (images, len(filled.bad))
    results = labels.lines(job["id"], "results", key)
    filled.check(results, labels.lines(job["id"], "errors", key))
    by_key = {line["key"]: line for line in results}
    for name, data in filled.sample().items():
        headers = key | {"content-type": "image/jpeg"}
        alone = labels.client.post("/v1/detect", params={"object": PHRASE}, content=data, headers=headers)
        assert same(by_key[name] | {"image": alone.json()["image"]}, alone.json()), name


def test_a_store_is_there_for_its_tenants_alone(labels: Labels, weed: Weed) -> None:
    asked = {"source": {"store": "in"}, "out": {"store": "acme"}, "objects": [PHRASE]}
    for place in ("source", "out"):
        other = asked | {"source": {"store": "in"}, "out": {"store": "out"}, place: {"store": "acme"}}
        answer = labels.client.post("/v1/jobs", json=other, headers=labels.key("other"))
        assert (answer.status_code, answer.json()["field"]) == (422, f"{place}.store")
        assert "acme" not in answer.json()["detail"].partition(";")[2]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"source": {"store": "wrong", "prefix": "few"}}, "refuses the credentials"),
        ({"source": {"store": "nowhere"}}, "there is no bucket of nowhere at the server"),
        ({"out": {"store": "readable"}}, "does not let this caller write to"),
        ({"source": {"store": "in", "prefix": "mistyped"}}, "there is no image in"),
    ],
)
def test_stores_that_fail_a_job(labels: Labels, weed: Weed, changes: dict[str, Any], reason: str) -> None:
    fill(client_of(weed.endpoint), labels.bucket, "in/few/", 10, 1)
    asked = {"source": {"store": "in", "prefix": "few"}, "out": {"store": "out"}, "objects": [PHRASE]}
    job = labels.run(asked | changes, labels.key("acme"))
    assert (job["state"], reason in job["reason"]) == ("failed", True), job
    assert "secret" not in job["reason"]
