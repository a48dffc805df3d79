"""Names that come from outside stay inside their store, and no error says what lies outside."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from app.jobs.errors import JobError, NoSuchKey
from app.jobs.stores import FolderStore
from tests.jobs.servers import Weed, client_of, store_at
from tests.jobs.service import PICTURE, Jobs

OUT = "the name leads out of its store"
SECRET = b"of somebody else"


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """A store with a picture, beside somebody else's folder, and links of all kinds."""
    (tmp_path / "theirs" / "deep").mkdir(parents=True)
    (tmp_path / "theirs" / "a.png").write_bytes(SECRET)
    (tmp_path / "theirs" / "deep" / "b.png").write_bytes(SECRET)
    mine = tmp_path / "mine"
    (mine / "sub").mkdir(parents=True)
    (mine / "sub" / "own.png").write_bytes(PICTURE)
    links = {
        "file-out": tmp_path / "theirs" / "a.png",
        "missing-out": tmp_path / "theirs" / "none.png",
        "folder-out": tmp_path / "theirs",
        "relative-out": Path("../theirs/a.png"),
        "up-and-out": Path("sub/../../theirs/a.png"),
        "chain-out": Path("folder-out/a.png"),
        "loop": Path("loop"),
        "inside": Path("sub/own.png"),
        "inside-absolute": mine / "sub" / "own.png",
        "folder-inside": Path("sub"),
        "sub/back-and-forth": Path("../sub/own.png"),
    }
    for name, target in links.items():
        (mine / name).symlink_to(target)
    return FolderStore(mine, confines=mine)


def outside(root: Path) -> list[str]:
    """Names of files outside, some of which are there and some not."""
    return [
        "../theirs/a.png",
        "../theirs/none.png",
        "sub/../../theirs/a.png",
        str(root / "theirs" / "a.png"),
        str(root / "theirs" / "none.png"),
        f"/{root}/theirs/a.png",
        "/etc/passwd",
        "..",
        "..\\theirs\\a.png",
        "file-out",
        "missing-out",
        "folder-out/a.png",
        "folder-out/none.png",
        "folder-out/deep/b.png",
        "relative-out",
        "up-and-out",
        "chain-out",
    ]


STRANGE = [
    "C:\\Windows\\win.ini",
    "\\\\server\\share\\a.png",
    "%2e%2e/theirs/a.png",
    "..%2ftheirs%2fa.png",
    "file:///etc/passwd",
    "~/a.png",
    "loop",
    "loop/a.png",
    "sub/own.png/more",
    "x" * 300,
    "y/" * 3000 + "a.png",
    "",
    "a\0b.png",
    "\ud800.png",
    ".",
    "sub",
]
"""Names that stay inside, where nothing is that could be read."""


def test_a_store_is_not_left(store: FolderStore, tmp_path: Path) -> None:
    for name in outside(tmp_path):
        for read in (store.get, store.size):
            with pytest.raises(NoSuchKey) as refused:
                read(name)
            assert str(refused.value) == OUT, name  # the same whether something is there or not
    for name in STRANGE:
        with pytest.raises(NoSuchKey):
            store.get(name)


@pytest.mark.parametrize(
    "name",
    ["inside", "inside-absolute", "folder-inside/own.png", "sub/back-and-forth", "./sub//own.png"],
)
def test_links_within_a_store_are_followed(store: FolderStore, name: str) -> None:
    assert store.get(name)[0] == PICTURE
    assert store.size(name) == len(PICTURE)


def test_links_that_lead_out_are_listed_as_what_cannot_be_read(store: FolderStore) -> None:
    listed = {entry.key: entry.size for entry in store.list()}
    good = {
        "inside",
        "inside-absolute",
        "sub/own.png",
        "sub/back-and-forth",
        "folder-inside/own.png",
        "folder-inside/back-and-forth",
    }
    assert {key for key, size in listed.items() if size} == good
    assert all(store.get(key)[0] == PICTURE for key in good)
    bad = {"file-out", "missing-out", "folder-out", "relative-out", "up-and-out", "chain-out", "loop"}
    assert listed.keys() - good == bad
    for key in bad - {"loop"}:
        with pytest.raises(NoSuchKey, match=OUT):
            store.get(key)


@pytest.mark.parametrize("name", ["folder-out/x", "folder-out/deep/x", "new/../../x"])
def test_nothing_is_written_outside(store: FolderStore, tmp_path: Path, name: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((JobError, NoSuchKey), match=OUT):
        store.put(name, b"x")
    with pytest.raises(JobError, match=OUT):
        list(store.within("folder-out").list())
    assert sorted(tmp_path.rglob("*")) == before


def test_writing_replaces_a_link_and_not_what_it_leads_to(store: FolderStore, tmp_path: Path) -> None:
    store.put("file-out", b"mine")
    assert store.get("file-out")[0] == b"mine"
    assert (tmp_path / "theirs" / "a.png").read_bytes() == SECRET
    store.put("folder-inside/new/x", b"x")
    assert (tmp_path / "mine" / "sub" / "new" / "x").read_bytes() == b"x"


def test_a_link_that_is_put_there_meanwhile(tmp_path: Path) -> None:
    """A folder that is a link for a moment, again and again, never leads out."""
    for folder, content in (("theirs", SECRET), ("mine/real", b"mine")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.png").write_bytes(content)
    place, swapped, over = tmp_path / "mine" / "folder", tmp_path / "swapped", threading.Event()
    (tmp_path / "mine" / "real").rename(place)

    def swap() -> None:
        while not over.is_set():
            place.rename(swapped)
            place.symlink_to(tmp_path / "theirs")
            place.unlink()
            swapped.rename(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    store, read = FolderStore(tmp_path / "mine", confines=tmp_path / "mine"), 0
    try:
        for _ in range(20_000):
            try:
                data, _ = store.get("folder/a.png")
            except NoSuchKey:
                continue
            assert data == b"mine"
            read += 1
    finally:
        over.set()
        swapping.join()
    assert read


def test_links_of_a_users_own_folder_lead_anywhere(store: FolderStore, tmp_path: Path) -> None:
    own = FolderStore(tmp_path / "mine")
    assert own.get("file-out")[0] == own.get("folder-out/deep/b.png")[0] == SECRET
    assert "folder-out/deep/b.png" in {entry.key for entry in own.list()}
    for name in ("../theirs/a.png", str(tmp_path / "theirs" / "a.png")):
        with pytest.raises(NoSuchKey, match=OUT):
            own.get(name)


def test_a_prefix_is_not_left(weed: Weed, bucket: str, moto: str) -> None:
    client_of(moto).create_bucket(Bucket=bucket)
    for endpoint in (weed.endpoint, moto):
        store_at(endpoint, bucket).put("theirs/a.png", SECRET)
        store = store_at(endpoint, bucket, "mine/")
        store.put("a.png", PICTURE)
        for name in (
            "../theirs/a.png",
            "../none.png",
            "x/../../theirs/a.png",
            "/../theirs/a.png",
            "x\0",
            "x" * 2000,
        ):
            for read in (store.get, store.size):
                with pytest.raises(NoSuchKey):
                    read(name)
        assert store.get("a.png")[0] == PICTURE


async def test_a_manifest_names_only_what_is_in_its_store(running: Jobs) -> None:
    root = running.root
    running.fill(1)
    (root / "theirs" / "deep").mkdir(parents=True)
    (root / "theirs" / "a.png").write_bytes(PICTURE)
    (root / "theirs" / "deep" / "b.png").write_bytes(PICTURE)
    for name, target in (
        ("file-out", root / "theirs" / "a.png"),
        ("missing-out", root / "theirs" / "none.png"),
        ("folder-out", root / "theirs"),
        ("relative-out", Path("../theirs/a.png")),
        ("up-and-out", Path("../in/../theirs/a.png")),
        ("chain-out", Path("folder-out/a.png")),
        ("loop", Path("loop")),
    ):
        (root / "in" / name).symlink_to(target)
    names = [*outside(root), *(name for name in STRANGE if name != "\ud800.png")]
    rows = [{"image": name} for name in [*names, "000 #ü.png"]]
    (root / "in" / "list.jsonl").write_text("\n".join(map(json.dumps, rows)))
    job = (await running.submit(source={"store": "in", "manifest": "list.jsonl"})).json()["id"]
    ended = await running.in_state(job, "completed", "failed")
    assert (ended["state"], ended["reason"]) == ("completed", "")
    assert [line["key"] for line in await running.lines(job, "results")] == ["000 #ü.png"]
    errors = {line["key"]: line for line in await running.lines(job, "errors")}
    assert errors.keys() == set(names)
    assert {line["stage"] for line in errors.values()} == {"read"}
    assert {errors[name]["reason"] for name in outside(root)} == {OUT}
    reasons = {errors[name]["reason"] for name in names}
    assert not any(str(root) in reason for reason in reasons)


@pytest.mark.parametrize("manifest", ["linked.jsonl", "linked/list.jsonl"])
async def test_a_manifest_is_not_read_through_a_link(running: Jobs, manifest: str) -> None:
    running.fill(1)
    (running.root / "theirs").mkdir()
    (running.root / "theirs" / "list.jsonl").write_text('{"image": "000 #ü.png"}')
    (running.root / "in" / "linked.jsonl").symlink_to(running.root / "theirs" / "list.jsonl")
    (running.root / "in" / "linked").symlink_to(running.root / "theirs")
    job = (await running.submit(source={"store": "in", "manifest": manifest})).json()["id"]
    ended = await running.in_state(job, "completed", "failed")
    assert (ended["state"], ended["reason"]) == ("failed", f"manifest {manifest} cannot be read: {OUT}")


async def test_source_and_destination_are_not_links_that_lead_out(running: Jobs) -> None:
    running.fill(1)
    theirs = running.root / "theirs"
    theirs.mkdir()
    (theirs / "a.png").write_bytes(PICTURE)
    (running.root / "out").mkdir()
    for store in ("in", "out"):
        (running.root / store / "linked").symlink_to(theirs)
    places: list[tuple[dict[str, Any], str]] = [
        ({"source": {"store": "in", "prefix": "linked"}}, f"in/linked cannot be listed: {OUT}"),
        ({"out": {"store": "out", "prefix": "linked"}}, OUT),
    ]
    for place, reason in places:
        job = (await running.submit(**place)).json()["id"]
        ended = await running.in_state(job, "completed", "failed")
        assert ended["state"] == "failed"
        assert reason in ended["reason"]
        assert str(running.root) not in ended["reason"]
    assert os.listdir(theirs) == ["a.png"]


async def test_a_picture_that_became_a_link_is_not_shown(running: Jobs) -> None:
    (key,) = running.fill(1)
    job = (await running.submit()).json()["id"]
    await running.in_state(job, "completed", "failed")
    (sample,) = (await running.api.client.get(f"/v1/jobs/{job}/samples")).json()["samples"]
    picture, theirs = running.root / "in" / key, running.root / "theirs.png"
    picture.rename(theirs)
    picture.symlink_to(theirs)  # the same bytes and the same etag
    answer = await running.api.client.get(sample["picture"])
    assert (answer.status_code, OUT in answer.json()["detail"]) == (404, True)
