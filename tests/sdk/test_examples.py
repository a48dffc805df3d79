"""The examples of the documentation do what they say, with a real service."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pointbox import Detection
from tests.app.running import CORNERS, truth
from tests.sdk.conftest import Live

_FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    from pointbox import .*\n(?:(?:    .*)?\n)*", re.MULTILINE)


@pytest.fixture
def folder(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that has the example pictures and may be written to; the service is where the client looks."""
    (tmp_path / "examples").symlink_to(Path("examples").resolve())
    monkeypatch.setenv("POINTBOX_URL", live.url)
    monkeypatch.setenv("POINTBOX_API_KEY", live.key)
    return tmp_path


def test_the_page_about_the_client(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = _FENCED.findall(Path("docs/sdk.md").read_text())
    assert len(examples) > 5
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    for example in examples:
        exec(compile(example, "docs/sdk.md", "exec"), names)
    said = capsys.readouterr().out
    assert "red circle" in said
    assert "UnsupportedMedia" in said or "not an image" in said
    assert "Progress(done=3, failed=1, total=3)" in said
    assert "truth.json decode" in said
    for written in ("out.png", "scene.txt", "task.json", "answer.json"):
        assert (folder / written).stat().st_size > 0


def test_the_readme(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = [textwrap.dedent(example) for example in _INDENTED.findall(Path("README.md").read_text())]
    assert len(examples) == 1
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(compile(examples[0], "README.md", "exec"), names)
    circle, star = names["result"]
    assert capsys.readouterr().out.startswith(f"red circle {circle.score} {circle.pixels}\nyellow star 0.")
    for box in (circle, star):
        (corners,) = truth("scene.jpg", box.label)
        true = Detection(label=box.label, score=1.0, **dict(zip(CORNERS, corners, strict=True)))
        assert box.iou(true) > 0.5
    assert (folder / "out.png").exists()
