"""Buckets and folders: keys of all kinds, and what is said when they cannot be reached."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.jobs.errors import JobError, NoSuchKey, StoreAway
from app.jobs.places import S3Options, check_apart, check_job, destination, source
from app.jobs.s3 import S3Store
from app.jobs.stores import FolderStore, Store
from tests.jobs.servers import READER, Weed, client_of, free_ports, store_at

KEYS = [
    "plain.jpg",
    "with space.jpg",
    "a+b.jpg",
    "50%.jpg",
    "50%25.jpg",
    "#1.jpg",
    "ünï/çødé 猫.jpg",
    "deep/er/x.jpg",
    "q?x=1&y=2.jpg",
    "'quoted\".jpg",
    ".hidden",
]


def check_round_trip(store: Store, keys: list[str]) -> None:
    for key in keys:
        store.put(key, key.encode())
    listed = {entry.key: entry for entry in store.list()}
    assert set(listed) == set(keys)
    for key in keys:
        data, etag = store.get(key)
        assert data == key.encode()
        assert listed[key].etag == etag != ""
        assert listed[key].size == len(data)
        assert store.read(key, 0, 2) + store.read(key, 2, len(data)) == data


def test_keys_of_all_kinds_in_a_bucket(weed: Weed, bucket: str) -> None:
    check_round_trip(store_at(weed.endpoint, bucket, "some/pre fix/"), KEYS)


def test_keys_that_some_tools_fold(moto: str) -> None:
    client_of(moto).create_bucket(Bucket="odd")
    check_round_trip(store_at(moto, "odd"), [*KEYS, "a//b.jpg", "a/./b.jpg", "a/../c.jpg", "/d.jpg"])


def test_keys_in_a_folder(tmp_path: Path) -> None:
    check_round_trip(FolderStore(tmp_path / "new"), KEYS)


def test_folder_markers_are_no_images_and_empty_objects_are(weed: Weed, bucket: str) -> None:
    client = client_of(weed.endpoint)
    for key, body in (("in/", b""), ("in/sub/", b""), ("in/empty.jpg", b""), ("in/x.jpg", b"x")):
        client.put_object(Bucket=bucket, Key=key, Body=body)
    entries = store_at(weed.endpoint, bucket, "in/").list()
    assert {entry.key: entry.size for entry in entries} == {"empty.jpg": 0, "x.jpg": 1}


def test_more_keys_than_a_page_of_the_listing(weed: Weed, bucket: str) -> None:
    store = store_at(weed.endpoint, bucket)
    for number in range(1005):
        store.put(f"{number:04}", b"")
    assert [entry.key for entry in store.list()] == [f"{number:04}" for number in range(1005)]


def test_a_file_goes_up_whole(weed: Weed, bucket: str, tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(bytes(range(256)) * 40_000)  # over the size from which it goes up in parts
    store = store_at(weed.endpoint, bucket)
    store.put("big", path)
    assert store.get("big")[0] == path.read_bytes()
    assert store.size("big") == path.stat().st_size


def test_what_is_not_there(weed: Weed, bucket: str, tmp_path: Path) -> None:
    for store in (store_at(weed.endpoint, bucket), FolderStore(tmp_path)):
        for key in ("missing.jpg", "missing #.jpg"):
            with pytest.raises(NoSuchKey):
                store.get(key)
            with pytest.raises(NoSuchKey):
                store.size(key)
        assert list(store.list()) == []


def test_a_wrong_secret(weed: Weed, bucket: str) -> None:
    store = store_at(weed.endpoint, bucket, keys=("admin-key", "wrong"))
    for call in (lambda: list(store.list()), lambda: store.get("x"), lambda: store.put("x", b"x")):
        with pytest.raises(JobError, match="refuses the credentials"):
            call()


def test_a_missing_bucket(weed: Weed) -> None:
    with pytest.raises(JobError, match="there is no bucket 'nowhere'"):
        list(store_at(weed.endpoint, "nowhere").list())


def test_a_destination_that_may_only_be_read(weed: Weed, bucket: str) -> None:
    store = store_at(weed.endpoint, bucket, keys=READER)
    assert list(store.list()) == []
    with pytest.raises(JobError, match="does not let this caller write to"):
        store.put("x", b"x")


def test_a_server_that_is_away() -> None:
    store = store_at(f"http://127.0.0.1:{free_ports(1)[0]}", "any")
    for call in (lambda: list(store.list()), lambda: store.get("x"), lambda: store.put("x", b"x")):
        with pytest.raises(StoreAway, match="does not answer"):
            call()


def test_plain_http_must_be_meant() -> None:
    with pytest.raises(JobError, match="--s3-allow-http"):
        S3Store("any", endpoint="http://127.0.0.1:1")


def test_linked_folders_are_listed_and_loops_end(tmp_path: Path) -> None:
    root, other = tmp_path / "in", tmp_path / "other"
    for path in (root / "a.jpg", root / "sub" / "b.jpg", other / "deep" / "c.jpg"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (root / "linked").symlink_to(other)
    (root / "sub" / "again").symlink_to(other / "deep", target_is_directory=True)
    (root / "sub" / "up").symlink_to("..")  # a loop
    (other / "back").symlink_to(root)  # a loop by way of another folder
    (other / "out").symlink_to(tmp_path)  # above the source
    (root / "self").symlink_to("self")
    (root / "gone").symlink_to("nowhere")
    store = FolderStore(root)
    keys = [entry.key for entry in store.list()]
    files = {"a.jpg", "sub/b.jpg", "linked/deep/c.jpg", "sub/again/c.jpg"}
    assert sorted(keys) == sorted(files | {"self", "gone"})  # each of these two is an error of its own
    assert all(store.get(key)[0] == b"x" for key in files)
    for key in ("self", "gone"):
        with pytest.raises(NoSuchKey):
            store.get(key)


def test_a_folder_that_cannot_be_listed_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("in", "closed").mkdir(parents=True)
    for folder, mode in ((tmp_path, 0o755), (tmp_path / "in", 0o755), (tmp_path / "in" / "closed", 0)):
        folder.chmod(mode)
    monkeypatch.chdir(tmp_path)
    root = os.geteuid() == 0
    try:
        if root:  # who may read everything, unless it is somebody else for a moment
            os.seteuid(65534)
        with pytest.raises(JobError, match="in/closed cannot be listed: Permission denied"):
            list(FolderStore(Path("in")).list())
    finally:
        if root:
            os.seteuid(0)
    assert list(FolderStore(Path("nothing")).list()) == []


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / os.fsdecode(b"bad\xff.jpg")).write_bytes(b"x")
    store = FolderStore(tmp_path)
    assert [entry.key for entry in store.list()] == ["bad\ufffd.jpg", "pipe.jpg"]
    with pytest.raises(NoSuchKey, match="not a regular file"):
        store.get("pipe.jpg")
    with pytest.raises(NoSuchKey, match="names that are not UTF-8 cannot be read"):
        store.get("bad\ufffd.jpg")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(JobError, match="cannot be written"):
        FolderStore(tmp_path / "file").put("x", b"x")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the name of a folder is empty"),
        ("https://example.com/x", "neither a folder nor s3://"),
        ("s3://", "names no bucket"),
        ("no/such/folder", "no folder"),
        ("no/such.jsonl", "no manifest"),
        ("s3://only.csv", "names a bucket"),
    ],
)
def test_places_that_are_none(text: str, reason: str) -> None:
    with pytest.raises(JobError, match=reason):
        source(text, S3Options())


@pytest.mark.parametrize("name", ["../x", "/tmp/x", ".", "..", "a/b", "", ".hidden", "a b", "x" * 101])
def test_a_job_stays_in_its_folder(name: str) -> None:
    with pytest.raises(JobError, match="cannot be called"):
        check_job(name)


def test_results_stay_out_of_the_source(tmp_path: Path) -> None:
    images = destination(str(tmp_path / "images"), S3Options())
    check_apart(images, destination(str(tmp_path / "images-out"), S3Options()))
    for inside in ("images", "images/", "images/out"):
        with pytest.raises(JobError, match="inside the source"):
            check_apart(images, destination(str(tmp_path / inside), S3Options()))
    (tmp_path / "images").mkdir()
    (tmp_path / "link").symlink_to("images")
    with pytest.raises(JobError, match="inside the source"):
        check_apart(
            destination(str(tmp_path / "link"), S3Options()),
            destination(str(tmp_path / "images/out"), S3Options()),
        )
