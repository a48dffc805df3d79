"""Each file of a job emptied, cut, without its last line, or gone: no image is silently missing."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from litestar.exceptions import LitestarException

from app.jobs.errors import Damaged, JobError, ShardsDamaged
from app.jobs.opening import jobs_beside
from app.jobs.records import JobSpec, Result, to_document
from app.jobs.running import ROUNDS, finish, open_plan, read_end, read_summary, shards_left, whole_shard
from app.jobs.seals import read_seal
from app.jobs.shards import ShardRunner
from app.jobs.stores import FolderStore
from app.spatial.schemas import ImageInfo
from tests.admission.fakes import until
from tests.jobs.service import PICTURE, Jobs

IMAGES, SHARD = 9, 4


class Quick:
    """Answers every image with nothing, at once."""

    at_once = 4

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.errors: dict[str, Exception] = {}

    async def answer(self, key: str, data: bytes, phrases: Any, spec: JobSpec) -> Result:
        self.answered.append(key)
        if key in self.errors:
            raise self.errors[key]
        return Result(key=key, image=ImageInfo(width=1, height=1), objects=[], phrases=[])


class Batch:
    """A job over a folder, as `pointbox batch` runs it."""

    def __init__(self, root: Path) -> None:
        self.source, self.target = FolderStore(root / "in"), FolderStore(root / "out")
        self.folder = root / "out"
        self.keys = [f"{number}.png" for number in range(IMAGES)]
        for key in self.keys:
            self.source.put(key, PICTURE)
        self.source.put("bad.png", b"nonsense")
        self.spec = JobSpec(
            source=self.source.url,
            task="detect",
            phrases=["cat"],
            model="m",
            revision="r",
            format="coco",
            shard_size=SHARD,
        )

    def run(self, rounds: int = ROUNDS, shards: int | None = None) -> list[str]:
        """Go on with it, so many shards far; the images that were asked about."""
        quick = Quick()
        plan = open_plan("job", self.spec, self.source, self.target)
        left = shards_left(plan, self.target)[:shards]
        if shards is None and not left and read_end(plan, self.target) is not None:
            return []
        for round_ in range(rounds):
            asyncio.run(self.answer(left, quick, plan.parts))
            if shards is not None:
                break
            try:
                finish(plan, self.target)
                break
            except ShardsDamaged as error:
                left = error.shards
                assert round_ < rounds - 1
        return quick.answered

    async def answer(self, left: list[int], quick: Quick, parts: list[str]) -> None:
        async def begun(shard: int) -> None:
            pass

        runner = ShardRunner(self.spec, self.source, self.target, quick, begun, lambda good: None, parts)
        async for _ in runner.run(left):
            pass

    def check(self) -> None:
        """Every image once, in the shards and in what is made of them."""
        results, errors = list(self.lines("results")), list(self.lines("errors"))
        assert Counter(line["key"] for line in results) == Counter(self.keys)
        assert Counter(line["key"] for line in errors) == Counter(["bad.png"])
        summary = json.loads((self.folder / "summary.json").read_text())
        assert (summary["images"], summary["errors"]) == (IMAGES + 1, 1)
        images = json.loads((self.folder / "coco.json").read_text())["images"]
        assert [image["file_name"] for image in images] == self.keys
        assert len((self.folder / "errors.jsonl").read_text().splitlines()) == 1
        assert sum(shard["images"] for shard in json.loads((self.folder / "index.json").read_text())) == 10

    def lines(self, kind: str) -> Iterator[Any]:
        for path in sorted((self.folder / kind).iterdir()):
            yield from map(json.loads, path.read_text().splitlines())


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def without_last_line(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def without_last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def gone(path: Path) -> None:
    path.unlink()


CUTS = [empty, half, without_last_line, without_last_byte, gone]


@pytest.fixture(params=[1, None], ids=["half finished", "finished"])
def batch(request: pytest.FixtureRequest, tmp_path: Path) -> Batch:
    made = Batch(tmp_path)
    made.run(shards=request.param)
    return made


@pytest.mark.parametrize("cut", CUTS)
def test_each_file_of_a_batch(batch: Batch, tmp_path: Path, cut: Callable[[Path], None]) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(batch.folder, kept)
    files = sorted(path.relative_to(kept) for path in kept.rglob("*") if path.is_file())
    assert len(files) >= 3 + 1 + 3
    for name in files:
        shutil.rmtree(batch.folder)
        shutil.copytree(kept, batch.folder)
        cut(batch.folder / name)
        asked = batch.run()
        batch.check()
        if "results" not in name.parts and "errors" not in name.parts:
            assert len(asked) <= IMAGES - SHARD + 1, name  # what was answered is not asked again
        assert batch.run() == []  # and it is over


def test_results_that_were_changed_and_not_cut(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    batch.run(shards=2)
    path = batch.folder / "results" / "00001.jsonl"
    changed = path.read_text()
    path.write_text(changed.replace(batch.keys[5], batch.keys[0]))
    assert batch.keys[5] in changed
    batch.run()
    batch.check()


def test_results_of_an_earlier_version_have_no_seals(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    batch.run()
    shutil.rmtree(batch.folder / "seals")
    plan = open_plan("job", batch.spec, batch.source, batch.target)
    (batch.folder / "plan.json").write_bytes(to_document(msgspec.structs.replace(plan, parts=[])))
    assert batch.run() == []
    shutil.rmtree(batch.folder / "seals")
    without_last_line(batch.folder / "results" / "00001.jsonl")
    assert sorted(batch.run()) == batch.keys[4:8]
    batch.check()


def test_a_lost_plan_does_not_take_results_of_another_question(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    batch.run()
    half(batch.folder / "plan.json")
    batch.spec = msgspec.structs.replace(batch.spec, phrases=["dog"])
    assert sorted(batch.run()) == batch.keys  # all are asked again
    batch.check()
    assert json.loads((batch.folder / "summary.json").read_text())["spec"]["phrases"] == ["dog"]
    shutil.rmtree(batch.folder / "seals")
    half(batch.folder / "plan.json")
    with pytest.raises(
        JobError, match=r"results/00000.jsonl does not say what it answers: start another job"
    ):
        batch.run()


def test_a_list_of_images_that_cannot_be_made_again(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    batch.run(shards=1)
    batch.source.put("00.png", PICTURE)  # now every shard has other images
    half(batch.folder / "plan" / "00000.jsonl")  # its results are whole
    half(batch.folder / "plan" / "00001.jsonl")
    with pytest.raises(Damaged, match=r"plan/00001.jsonl in .* is damaged: start another job"):
        batch.run()


def test_a_store_that_loses_what_is_written_is_given_up(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    plan = open_plan("job", batch.spec, batch.source, batch.target)
    batch.run(shards=3)
    empty(batch.folder / "results" / "00002.jsonl")
    with pytest.raises(ShardsDamaged, match="in the shards 2") as lost:
        finish(plan, batch.target)
    assert lost.value.shards == [2]
    seal = read_seal(batch.target, 0)
    assert seal is not None
    assert whole_shard(plan, batch.target, 0).count.results_digest == seal.results_digest


def test_the_command_computes_again_what_is_lost(tmp_path: Path, scene: bytes) -> None:
    for number in range(5):
        FolderStore(tmp_path / "in").put(f"{number}.jpg", scene)
    command = [sys.executable, "-m", "app.cli", "batch", str(tmp_path / "in"), "--detect", "red circle"]
    command += ["--out", str(tmp_path / "out"), "--job", "mine", "--shard-size", "2"]
    folder = tmp_path / "out" / "mine"
    subprocess.run(command, check=True)
    whole = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    empty(folder / "results" / "00001.jsonl")
    half(folder / "plan" / "00002.jsonl")
    without_last_line(folder / "summary.json")
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "5 images answered, 0 with errors" in said
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == whole


async def ran(jobs: Jobs, job: str) -> None:
    """Let a runner go on with a job until it is complete."""
    stop = asyncio.Event()
    async with jobs_beside(jobs.settings, stop):
        ended = await jobs.in_state(job, "completed", "failed")
        stop.set()
    assert (ended["state"], ended["reason"]) == ("completed", "")


async def check(jobs: Jobs, job: str, keys: set[str]) -> None:
    assert Counter(line["key"] for line in await jobs.lines(job, "results")) == Counter(keys)
    assert [line["key"] for line in await jobs.lines(job, "errors")] == ["bad.png"]
    progress = (await jobs.show(job))["progress"]
    assert (progress["done"], progress["errors"]) == (len(keys) + 1, 1)
    assert read_summary(FolderStore(jobs.root / "out" / job)) is not None


@pytest.mark.parametrize("cut", [empty, half])
@pytest.mark.parametrize(
    "name",
    ["plan.json", "plan/00007.jsonl", "results/00000.jsonl", "errors/00000.jsonl", "seals/00000.json"],
)
async def test_a_job_of_a_service_goes_on(jobs: Jobs, name: str, cut: Callable[[Path], None]) -> None:
    keys = jobs.fill(40)
    (jobs.root / "in" / "bad.png").write_bytes(b"nonsense")
    job = (await jobs.submit()).json()["id"]
    folder, stop = jobs.root / "out" / job, asyncio.Event()
    async with jobs_beside(jobs.settings, stop):
        await until(lambda: (folder / "results" / "00000.jsonl").exists())
        stop.set()
    cut(folder / name)
    await ran(jobs, job)
    await check(jobs, job, keys)


@pytest.mark.parametrize("cut", [empty, without_last_line])
async def test_a_complete_job_of_a_service_is_read_whole_or_not(
    jobs: Jobs, cut: Callable[[Path], None]
) -> None:
    """Whatever file is cut, what is read is whole or a problem, and resuming mends it."""
    keys = jobs.fill(7)
    (jobs.root / "in" / "bad.png").write_bytes(b"nonsense")
    job = (await jobs.submit(format="coco")).json()["id"]
    await ran(jobs, job)
    await check(jobs, job, keys)
    folder = jobs.root / "out" / job
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    broken = 0
    for name in files:
        if not (folder / name).read_bytes():  # the errors of a shard without errors
            continue
        cut(folder / name)
        for what in ("results", "errors", "samples", "samples/0"):
            try:
                answer = await jobs.api.client.get(f"/v1/jobs/{job}/{what}")
            except LitestarException:  # lines of another shard were sent: the stream breaks off
                broken += 1
                continue
            if answer.status_code != 200:
                assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
                assert "Resume the job" in answer.json()["detail"]
                assert str(jobs.root) not in answer.text
                broken += 1
        resumed = (await jobs.api.client.post(f"/v1/jobs/{job}/resume")).json()
        at_once = name.parts[0] == "seals"  # they follow from the files that they are about
        assert resumed["state"] == ("completed" if at_once else "queued"), name
        await ran(jobs, job)
        await check(jobs, job, keys)
    assert broken >= 4
    assert (await jobs.api.client.post(f"/v1/jobs/{job}/resume")).json()["state"] == "completed"
