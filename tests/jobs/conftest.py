"""Stores that the tests of jobs share."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from moto.server import ThreadedMotoServer
from PIL import Image

from engine.engine import Engine
from tests.admission.conftest import redis, settings, shared_server, start_work
from tests.jobs.servers import Weed, client_of
from tests.jobs.service import jobs, running

__all__ = ["jobs", "redis", "running", "settings", "shared_server", "start_work"]


@pytest.fixture(scope="session")
def weed() -> Iterator[Weed]:
    server = Weed()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def bucket(weed: Weed) -> str:
    """An empty one."""
    name = f"b{uuid4().hex[:12]}"
    client_of(weed.endpoint).create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The endpoint of a server that takes any key and any secret."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine.load("tiny") as engine:
        yield engine


@pytest.fixture(scope="session")
def scene() -> bytes:
    """A small JPEG with a red circle in it."""
    with Image.open(Path(__file__).parents[2] / "examples" / "scene.jpg") as image:
        small = io.BytesIO()
        image.resize((200, 150)).save(small, "JPEG")
    return small.getvalue()
