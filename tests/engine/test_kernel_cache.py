"""A cache folder that cannot be written costs time, not the service."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from engine.kernel_cache import ensure_writable_cache

knobs = pytest.importorskip("triton").knobs


def kept(key: str) -> bool:
    """Whether Triton can keep something, as it does with a compiled kernel."""
    from triton.runtime.cache import FileCacheManager

    manager = FileCacheManager(key)
    manager.put(b"kernel", "kernel.bin")
    return bool(manager.get_file("kernel.bin"))


def test_a_folder_that_can_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path / "new" / "cache")
        ensure_writable_cache()
        assert knobs.cache.dir == str(tmp_path / "new" / "cache")
        assert kept("a")
    assert not caplog.records


def test_a_folder_that_cannot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    caplog.set_level(logging.WARNING)
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path / "file" / "cache")
        with pytest.raises(OSError, match="file"):
            kept("a")
        ensure_writable_cache()
        assert kept("a")
    (record,) = caplog.records
    assert "TRITON_CACHE_DIR" in record.getMessage()
