"""Counts of use go from Redis, where each is made with the final answer, into the database.

Redis holds totals for a day, and the totals are written, not added: writing twice, from several processes, or
again after a crash, changes nothing.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import structlog
from redis.asyncio import Redis
from sqlalchemy import case, func, select
from sqlalchemy.dialects import postgresql, sqlite

from app.access.caller import BOOTSTRAP_ID, BOOTSTRAP_TENANT
from app.admission.connections import REDIS_ERRORS
from app.admission.scripts import prefix
from app.admission.unreadable import FAULTS, skipped
from app.db.database import DATABASE_ERRORS, Database, fault_of
from app.db.models import ApiKey, KeyUsage

RECORD_S = 5.0
DAY_S = 86_400
_EPOCH = datetime.date(1970, 1, 1).toordinal()

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DayOfUse:
    """What one key did on one UTC day: an outcome, phrases or tokens -> how many."""

    day: datetime.date
    tenant: str
    prefix: str
    numbers: dict[str, int]


async def record_usage(redis: Redis, namespace: str, database: Database) -> None:
    """Writes now and then, until cancelled, and then once more; through any absence of either."""
    try:
        while True:
            await _try_to_write(redis, namespace, database)
            await asyncio.sleep(RECORD_S)
    finally:  # an embedded Redis ends with the service, and what is not written by then is lost
        await _try_to_write(redis, namespace, database)


async def _try_to_write(redis: Redis, namespace: str, database: Database) -> None:
    try:
        await write_usage(redis, namespace, database)
    except (*REDIS_ERRORS, *DATABASE_ERRORS) as error:
        log.warning("usage is not written", error=fault_of(error))


async def write_usage(redis: Redis, namespace: str, database: Database) -> None:
    """Writes the totals of today and yesterday, by the clock of Redis."""
    seconds, _ = await redis.time()
    today = int(seconds) // DAY_S
    for day in (today - 1, today):
        counts: Any = await redis.hgetall(f"{prefix(namespace)}used:{day}")
        if counts:
            await _write_day(database, datetime.date.fromordinal(_EPOCH + day), counts)


async def usage(database: Database, days: int) -> list[DayOfUse]:
    """The latest `days` days, newest first, by tenant and key."""
    since = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=days - 1)
    total = func.sum(KeyUsage.number)
    query = (
        select(KeyUsage.day, ApiKey.tenant, ApiKey.prefix, KeyUsage.what, total)
        .join(ApiKey, ApiKey.id == KeyUsage.key_id)
        .where(KeyUsage.day >= since)
        .group_by(KeyUsage.day, ApiKey.tenant, ApiKey.prefix, KeyUsage.what)
        .order_by(KeyUsage.day.desc(), ApiKey.tenant, ApiKey.prefix)
    )
    found: dict[tuple[datetime.date, str, str], dict[str, int]] = {}
    async with database.session() as session:
        for day, tenant, key, what, number in await session.execute(query):
            found.setdefault((day, tenant, key), {})[what] = int(number)
    return [DayOfUse(*who, numbers) for who, numbers in found.items()]


async def _write_day(database: Database, day: datetime.date, counts: dict[bytes, bytes]) -> None:
    rows = list(_readable(day, counts))
    dialect = sqlite if database.is_sqlite else postgresql
    insert, insert_key = dialect.insert(KeyUsage), dialect.insert(ApiKey)
    higher = case((insert.excluded.number > KeyUsage.number, insert.excluded.number), else_=KeyUsage.number)
    upsert = insert.on_conflict_do_update(
        index_elements=list(KeyUsage.__mapper__.primary_key), set_={"number": higher}
    )
    key_ids = {row["key_id"] for row in rows}
    async with database.session() as session, session.begin():
        if BOOTSTRAP_ID in key_ids:
            await session.execute(insert_key.values(**_bootstrap_row()).on_conflict_do_nothing())
        known = await _known(session, key_ids)
        if mine := [row for row in rows if row["key_id"] in known]:
            await session.execute(upsert, mine)


def _readable(day: datetime.date, counts: dict[bytes, bytes]) -> Iterator[dict[str, Any]]:
    try:
        since = counts.pop(b"since").decode()
    except FAULTS as error:
        skipped("usage", error)
        return
    for name, number in counts.items():
        try:
            yield _row(day, since, name.decode(), int(number))
        except FAULTS as error:
            skipped("usage", error)


def _bootstrap_row() -> dict[str, Any]:
    """Counts need a row to belong to; its digest is that of no key, so nobody comes in by it."""
    now = datetime.datetime.now(datetime.UTC)
    names = {"id": BOOTSTRAP_ID, "prefix": BOOTSTRAP_ID, "name": "", "digest": "", "scopes": ""}
    return {**names, "tenant": BOOTSTRAP_TENANT, "created_at": now, "revoked_at": now}


async def _known(session: Any, ids: Iterable[str]) -> set[str]:
    """Those of the ids that this database has: another one may share the Redis."""
    return set(await session.scalars(select(ApiKey.id).where(ApiKey.id.in_(ids))))


def _row(day: datetime.date, since: str, name: str, number: int) -> dict[str, Any]:
    key_id, _, what = name.partition(":")
    return {"key_id": key_id, "day": day, "since": since, "what": what, "number": number}
