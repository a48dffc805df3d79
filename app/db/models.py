"""The tables. `alembic/versions` makes them; a test holds the two equal."""

from __future__ import annotations

import datetime

from advanced_alchemy.base import DefaultBase
from advanced_alchemy.types import DateTimeUTC
from sqlalchemy import BigInteger, ForeignKey, String, Text
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


class Job(DefaultBase):
    """A question about every image of a store; what it has found lies in a store, not here."""

    __tablename__ = "job"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(64), index=True)
    key_id: Mapped[str] = mapped_column(String(32))
    """Whose use its images count as; empty: there is no key in the database."""
    state: Mapped[str] = mapped_column(String(16), index=True)
    """queued, running, completed, failed or cancelled."""
    reason: Mapped[str] = mapped_column(String(1000))
    """Why it failed, or waits."""
    request: Mapped[str] = mapped_column(Text)
    """What was asked, as JSON."""
    spec: Mapped[str | None] = mapped_column(Text)
    """As JSON, once it is planned: with the revision of the model that its results come from."""
    webhook: Mapped[str | None] = mapped_column(String(2000))
    images: Mapped[int | None] = mapped_column(BigInteger)
    """Of the plan."""
    shards: Mapped[int | None]
    started_images: Mapped[int] = mapped_column(BigInteger)
    """Answered before the current start, for its rate."""
    open_images: Mapped[int]
    """Answered, of the shard that is being answered."""
    open_errors: Mapped[int]
    lease_owner: Mapped[str | None] = mapped_column(String(64))
    lease_until: Mapped[datetime.datetime | None] = mapped_column(DateTimeUTC(timezone=True))
    """Until then nobody else runs it."""
    notes: Mapped[str] = mapped_column(Text, default="", server_default="")
    """What whoever uses its files must know, a line each."""
    webhook_state: Mapped[str | None] = mapped_column(String(16))
    """pending, delivered or failed; null: the job has not ended, or has no webhook."""
    webhook_attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    webhook_status: Mapped[int | None]
    """HTTP status of the last answer, if there was one."""
    webhook_error: Mapped[str] = mapped_column(String(200), default="", server_default="")
    """Why the last attempt failed."""
    webhook_due: Mapped[datetime.datetime | None] = mapped_column(DateTimeUTC(timezone=True), index=True)
    """When the next attempt may begin, while the webhook is pending; in the future while one is under way."""
    webhook_owner: Mapped[str | None] = mapped_column(String(64))
    """Who makes, or made, the last attempt."""
    created_at: Mapped[datetime.datetime] = mapped_column(DateTimeUTC(timezone=True))
    started_at: Mapped[datetime.datetime | None] = mapped_column(DateTimeUTC(timezone=True))
    """Of the latest start."""
    ended_at: Mapped[datetime.datetime | None] = mapped_column(DateTimeUTC(timezone=True))


class JobShard(DefaultBase):
    """A shard of a job that was begun. Its images are listed beside the results, in `plan/N.jsonl`."""

    __tablename__ = "job_shard"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempts: Mapped[int]
    done: Mapped[bool]
    images: Mapped[int]
    errors: Mapped[int]
    objects: Mapped[int] = mapped_column(BigInteger)
    results_digest: Mapped[str] = mapped_column(String(100), default="", server_default="")
    """Length and SHA-256 of its results; empty: an earlier version wrote them."""
    errors_digest: Mapped[str] = mapped_column(String(100), default="", server_default="")
