"""Both kinds of database."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from app.db.database import Database
from app.settings import Settings
from tests.db.postgres import postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """Empty, without tables."""
    settings = Settings(data_dir=str(tmp_path / "data"))
    if request.param == "postgresql":
        server, name = request.getfixturevalue("postgres_url"), f"t{uuid.uuid4().hex}"
        connection = await asyncpg.connect(server)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        settings = Settings(database_url=f"{server.rpartition('/')[0]}/{name}")
    opened = Database(settings)
    yield opened
    await opened.close()
