"""The tables come from the migrations, and are the ones that the program means."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from app.db.database import DATABASE_ERRORS, Database, fault_of, url_of
from app.db.migrations import prepare, upgrade
from app.db.models import ApiKey
from app.settings import Settings, SettingsError

LATEST = max(path.name[:4] for path in (Path(__file__).parents[2] / "alembic" / "versions").glob("*.py"))


async def differences(database: Database) -> list[object]:
    async with database.engine.connect() as connection:
        return await connection.run_sync(
            lambda sync: compare_metadata(MigrationContext.configure(sync), ApiKey.metadata)
        )


async def test_the_migrations_make_the_tables_of_the_models(database: Database) -> None:
    assert await upgrade(database) == LATEST
    assert await differences(database) == []


async def test_several_processes_may_upgrade_at_once(database: Database) -> None:
    settings = Settings(database_url=database.url.render_as_string(hide_password=False))
    others = [Database(settings) for _ in range(3)]
    assert set(await asyncio.gather(*(upgrade(other) for other in others))) == {LATEST}
    for other in others:
        await other.close()


async def test_a_service_upgrades_sqlite_and_asks_for_it_elsewhere(database: Database) -> None:
    if database.is_sqlite:
        await prepare(database)
        file = Path(database.url.database or "")
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    else:
        with pytest.raises(SettingsError, match="has no tables yet: run `pointbox db upgrade`"):
            await prepare(database)
        await upgrade(database)
        await prepare(database)
    assert await differences(database) == []


async def test_sqlite_waits_for_a_writer_instead_of_failing(database: Database) -> None:
    await upgrade(database)
    if database.is_sqlite:
        async with database.engine.connect() as connection:
            assert (await connection.execute(text("PRAGMA journal_mode"))).scalar() == "wal"
            assert (await connection.execute(text("PRAGMA busy_timeout"))).scalar() == 5000


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgres://u:p@h/n", "postgresql+asyncpg://u:p@h/n"),
        ("postgresql://h/n?sslmode=require", "postgresql+asyncpg://h/n?ssl=require"),
        ("sqlite:////data/x.db", "sqlite+aiosqlite:////data/x.db"),
    ],
)
def test_urls_as_people_write_them(given: str, used: str) -> None:
    assert url_of(Settings(database_url=given)).render_as_string(hide_password=False) == used


@pytest.mark.parametrize("given", ["mysql://u:secret@h/n", "u:secret@h"])
def test_other_databases_are_refused_without_showing_the_password(given: str) -> None:
    with pytest.raises(SettingsError, match=r"^POINTBOX_DATABASE_URL ") as refused:
        url_of(Settings(database_url=given))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("given", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(given: str) -> None:
    with pytest.raises(SettingsError, match="names no file"):
        url_of(Settings(database_url=given))


async def test_what_a_server_refuses_is_told_in_its_words(postgres_url: str) -> None:
    server = postgres_url.rpartition("/")[0]
    login = f"postgresql://nobody:secret@{server.rpartition('@')[2]}"
    wrong = {f"{server}/none": '"none" does not exist', f"{login}/postgres": "password authentication failed"}
    for url, says in wrong.items():
        database = Database(Settings(database_url=url))
        with pytest.raises(DATABASE_ERRORS) as refused:
            await prepare(database)
        assert says in fault_of(refused.value)
        await database.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot be written"):
        asyncio.run(upgrade(Database(Settings(data_dir=str(tmp_path / "file" / "below")))))


def test_a_user_without_a_home_is_told_to_name_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 987_654)
    with pytest.raises(SettingsError, match=r"^POINTBOX_DATA_DIR "):
        url_of(Settings())
