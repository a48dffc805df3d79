"""The tables. `alembic/versions` makes them; a test holds the two equal."""

from __future__ import annotations

import datetime

from advanced_alchemy.base import DefaultBase
from advanced_alchemy.types import DateTimeUTC
from sqlalchemy import BigInteger, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column


class ApiKey(DefaultBase):
    """A key without its secret: only a digest is kept, so a key that is lost is lost."""

    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    """UUID in hexadecimal; stands for the key in the queue, in usage and in logs."""
    prefix: Mapped[str] = mapped_column(String(16), unique=True)
    """The first characters of the key, to recognise it by."""
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    """SHA-256 of the whole key; its secret has 256 random bits, so nothing slower is needed."""
    name: Mapped[str] = mapped_column(String(100))
    tenant: Mapped[str] = mapped_column(String(64), index=True)
    scopes: Mapped[str] = mapped_column(String(200))
    """Words with spaces between them."""
    rate_per_minute: Mapped[int | None]
    concurrency: Mapped[int | None]
    created_at: Mapped[datetime.datetime] = mapped_column(DateTimeUTC(timezone=True))
    expires_at: Mapped[datetime.datetime | None] = mapped_column(DateTimeUTC(timezone=True))
    revoked_at: Mapped[datetime.datetime | None] = mapped_column(DateTimeUTC(timezone=True))


class KeyUsage(DefaultBase):
    """One count of one key on one UTC day."""

    __tablename__ = "key_usage"

    key_id: Mapped[str] = mapped_column(ForeignKey("api_key.id"), primary_key=True)
    day: Mapped[datetime.date] = mapped_column(primary_key=True)
    since: Mapped[str] = mapped_column(String(64), primary_key=True)
    """Names one unbroken count in Redis. A Redis that lost its data counts from 0 under another name, so the
    use of a day is the sum over these."""
    what: Mapped[str] = mapped_column(String(40), primary_key=True)
    """An outcome (completed, failed, ...), `phrases`, `input_tokens` or `output_tokens`."""
    number: Mapped[int] = mapped_column(BigInteger)
