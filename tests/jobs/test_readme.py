"""The README's job over a folder does what it says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from app.cli import main


def test_the_batch_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (command,) = re.findall(
        r"^    \.venv/bin/pointbox (batch .*)$", Path("README.md").read_text(), re.MULTILINE
    )
    (tmp_path / "examples").symlink_to(Path("examples").resolve())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        main(shlex.split(command))
    job = tmp_path / "labels" / "shapes"
    results = [json.loads(line) for line in (job / "results" / "00000.jsonl").read_text().splitlines()]
    assert {"scene.jpg", "table.jpg", "poster.png"} <= {result["key"] for result in results}
    errors = [json.loads(line)["key"] for line in (job / "errors.jsonl").read_text().splitlines()]
    assert "truth.json" in errors
    assert len(json.loads((job / "coco.json").read_text())["images"]) == len(results)
    assert "yellow star: " in capsys.readouterr().out
