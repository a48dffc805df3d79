"""Callers who wait for their answers, alone and beside a job that keeps the engine busy."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.batch import PHRASE, pictures
from bench.load import Client, Phase
from bench.overhead import jpeg
from bench.serving import Service, make_key, service
from bench.workloads import questions

PICTURES = 1000
"""More than the engine keeps the keys and values of."""
ENDLESS = 50
"""How often the job's source has each picture: the job is cancelled in the end."""
START_S = 120.0
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Beside:
    """Milliseconds are p50 and p95 of the callers; rates are the job's images per second.

    job: alone, and beside the callers.
    """

    callers: int
    seconds: float
    alone_ms: tuple[float, float]
    beside_ms: tuple[float, float]
    job: tuple[float, float]
    failed: int

    @property
    def ratio(self) -> float:
        """Of the p95."""
        return self.beside_ms[1] / self.alone_ms[1]

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"ratio": self.ratio}


def run(callers: int, seconds: float, batch_share: float | None, tell: Callable[[str], None]) -> Beside:
    """Start a service with a job, measure, stop it.

    callers: each asks again as soon as it has its answer.
    batch_share: None: the service's default.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _fill(folder / "in")
        stores = {"in": {"url": f"{folder}/in"}, "out": {"url": f"{folder}/out", "write": True}}
        settings = {"auth": "on", "data_dir": f"{folder}/data", "stores": json.dumps(stores)}
        if batch_share is not None:
            settings["batch_share"] = str(batch_share)
        key = make_key("bench", settings, "infer,jobs")
        asked = [(question.phrase, jpeg(question.image, 90)) for question in questions(PICTURES, seed=1)]
        with service(**settings) as running:
            client = Client(running.url, key, TIMEOUT_S, asked)
            return asyncio.run(_measure(client, Jobs(running, key), callers, seconds, tell))


async def _measure(
    client: Client, jobs: Jobs, callers: int, seconds: float, tell: Callable[[str], None]
) -> Beside:
    await client.closed(callers, min(3.0, seconds))
    tell("the callers alone")
    alone = await client.closed(callers, seconds)
    job = await asyncio.to_thread(jobs.start)
    tell("the job alone")
    job_alone = await _rate_during(jobs, job, asyncio.sleep(seconds / 2))
    tell("the callers beside the job")
    phases: list[Phase] = []

    async def call() -> None:
        phases.append(await client.closed(callers, seconds))

    job_beside = await _rate_during(jobs, job, call())
    await asyncio.to_thread(jobs.cancel, job)
    client.close()
    (beside,) = phases
    ends = [*alone.ends, *beside.ends]
    return Beside(
        callers=callers,
        seconds=seconds,
        alone_ms=(alone.percentile(50), alone.percentile(95)),
        beside_ms=(beside.percentile(50), beside.percentile(95)),
        job=(job_alone, job_beside),
        failed=sum(ended.fate != "answered" for ended in ends),
    )


async def _rate_during(jobs: Jobs, job: str, what: Any) -> float:
    """Images per second of a job while something is awaited."""
    first, began = await asyncio.to_thread(jobs.done, job), time.perf_counter()
    await what
    done = await asyncio.to_thread(jobs.done, job)
    return (done - first) / (time.perf_counter() - began)


class Jobs:
    """The routes below /v1/jobs, for one key."""

    def __init__(self, running: Service, key: str) -> None:
        self._host = urlsplit(running.url).netloc
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    def start(self) -> str:
        """The id of a new job that answers images already."""
        asked = {"source": {"store": "in"}, "out": {"store": "out"}, "objects": [PHRASE]}
        job: str = self._call("POST", "", json.dumps(asked))["id"]
        until = time.monotonic() + START_S
        while not self.done(job):
            if time.monotonic() > until:
                raise RuntimeError("the job did not begin")
            time.sleep(0.2)
        return job

    def done(self, job: str) -> int:
        """Images; raises RuntimeError for a job that does not run."""
        shown = self._call("GET", f"/{job}")
        if shown["reason"] or shown["state"] not in ("queued", "running"):
            raise RuntimeError(f"the job is {shown['state']}: {shown['reason']}")
        return int(shown["progress"]["done"])

    def cancel(self, job: str) -> None:
        self._call("POST", f"/{job}/cancel")

    def _call(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        connection = HTTPConnection(self._host, timeout=START_S)
        connection.request(method, f"/v1/jobs{path}", body, self._headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} /v1/jobs{path} was answered {answer.status}: {text.decode()}")
        said: dict[str, Any] = json.loads(text)
        return said


def _fill(folder: Path) -> None:
    folder.mkdir()
    for number, data in enumerate(pictures(PICTURES)):
        first = folder / f"0-{number:04}.jpg"
        first.write_bytes(data)
        for again in range(1, ENDLESS):
            os.link(first, folder / f"{again}-{number:04}.jpg")
