"""Lines of a job's files, read in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.jobs import lines
from app.jobs.errors import JobError
from app.jobs.lines import read_pieces
from app.jobs.stores import FolderStore, Store
from tests.jobs.servers import Weed, store_at

LINES = [b'{"n": %d, "text": "%s"}\n' % (n, b"x" * (n * 7 % 50)) for n in range(60)]
EVERY = slice(0, len(LINES))


def check(store: Store) -> None:
    store.put("results.jsonl", b"".join(LINES))
    for part in (EVERY, slice(0, 1), slice(0, 59), slice(1, 60), slice(17, 18), slice(17, 44), slice(60, 70)):
        pieces = list(read_pieces(store, "results.jsonl", part))
        assert b"".join(pieces) == b"".join(LINES[part]), part
        assert all(0 < len(piece) <= lines.PIECE_BYTES for piece in pieces)


@pytest.mark.parametrize("size", [1, 7, 100, 1000, 100_000])
def test_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(lines, "PIECE_BYTES", size)
    check(FolderStore(tmp_path))


def test_in_a_bucket(weed: Weed, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PIECE_BYTES", 500)
    check(store_at(weed.endpoint, bucket))


def test_one_piece_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PIECE_BYTES", 100)
    store = FolderStore(tmp_path)
    store.put("results.jsonl", b"".join(LINES))
    pieces = read_pieces(store, "results.jsonl", EVERY)
    next(pieces)
    (tmp_path / "results.jsonl").write_bytes(b"")
    with pytest.raises(JobError, match="shorter"):
        next(pieces)


def test_an_empty_file(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("errors.jsonl", b"")
    assert list(read_pieces(store, "errors.jsonl", EVERY)) == []
