"""A batch on a Ray of this machine, with two engines."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from app.cli import main

pytest.importorskip("ray")


def test_two_actors_share_a_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [f"{number} #ü.jpg" for number in range(12)]
    (tmp_path / "in").mkdir()
    for key in keys:
        shutil.copy("examples/scene.jpg", tmp_path / "in" / key)
    (tmp_path / "in" / "bad.png").write_bytes(b"")
    command = ["batch", str(tmp_path / "in"), "--detect", "red circle", "--out", str(tmp_path / "out")]
    command += ["--job", "shared", "--shard-size", "3", "--ray", "local", "--ray-actors", "2"]
    with pytest.raises(SystemExit, match="0"):
        main(command)
    assert "12 images answered, 1 with errors, 12 objects" in capsys.readouterr().out
    shards = sorted((tmp_path / "out" / "shared" / "results").glob("*.jsonl"))
    assert len(shards) == 5
    answered = [json.loads(line)["key"] for shard in shards for line in shard.read_text().splitlines()]
    assert Counter(answered) == Counter(keys)


def test_no_ray_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["batch", "examples", "--detect", "x", "--out", str(tmp_path), "--ray", "no address"])
    assert "There is no Ray at no address" in capsys.readouterr().err
