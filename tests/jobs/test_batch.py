"""A whole job over a real bucket, with a real engine, in this process and in ones that are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.cli import main
from app.jobs.answering import EngineAnswerer
from app.jobs.errors import JobError
from app.jobs.records import JobSpec, Plan, Summary
from app.jobs.running import count_shard, finish, open_plan, read_summary, shards_left
from app.jobs.shards import ShardRunner
from app.jobs.stores import FolderStore, Store
from engine.engine import Engine
from tests.jobs.servers import ADMIN, Weed, client_of, store_at

WAIT_S = 300
ODD = ("a b.jpg", "c+d.jpg", "50%.jpg", "#5.jpg", "ünï 猫.jpg", "deep/er/e.jpg")


def spec_of(engine: Engine, source: Store, **changes: Any) -> JobSpec:
    given = {
        "source": source.url,
        "task": "detect",
        "phrases": ["red circle"],
        "model": engine.model_info.name,
        "revision": engine.model_info.revision,
        "shard_size": 10,
    }
    return JobSpec(**(given | changes))


def run(engine: Engine, spec: JobSpec, source: Store, target: Store) -> Summary:
    plan = open_plan("job", spec, source, target)
    asyncio.run(answer_all(plan, source, target, EngineAnswerer(engine)))
    return finish(plan, target)


async def answer_all(plan: Plan, source: Store, target: Store, answerer: EngineAnswerer) -> None:
    async def begun(shard: int) -> None:
        assert shard not in finished

    finished: list[int] = []
    runner = ShardRunner(plan.spec, source, target, answerer, begun, lambda good: None)
    async for shard, count in runner.run(shards_left(plan, target)):
        assert count == count_shard(target, shard)
        finished.append(shard)
    await answerer.close()


def lines(target: Store, kind: str) -> list[dict[str, Any]]:
    """Every record of all shards."""
    shards = sorted(entry.key for entry in target.within(kind).list())
    return [json.loads(line) for shard in shards for line in target.get(f"{kind}/{shard}")[0].splitlines()]


def fill(store: Store, scene: bytes, good: int) -> tuple[set[str], set[str]]:
    """Good images under ordinary and odd names, and bad ones of several kinds."""
    keys = {f"image-{number:04}.jpg" for number in range(good - len(ODD))} | set(ODD)
    for key in keys:
        store.put(key, scene)
    bad = {
        "empty.jpg": b"",
        "half.jpg": scene[: len(scene) // 2],
        "note.txt": b"hello",
        "fake.png": b"\x89PNG\r\n",
    }
    for key, data in bad.items():
        store.put(key, data)
    return keys, set(bad)


def test_every_image_once_with_a_result_or_an_error(
    weed: Weed, bucket: str, engine: Engine, scene: bytes
) -> None:
    source = store_at(weed.endpoint, bucket, "in/")
    target = store_at(weed.endpoint, bucket, "out/")
    client_of(weed.endpoint).put_object(Bucket=bucket, Key="in/folder/", Body=b"")
    good, bad = fill(source, scene, 30)
    summary = run(engine, spec_of(engine, source), source, target)
    results, errors = lines(target, "results"), lines(target, "errors")
    assert Counter(r["key"] for r in results) == Counter(good)
    assert Counter(e["key"] for e in errors) == Counter(bad)
    assert {e["stage"] for e in errors} == {"decode"}
    assert (summary.images, summary.errors) == (len(good) + len(bad), len(bad))
    assert (
        summary.objects == summary.objects_by_phrase["red circle"] == len(good) * len(results[0]["objects"])
    )
    alone = engine.detect(np_of(scene), "red circle")
    for result in results:
        assert [o["x_min"] for o in result["objects"]] == pytest.approx(
            [o.x_min for o in alone.objects], abs=1e-5
        )
    assert read_summary(target) == summary
    assert [json.loads(line)["key"] for line in target.get("errors.jsonl")[0].splitlines()] == [
        e["key"] for e in errors
    ]


def np_of(data: bytes) -> Any:
    from app.intake.decode import decode

    return decode(data).image


def test_a_job_that_is_over_is_left_alone(tmp_path: Path, engine: Engine, scene: bytes) -> None:
    source, target = FolderStore(tmp_path / "in"), FolderStore(tmp_path / "out")
    source.put("a.jpg", scene)
    spec = spec_of(engine, source)
    run(engine, spec, source, target)
    source.put("b.jpg", scene)  # after the plan: not of this job
    plan = open_plan("job", spec, source, target)
    assert (plan.images, shards_left(plan, target)) == (1, [])


@pytest.mark.parametrize(
    "change", [{"revision": "other"}, {"phrases": ["star"]}, {"max_objects": 3}, {"source": "elsewhere"}]
)
def test_a_job_does_not_go_on_with_other_parameters(
    tmp_path: Path, engine: Engine, scene: bytes, change: dict[str, Any]
) -> None:
    source, target = FolderStore(tmp_path / "in"), FolderStore(tmp_path / "out")
    source.put("a.jpg", scene)
    open_plan("job", spec_of(engine, source), source, target)
    other = msgspec.structs.replace(spec_of(engine, source), **change)
    with pytest.raises(JobError, match=f"was planned with {next(iter(change))} "):
        open_plan("job", other, source, target)


def test_an_image_that_changed_after_the_plan_is_an_error(
    tmp_path: Path, engine: Engine, scene: bytes
) -> None:
    source, target = FolderStore(tmp_path / "in"), FolderStore(tmp_path / "out")
    for key in ("a.jpg", "b.jpg", "c.jpg"):
        source.put(key, scene)
    spec = spec_of(engine, source)
    open_plan("job", spec, source, target)
    source.put("b.jpg", scene + b"more")
    (tmp_path / "in" / "c.jpg").unlink()
    summary = run(engine, spec, source, target)
    assert (summary.images, summary.errors) == (3, 2)
    assert {e["key"]: e["stage"] for e in lines(target, "errors")} == {"b.jpg": "read", "c.jpg": "read"}


def test_the_store_is_away_for_a_while(engine: Engine, scene: bytes, tmp_path: Path) -> None:
    server = Weed()
    server.start()
    try:
        client_of(server.endpoint).create_bucket(Bucket="away")
        source, target = store_at(server.endpoint, "away", "in/"), FolderStore(tmp_path / "out")
        good, bad = fill(source, scene, 40)
        spec = spec_of(engine, source)
        open_plan("job", spec, source, target)
        server.stop()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run, engine, spec, source, target)
            time.sleep(1)  # it is away so long, and while it starts
            server.start()
            summary = running.result(WAIT_S)
        assert (summary.images, summary.errors) == (len(good) + len(bad), len(bad))
    finally:
        server.remove()


def test_killed_again_and_again_nothing_is_missing_and_nothing_twice(
    weed: Weed, bucket: str, scene: bytes
) -> None:
    source = store_at(weed.endpoint, bucket, "in/")
    good, bad = fill(source, scene, 100)
    where = [f"s3://{bucket}/in", "--detect", "red circle", "--out", f"s3://{bucket}/out"]
    command = [sys.executable, "-m", "app.cli", "batch", *where, "--shard-size", "15", "--job", "killed"]
    command += ["--s3-endpoint", weed.endpoint, "--s3-path-style", "--s3-allow-http"]
    target = store_at(weed.endpoint, bucket, "out/killed/")
    environ = os.environ | {"AWS_ACCESS_KEY_ID": ADMIN[0], "AWS_SECRET_ACCESS_KEY": ADMIN[1]}
    written: dict[str, str] = {}
    for shards in (1, 3):
        with subprocess.Popen(command, env=environ) as job:
            wait_for_shards(target, shards, job)
            job.send_signal(signal.SIGKILL)
        done = {entry.key: entry.etag for entry in target.within("results").list()}
        assert written.items() <= done.items()  # what was written stays as it is
        written = done
    subprocess.run(command, env=environ, check=True, timeout=WAIT_S)
    assert Counter(r["key"] for r in lines(target, "results")) == Counter(good)
    assert Counter(e["key"] for e in lines(target, "errors")) == Counter(bad)
    summary = read_summary(target)
    assert summary is not None
    assert (summary.images, summary.errors) == (len(good) + len(bad), len(bad))


def wait_for_shards(target: Store, count: int, job: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(list(target.within("results").list())) < count:
        assert job.poll() is None, "the job ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, scene: bytes) -> None:
    source = FolderStore(tmp_path / "in")
    fill(source, scene, 200)
    command = [
        sys.executable,
        "-m",
        "app.cli",
        "batch",
        str(tmp_path / "in"),
        "--point",
        "red circle",
        "star",
    ]
    command += ["--out", str(tmp_path / "out"), "--shard-size", "10", "--job", "mine"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as job:
        wait_for_shards(FolderStore(tmp_path / "out" / "mine"), 1, job)
        job.send_signal(signal.SIGINT)
        _, said = job.communicate(timeout=WAIT_S)
    assert job.returncode == 130
    assert "run the same command again to go on" in said
    assert "Traceback" not in said


def test_a_job_that_is_over_does_not_answer_another_question(
    tmp_path: Path, scene: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    FolderStore(tmp_path / "in").put("a.jpg", scene)
    command = ["batch", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--job", "mine", "--detect"]
    with pytest.raises(SystemExit, match="0"):
        main([*command, "red circle"])
    with pytest.raises(SystemExit, match="2"):
        main([*command, "star"])
    assert "job mine was planned with phrases" in capsys.readouterr().err


def test_results_of_a_manifest_may_lie_beside_it(
    tmp_path: Path, scene: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jpg").write_bytes(scene)
    (tmp_path / "list.csv").write_text("image,phrase\na.jpg,red circle\n")
    with pytest.raises(SystemExit, match="0"):
        main(["batch", str(tmp_path / "list.csv"), "--out", str(tmp_path / "out"), "--job", "mine"])
    assert "1 images answered, 0 with errors" in capsys.readouterr().out
    assert (tmp_path / "out" / "mine" / "summary.json").exists()


def test_one_plan_reads_as_it_was_written(tmp_path: Path, engine: Engine, scene: bytes) -> None:
    source, target = FolderStore(tmp_path / "in"), FolderStore(tmp_path / "out")
    for number in range(25):
        source.put(f"{number:02}.jpg", scene)
    plan = open_plan("job", spec_of(engine, source), source, target)
    assert plan == Plan(job="job", spec=spec_of(engine, source), images=25, shards=3, parts=plan.parts)
    assert plan == open_plan("job", spec_of(engine, source), source, target)
    target.put("plan.json", b"{}")
    with pytest.raises(JobError, match="not a job's plan"):
        open_plan("job", spec_of(engine, source), source, target)
