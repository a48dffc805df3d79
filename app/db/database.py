"""Connections to the database that the settings name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advanced_alchemy.exceptions import RepositoryError
from sqlalchemy import URL, event, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from app.settings import Settings, SettingsError

DATABASE_ERRORS = (SQLAlchemyError, RepositoryError, OSError)
"""What a query raises when the database is away."""
CONNECT_TIMEOUT_S = 5
COMMAND_TIMEOUT_S = 10
_SQLITE, _POSTGRES = "sqlite+aiosqlite", "postgresql+asyncpg"
_DRIVERS = {"sqlite": _SQLITE, "postgresql": _POSTGRES, "postgres": _POSTGRES}


def fault_of(error: BaseException) -> str:
    """What is wrong, for one that is met where a database is used: a line in the words of whoever found it.

    The libraries wrap it several times, with the statement and its values; none of that is told.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    words = error.strerror if isinstance(error, OSError) else str(error)
    return (words or type(error).__name__).splitlines()[0]


class Database:
    """An engine and its sessions: `async with database.session() as session, session.begin(): ...`."""

    def __init__(self, settings: Settings) -> None:
        self.url = url_of(settings)
        self.engine = _engine(self.url)
        self.session: async_sessionmaker[AsyncSession] = async_sessionmaker(
            self.engine, expire_on_commit=False
        )

    @property
    def is_sqlite(self) -> bool:
        """A file that this machine owns, as opposed to a server."""
        return self.url.get_backend_name() == "sqlite"

    async def close(self) -> None:
        """Closes its connections."""
        await self.engine.dispose()


def url_of(settings: Settings) -> URL:
    """The URL with the driver we use; without `database_url`, a file in the data folder.

    Raises:
        SettingsError: the URL cannot be read or names a database of another kind.
    """
    if not settings.database_url:
        return URL.create(_SQLITE, database=str(_folder(settings) / "pointbox.db"))
    try:
        url = make_url(settings.database_url)
    except (ArgumentError, ValueError):
        raise SettingsError(
            "POINTBOX_DATABASE_URL cannot be read: it should look like postgresql://USER@HOST/NAME"
        ) from None
    kind = url.drivername.partition("+")[0]
    if kind not in _DRIVERS:
        raise SettingsError(
            f"POINTBOX_DATABASE_URL must start with sqlite:// or postgresql://, not {kind}://"
        )
    url = url.set(drivername=_DRIVERS[kind])
    if kind == "sqlite" and url.database in (None, "", ":memory:"):
        raise SettingsError(
            "POINTBOX_DATABASE_URL names no file, and every process would have tables of its own: it should "
            "look like sqlite:////folder/pointbox.db"
        )
    if "sslmode" in url.query:  # asyncpg's name for what libpq calls sslmode
        mode = url.query["sslmode"]
        url = url.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})
    return url


def _folder(settings: Settings) -> Path:
    try:
        return Path(settings.data_dir).expanduser()
    except RuntimeError:  # a user without a home, as in a container
        raise SettingsError(
            f"POINTBOX_DATA_DIR is {settings.data_dir}, and there is no home; set another"
        ) from None


def _engine(url: URL) -> AsyncEngine:
    if url.get_backend_name() != "sqlite":
        limits = {"timeout": CONNECT_TIMEOUT_S, "command_timeout": COMMAND_TIMEOUT_S}
        return create_async_engine(url, pool_pre_ping=True, connect_args=limits)
    engine = create_async_engine(url)
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Several processes share the file: readers and a writer do not block each other in WAL mode."""
    cursor = connection.cursor()
    for pragma in ("busy_timeout = 5000", "journal_mode = WAL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
