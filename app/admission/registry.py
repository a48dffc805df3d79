"""Which workers live, and what they serve."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from app.admission.messages import WorkerInfo, WorkerModel, decode_worker
from app.admission.scripts import prefix
from app.admission.unreadable import FAULTS, skipped

LEASE_S = 3.0
"""A worker that is silent for longer counts as dead, and its requests as lost."""
BEAT_S = 0.5


async def workers(redis: Redis, prefix: str) -> list[WorkerInfo]:
    """Workers whose heartbeat is younger than LEASE_S. Raises RedisError or OSError."""
    members: Any = await redis.smembers(f"{prefix}workers")
    names = sorted(members)
    if not names:
        return []
    infos: list[Any] = await redis.mget([f"{prefix}worker:".encode() + name for name in names])
    dead = [name for name, info in zip(names, infos, strict=True) if info is None]
    if dead:
        await redis.srem(f"{prefix}workers", *dead)
    return [worker for info in infos if info is not None for worker in _readable(info)]


def _readable(info: bytes) -> list[WorkerInfo]:
    try:
        return [decode_worker(info)]
    except FAULTS as error:
        skipped("worker", error)
        return []


def by_model(infos: list[WorkerInfo]) -> list[WorkerModel]:
    """One row per model name; what its workers disagree on is taken from the first."""
    rows: dict[str, list[WorkerInfo]] = {}
    for info in infos:
        rows.setdefault(info.name, []).append(info)
    return [
        WorkerModel(
            name=name,
            family=same[0].family,
            revision=same[0].revision,
            tasks=same[0].tasks,
            workers=len(same),
            capacity=sum(info.capacity for info in same),
            load=sum(info.load for info in same),
            adapters=same[0].adapters,
            job_runners=sum(info.runs_jobs for info in same),
        )
        for name, same in sorted(rows.items())
    ]


async def is_live(redis: Redis, namespace: str, worker: str) -> bool:
    """Whether this worker has published itself lately. Raises RedisError or OSError."""
    return bool(await redis.exists(f"{prefix(namespace)}worker:{worker}"))
