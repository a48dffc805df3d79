"""`pointbox keys` and `pointbox db`. The database is imported late: the other commands start without it."""

from __future__ import annotations

import asyncio
import datetime
import re
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import App, Parameter

from app.problems import ProblemError
from app.settings import Settings, SettingsError

if TYPE_CHECKING:
    from app.db.database import Database
    from app.db.models import ApiKey

keys = App(name="keys", help="Make, list and revoke API keys, and show their use.")
db = App(name="db", help="Look after the database.")

LONGEST = datetime.timedelta(days=36_500)
_DURATION = re.compile(r"(\d+)([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
T = TypeVar("T")


@keys.command
def create(
    *,
    tenant: str,
    name: str = "",
    scopes: str = "infer",
    rate: int | None = None,
    concurrency: int | None = None,
    expires: str | None = None,
) -> int:
    """Make a key. It is printed once, alone on standard output, and cannot be shown again.

    Parameters
    ----------
    tenant
        Whose work it does: images, jobs and results are the tenant's, shared by its keys.
    name
        A note for the list.
    scopes
        Words with commas: infer (detect, point, images), jobs, metrics.
    rate
        Requests a minute; without it, as many as the queue takes.
    concurrency
        Requests open at a time.
    expires
        How long it works: 90d, 12h or 30m.
    """
    from app.access.keys import Keys, NewKey

    async def make(database: Database) -> tuple[ApiKey, str]:
        new = NewKey(
            tenant=tenant,
            name=name,
            scopes=tuple(scopes.replace(",", " ").split()),
            rate_per_minute=rate,
            concurrency=concurrency,
            expires_in=_duration(expires) if expires else None,
        )
        return await Keys(database).create(new)

    row, key = _with_database(make)
    note = f"Key {row.prefix} of tenant {row.tenant}: keep it, it is not shown again."
    print(note, file=sys.stderr)
    print(key)
    return 0


@keys.command(name="list")
def list_keys(*, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Show all keys: what each may do, and whether it works. The keys themselves are not kept.

    Parameters
    ----------
    json
        One JSON list instead of a table.
    """
    from app.access.keys import Keys
    from app.access.tables import show_keys

    show_keys(_with_database(lambda database: Keys(database).all()), json)
    return 0


@keys.command
def revoke(key: str, /) -> int:
    """End a key. API processes refuse it within five seconds.

    Parameters
    ----------
    key
        Its prefix, as `pointbox keys list` shows it.
    """
    from app.access.keys import Keys

    began = datetime.datetime.now(datetime.UTC)
    row = _with_database(lambda database: Keys(database).revoke(key))
    ended = row.revoked_at
    when = f"was revoked already, on {ended:%Y-%m-%d}" if ended and ended < began else "is revoked"
    print(f"Key {row.prefix} of tenant {row.tenant} {when}.")
    return 0


@keys.command
def usage(*, days: int = 30, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Show requests, phrases and tokens per day (UTC) and key.

    Parameters
    ----------
    days
        How many days back, with today.
    json
        One JSON list instead of a table.
    """
    if not 1 <= days <= LONGEST.days:
        raise SettingsError(f"--days must be between 1 and {LONGEST.days}, not {days}")
    from app.access.tables import show_usage
    from app.access.usage import usage as read_usage

    show_usage(_with_database(lambda database: read_usage(database, days)), json)
    return 0


@db.command
def upgrade() -> int:
    """Bring the database's tables to this version. For SQLite this also happens by itself."""
    from app.db.migrations import upgrade as run

    print(f"The database is at version {_with_database(run, prepared=False)}.")
    return 0


def _with_database(work: Callable[[Database], Awaitable[T]], prepared: bool = True) -> T:
    """What `work` returns. Raises SettingsError for whatever its caller can mend, ProblemError otherwise."""
    from app.access.keys import KeyFault
    from app.db.database import DATABASE_ERRORS, Database, fault_of
    from app.db.migrations import prepare

    async def run() -> T:
        database = Database(Settings.load())
        try:
            if prepared:
                await prepare(database)
            return await work(database)
        finally:
            await database.close()

    try:
        return asyncio.run(run())
    except KeyFault as fault:
        raise SettingsError(str(fault)) from None
    except DATABASE_ERRORS as error:
        raise ProblemError("unavailable", f"the database cannot be used: {fault_of(error)}") from None


def _duration(text: str) -> datetime.timedelta:
    found = _DURATION.fullmatch(text)
    if not found or not int(found[1]):
        raise SettingsError(f"--expires must look like 90d, 12h or 30m, not {text!r}")
    try:
        duration = datetime.timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        duration = datetime.timedelta.max
    if duration > LONGEST:
        raise SettingsError(f"--expires must be at most {LONGEST.days}d, not {text}; without it, never")
    return duration
