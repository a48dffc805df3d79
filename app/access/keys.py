"""Keys in the database: made, listed, revoked, found."""

from __future__ import annotations

import datetime
import re
import uuid
from dataclasses import dataclass

from advanced_alchemy.repository import SQLAlchemyAsyncRepository
from sqlalchemy import or_, select

from app.access.caller import ANONYMOUS, BOOTSTRAP_ID, SCOPES
from app.access.secret import digest_of, make_key, prefix_of
from app.db.database import Database
from app.db.models import ApiKey

_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")


class KeyFault(ValueError):
    """A key cannot be made or found so; the message is one line for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """What its maker decides. Limits of None are none; `expires_in` of None is never."""

    tenant: str
    name: str = ""
    scopes: tuple[str, ...] = ("infer",)
    rate_per_minute: int | None = None
    concurrency: int | None = None
    expires_in: datetime.timedelta | None = None

    def __post_init__(self) -> None:
        if not _TENANT.fullmatch(self.tenant):
            raise KeyFault("a tenant is 1 to 64 letters, digits and ._-")
        if self.tenant == ANONYMOUS.tenant:
            raise KeyFault(f"the tenant {self.tenant} is who calls without a key; choose another name")
        if len(self.name) > 100:
            raise KeyFault("a name has at most 100 characters")
        if not self.name.isprintable():
            raise KeyFault("a name is one line of letters that can be shown")
        if unknown := sorted(set(self.scopes) - set(SCOPES)):
            raise KeyFault(f"there is no scope {unknown[0]!r}; there are {', '.join(SCOPES)}")
        if not self.scopes:
            raise KeyFault("a key needs at least one scope")
        for what, value in (("rate", self.rate_per_minute), ("concurrency", self.concurrency)):
            if value is not None and not 1 <= value <= 1_000_000:
                raise KeyFault(f"the {what} must be between 1 and 1000000, not {value}")


class _Repository(SQLAlchemyAsyncRepository[ApiKey]):
    model_type = ApiKey


class Keys:
    """Every method raises DATABASE_ERRORS when the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, new: NewKey) -> tuple[ApiKey, str]:
        """Its row, and the key itself, which nobody can ever read again."""
        key, now = make_key(), _now()
        row = ApiKey(
            id=uuid.uuid4().hex,
            prefix=prefix_of(key),
            digest=digest_of(key),
            name=new.name,
            tenant=new.tenant,
            scopes=" ".join(scope for scope in SCOPES if scope in new.scopes),
            rate_per_minute=new.rate_per_minute,
            concurrency=new.concurrency,
            created_at=now,
            expires_at=now + new.expires_in if new.expires_in else None,
            revoked_at=None,
        )
        async with self._database.session() as session:
            await _Repository(session=session, auto_commit=True).add(row)
        return row, key

    async def all(self) -> list[ApiKey]:
        """By tenant, the oldest first."""
        async with self._database.session() as session:
            order = [("tenant", False), ("created_at", False)]
            rows = await _Repository(session=session, order_by=order).list()
        return [row for row in rows if row.id != BOOTSTRAP_ID]

    async def any(self) -> bool:
        """Whether a key could be used now."""
        return any(usable(row) for row in await self.all())

    async def revoke(self, name: str) -> ApiKey:
        """`name`: the prefix, the id, or the key itself. A second time changes nothing. Raises KeyFault."""
        wanted = or_(ApiKey.prefix == prefix_of(name), ApiKey.id == name) & (ApiKey.id != BOOTSTRAP_ID)
        async with self._database.session() as session, session.begin():
            row = (await session.execute(select(ApiKey).where(wanted))).scalar_one_or_none()
            if row is None:
                raise KeyFault(f"there is no key {prefix_of(name)}; `pointbox keys list` shows them all")
            row.revoked_at = row.revoked_at or _now()
        return row

    async def find(self, key: str) -> ApiKey | None:
        """The row of a key that may be used now."""
        async with self._database.session() as session:
            row = await _Repository(session=session).get_one_or_none(digest=digest_of(key))
        return row if row is not None and usable(row) else None


def usable(row: ApiKey) -> bool:
    """Neither revoked nor expired."""
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > _now())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
