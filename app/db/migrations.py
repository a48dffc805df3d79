"""Bring the tables to the version that this program needs."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from app.db.database import Database
from app.settings import SettingsError

_LOCK = 7_620_561_302
"""An arbitrary number: PostgreSQL's name for "somebody migrates"."""


def folder() -> Path:
    """Where the migrations lie: beside `app` in a checkout, in the data folder of an installation."""
    beside = Path(__file__).parents[2] / "alembic"
    installed = Path(sysconfig.get_path("data")) / "share" / "pointbox" / "alembic"
    return beside if (beside / "env.py").exists() else installed


async def upgrade(database: Database) -> str:
    """Run what is missing, one process at a time; the version afterwards.

    Raises:
        SettingsError: a later version of this program has made the tables, or the file cannot be written.
    """
    config = _config()
    async with _file_of(database), database.engine.begin() as connection:
        if not database.is_sqlite:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})

        def run(sync: Connection) -> None:
            _check_known(config, _version(sync))
            config.attributes["connection"] = sync
            command.upgrade(config, "head")

        await connection.run_sync(run)
    return _head(config)


async def prepare(database: Database) -> None:
    """Before a service uses it: an SQLite file is brought up to date, a server must be already.

    Raises:
        SettingsError: `pointbox db upgrade` has to be run first.
    """
    if database.is_sqlite:
        await upgrade(database)
        return
    async with database.engine.connect() as connection:
        version = await connection.run_sync(_version)
    config = _config()
    _check_known(config, version)
    head = _head(config)
    if version != head:
        found = "has no tables yet" if version is None else f"is at version {version}, not {head}"
        raise SettingsError(f"the database {found}: run `pointbox db upgrade`")


def _version(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _check_known(config: Config, version: str | None) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if version is not None and version not in known:
        raise SettingsError(
            f"the database is at version {version}, which this Pointbox does not know (it knows "
            f"{_head(config)}): install the version that the tables are of, or name another database"
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    return config


def _head(config: Config) -> str:
    return ScriptDirectory.from_config(config).get_current_head() or ""


@contextlib.asynccontextmanager
async def _file_of(database: Database) -> AsyncIterator[None]:
    """For SQLite: its folder exists, and no other process is in here. Raises SettingsError."""
    file = database.url.database
    if not database.is_sqlite or not file or file == ":memory:":
        yield
        return
    try:
        Path(file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite would let everybody read it
        lock = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        there = next(folder for folder in Path(file).absolute().parents if folder.exists())
        reason = error.strerror if there.is_dir() else f"{there} is a file and no folder"
        raise SettingsError(
            f"the database {file} cannot be written: {reason}; POINTBOX_DATA_DIR or POINTBOX_DATABASE_URL "
            "says where it is"
        ) from None
    try:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
