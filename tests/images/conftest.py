"""The queue's fixtures, and an API in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from app.settings import Settings
from tests.admission.conftest import client as queue_client
from tests.admission.conftest import redis, settings, shared_server, start_work
from tests.app.api import serving_api

__all__ = ["api", "queue_client", "redis", "settings", "shared_server", "start_work"]


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    async with serving_api(settings) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client
