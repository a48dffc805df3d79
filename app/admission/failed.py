"""Models that cannot start: their supervisor says so in Redis for as long as it tries again.

failed            set of the slots below
failed:SLOT       what `FailedWorker` holds, with a TTL
reason:WORKER     what a worker that could not start said, for its supervisor
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from redis.asyncio import Redis

from app.admission.scripts import prefix
from app.admission.unreadable import FAULTS, skipped

KEEP_MS = 10_000
"""Published again before that."""
REASON_MS = 60_000


class FailedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """One engine worker that does not start."""

    model: str
    reason: str
    deaths: int
    """In a row, without having been ready."""


class FailedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model with workers that do not start; others of it may live, then it is in `models` as well."""

    name: str
    state: Literal["failed"] = "failed"
    reason: str
    """Of one of its workers."""
    workers: int
    """How many do not start; each is tried again, at longer and longer intervals."""


_decoder = msgspec.msgpack.Decoder(FailedWorker)


async def publish(redis: Redis, namespace: str, slots: dict[str, FailedWorker]) -> None:
    """All that fail now, by a name of the slot. Raises RedisError or OSError."""
    for slot, failed in slots.items():
        key = f"{prefix(namespace)}failed:{slot}"
        await redis.set(key, msgspec.msgpack.encode(failed), px=KEEP_MS)
        await redis.sadd(f"{prefix(namespace)}failed", slot)


async def withdraw(redis: Redis, namespace: str, slot: str) -> None:
    """It works. Raises RedisError or OSError."""
    await redis.delete(f"{prefix(namespace)}failed:{slot}")
    await redis.srem(f"{prefix(namespace)}failed", slot)


async def failed_models(redis: Redis, prefix: str) -> list[FailedModel]:
    """By name. Raises RedisError or OSError."""
    members: Any = await redis.smembers(f"{prefix}failed")
    slots = sorted(members)
    if not slots:
        return []
    records: Any = await redis.mget([f"{prefix}failed:".encode() + slot for slot in slots])
    if gone := [slot for slot, record in zip(slots, records, strict=True) if record is None]:
        await redis.srem(f"{prefix}failed", *gone)
    by_name: dict[str, list[FailedWorker]] = {}
    for record in records:
        try:
            if record is not None:
                worker = _decoder.decode(record)
                by_name.setdefault(worker.model, []).append(worker)
        except FAULTS as error:
            skipped("failed", error)
    return [
        FailedModel(name=name, reason=same[0].reason, workers=len(same))
        for name, same in sorted(by_name.items())
    ]


async def leave_reason(redis: Redis, namespace: str, worker: str, reason: str) -> None:
    """Of a worker that ends because it cannot start. Raises RedisError or OSError."""
    await redis.set(f"{prefix(namespace)}reason:{worker}", reason.encode(), px=REASON_MS)


async def reason_of(redis: Redis, namespace: str, worker: str) -> str | None:
    """What it said, if it did. Raises RedisError or OSError."""
    said: Any = await redis.get(f"{prefix(namespace)}reason:{worker}")
    return said.decode(errors="replace") if said else None
