"""Jobs from Python, with a real service over folders."""

from __future__ import annotations

import time

import msgspec
import pytest
from msgspec.structs import replace

import pointbox
from pointbox import AsyncClient, Client, Job
from pointbox.jobs import JobFailure, Lines
from tests.sdk.conftest import Live
from tests.sdk.scripted import Script, ok, problem

WAIT_S = 300.0


def test_a_job_from_submission_to_results(client: Client) -> None:
    seen: list[Job] = []
    job = client.jobs.submit("scenes", "labels/mine", ["red circle", "star"], shard_size=2, min_score=0.2)
    assert (job.request.out.prefix, job.request.objects) == ("mine", ["red circle", "star"])
    ended = client.jobs.wait(job, timeout=WAIT_S, progress=seen.append, poll_s=0.2)
    assert (ended.state, ended.ended, ended.progress.images) == ("completed", True, 7)
    assert seen[-1] == ended == client.jobs.get(job.id)
    results = list(client.jobs.results(job))
    assert sorted(result.key for result in results) == [f"{number} #ü.jpg" for number in range(6)]
    answer = client.detect("examples/scene.jpg", ["red circle", "star"], min_score=0.2)
    for result in results:
        assert [box.label for box in result.objects] == [box.label for box in answer]
        assert result.objects[0].pixels == pytest.approx(answer[0].pixels, abs=0.1)
    (bad,) = client.jobs.errors(job)
    assert (bad.key, bad.stage) == ("bad.jpg", "decode")
    assert list(client.jobs.results(job, shard=1)) == results[2:4]
    assert next(client.jobs.list()).id == job.id
    assert client.jobs.cancel(job).state == client.jobs.resume(job).state == "completed"
    with pytest.raises(pointbox.NotFound):
        client.jobs.get("another")
    with pytest.raises(pointbox.InvalidRequest) as caught:
        client.jobs.submit("nowhere", "labels", "star")
    assert caught.value.field == "source.store"
    with pytest.raises(TypeError, match="'shards' is not known"):
        client.jobs.submit("scenes", "labels", "star", shards=3)  # type: ignore[call-arg]


async def test_a_job_from_asyncio(live: Live) -> None:
    async with AsyncClient(live.url, live.key) as client:
        job = await client.jobs.submit("scenes", "labels", "star", task="point")
        with pytest.raises(TimeoutError, match=job.id):
            await client.jobs.wait(job, timeout=0)
        ended = await client.jobs.wait(job, timeout=WAIT_S)
        results = [result async for result in client.jobs.results(ended)]
        assert sum(len(result.points) for result in results) == ended.progress.objects
        assert [failure.key async for failure in client.jobs.errors(ended)] == ["bad.jpg"]
        assert job.id in [listed.id async for listed in client.jobs.list()]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_come_in_pieces_of_any_size(size: int) -> None:
    failures = [JobFailure(key=f"ü {number}", stage="read", reason="gone") for number in range(3)]
    text = "\n".join(f'{{"key": "{f.key}", "stage": "read", "reason": "gone"}}' for f in failures).encode()
    lines = Lines(JobFailure, "r1")
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert [record for piece in [*pieces, b""] for record in lines.feed(piece)] == failures
    with pytest.raises(pointbox.InvalidResponse):
        list(Lines(JobFailure, "r1").feed(b"<html>\n"))


def test_a_url_is_told_when_a_job_has_ended(live: Live, script: Script) -> None:
    script.steps[:] = [problem("unavailable", 503), ok]
    with Client(live.url, live.key) as client:
        job = client.jobs.submit("pictures", "labels", "star", webhook=f"{script.url}/told")
        ended = client.jobs.wait(job, timeout=WAIT_S)
    until = time.monotonic() + WAIT_S
    while len(script.asked) < 2:
        assert time.monotonic() < until
        time.sleep(0.1)
    for told in script.asked:  # the first was refused
        assert (told.method, told.path) == ("POST", "/told")
        assert replace(msgspec.json.decode(told.body, type=Job), webhook=None) == replace(ended, webhook=None)
    assert len({told.headers["idempotency-key"] for told in script.asked}) == 1
    with Client(live.url, live.key) as client:
        while (outcome := client.jobs.get(job).webhook) is None or outcome.state != "delivered":
            assert time.monotonic() < until
            time.sleep(0.1)
    assert (outcome.attempts, outcome.status, outcome.error) == (2, 200, "")
