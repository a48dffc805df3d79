"""Before an API process starts to serve with a database: the tables are there, and somebody has a key."""

from __future__ import annotations

import structlog

from app.access.keys import Keys
from app.db.database import DATABASE_ERRORS, Database, fault_of
from app.db.migrations import prepare
from app.settings import Settings

log = structlog.get_logger(__name__)


async def open_database(settings: Settings) -> None:
    """A database that is away is no reason not to start: requests are refused until it is there.

    Raises:
        SettingsError: its tables are not those of this version.
    """
    database = Database(settings)
    try:
        await prepare(database)
        if settings.keys_needed and not settings.bootstrap_key and not await Keys(database).any():
            log.warning("nobody has a key: make one with `pointbox keys create --tenant NAME`")
    except DATABASE_ERRORS as error:
        log.warning("the database cannot be reached", error=fault_of(error))
    finally:
        await database.close()
