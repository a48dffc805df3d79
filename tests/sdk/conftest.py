"""A real service as its users start it, and a server that follows a script."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from pointbox import Client
from tests.app.running import serving
from tests.sdk.scripted import Script, scripted

KEY = "a-key-for-the-first-steps"


@dataclass(frozen=True)
class Live:
    """A service that wants keys and fetches images from 127.0.0.1."""

    url: str
    key: str
    environ: dict[str, str]
    """For commands that work on its database."""


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("sdk")
    scenes = folder / "scenes"
    scenes.mkdir()
    for number in range(6):
        shutil.copy("examples/scene.jpg", scenes / f"{number} #ü.jpg")
    (scenes / "bad.jpg").write_bytes(b"")
    environ = {
        "POINTBOX_AUTH": "on",
        "POINTBOX_BOOTSTRAP_KEY": KEY,
        "POINTBOX_DATA_DIR": str(folder),
        "POINTBOX_FETCH": "allowlist",
        "POINTBOX_FETCH_ALLOW": "127.0.0.0/8",
        "POINTBOX_STORES": json.dumps(
            {
                "pictures": {"url": str(Path("examples").resolve())},
                "scenes": {"url": str(scenes)},
                "labels": {"url": str(folder / "labels"), "write": True},
            }
        ),
    }
    with serving(folder / "log.txt", **environ) as running:
        yield Live(running.url, KEY, environ)


@pytest.fixture
def client(live: Live) -> Iterator[Client]:
    with Client(live.url, live.key) as client:
        yield client


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as script:
        yield script


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on where the person who runs it keeps a service."""
    for name in ("POINTBOX_URL", "POINTBOX_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def png() -> bytes:
    """A small picture."""
    sink = BytesIO()
    Image.new("RGB", (64, 48), (255, 0, 0)).save(sink, "PNG")
    return sink.getvalue()
