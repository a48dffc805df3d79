"""A real service as its users start it, and a server that follows a script."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import pytest
from PIL import Image

from pointbox import Client
from tests.app.running import Service, serving
from tests.sdk.scripted import Script, scripted


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("sdk") / "log.txt") as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(service.url) as client:
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
