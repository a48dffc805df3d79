"""How much memory a batch takes: a matter of what is in flight, not of how many images there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.jobs.shards import BYTES_AHEAD
from bench.batch import folder_of, pictures, run_batch

pytestmark = pytest.mark.long

MB = 1_000_000
GROWTH_MB = 64
"""Of 1,000 small images more: docs/jobs.md."""


def test_three_times_the_images_take_no_more_memory() -> None:
    with folder_of(pictures(1500)) as folder:
        _, third = run_batch(folder / "third", 500)
        _, whole = run_batch(folder / "all", 1500)
    assert whole - third < GROWTH_MB


def test_large_files_are_let_go_when_they_are_answered(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    for folder, size in ((small, 0), (large, 2 * MB)):
        folder.mkdir()
        for number, data in enumerate(pictures(450)):
            with (folder / f"{number:03}.jpg").open("wb") as file:
                file.write(data)
                file.truncate(max(size, len(data)))
    _, base = run_batch(small, 450)
    _, whole = run_batch(large, 450)
    assert whole - base < (BYTES_AHEAD + 128 * MB) / MB
