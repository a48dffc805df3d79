"""One real service for all tests of this folder, started as users start it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.admission.conftest import shared_server
from tests.app.running import Service, serving

__all__ = ["shared_server"]


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that is ready. Once all tests ran it must end with status 0 on SIGTERM."""
    with serving(tmp_path_factory.mktemp("service") / "log.txt") as running:
        yield running
    assert running.process.returncode == 0, running.log.read_text()[-2000:]


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def scene() -> bytes:
    return Path("examples/scene.jpg").read_bytes()
