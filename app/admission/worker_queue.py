"""The worker's side of the queue, one method per script."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from redis.asyncio import Redis

from app.admission.messages import (
    ENTRY_VERSION,
    Completed,
    Event,
    Failure,
    Priority,
    SpatialParams,
    Terminal,
    WorkerInfo,
    decode_params,
    encode,
)
from app.admission.registry import LEASE_S
from app.admission.scripts import Scripts
from app.admission.unreadable import FAULTS, skipped
from app.intake.cost import COSTLY, ORDINARY, Cost

ALL = 1_000_000
LEASE_MS = round(LEASE_S * 1000)
UNREADABLE = Failure(problem="internal", detail="The worker cannot read this request.")
_TEXTS = (b"tenant", b"task", b"priority", b"events", b"params", b"image", b"traceparent")


@dataclass(frozen=True, slots=True)
class Delivery:
    """A request in the hands of this worker. `attempt` tells it from earlier and later deliveries."""

    id: str
    attempt: int
    tenant: str
    task: str
    priority: Priority
    events: bool
    """Whether somebody follows the objects as they are found."""
    params: SpatialParams
    image: str
    """SHA-256 of the original bytes."""
    traceparent: str
    queue_ms: float
    deadline: float
    """time.monotonic() seconds."""
    cost: Cost = ORDINARY
    """Of decoding its image; an ordinary one's where the API process is of a version that tells none."""

    @property
    def rows(self) -> int:
        """What it takes of the engine: one row per phrase."""
        return len(self.params.phrases)

    @property
    def share(self) -> int:
        """What it takes of the worker until its image is decoded, in rows."""
        return self.rows + self.cost.price - 1

    @property
    def key(self) -> tuple[str, int]:
        """Names this delivery and no other."""
        return self.id, self.attempt


class WorkerQueue:
    """Every method raises RedisError or OSError when Redis is away; every one may be repeated."""

    def __init__(self, redis: Redis, namespace: str, worker: str, model: str) -> None:
        self._redis = redis
        self._scripts = Scripts(redis, namespace)
        self._worker = worker
        self._model = model
        self.inbox = f"{self._scripts.prefix}inbox:{worker}"
        self.wake = f"{self._scripts.prefix}wake:{model}"

    async def take(
        self,
        rows: int,
        batch_rows: int,
        flood: int,
        flood_rows: int,
        held: Mapping[str, int],
        costly: int = ALL,
    ) -> tuple[list[Delivery], bool]:
        """Requests that cost about so many phrases, the last one may go beyond; and whether more are waiting.

        When none are, the next one that there is room for is handed over as it is admitted, once: it comes in
        `inbox`, and `handed_over` reads it. `refuse` ends that.

        Args:
            rows: for interactive requests.
            batch_rows: for batch requests, which are given only when no interactive one is.
            flood: a tenant floods of whose requests more than these, by price, are waiting.
            flood_rows: what it may hold while others have requests.
            held: what this worker has, by tenant: the sum of `Delivery.share`.
            costly: how many requests with costly pictures may be among them.
        """
        limits = flood, flood_rows, costly, COSTLY
        arguments = (rows, batch_rows, ENTRY_VERSION, *limits, *_flat(held.items()))
        now, more, *taken = await self._scripts.run("take", self._worker, self._model, *arguments)
        return await self._readable([now, *taken]), bool(more)

    async def reclaim(self) -> Delivery | None:
        """One request of a dead worker; it must run alone here."""
        answer = await self._scripts.run("reclaim", self._worker, self._model, LEASE_MS, ENTRY_VERSION)
        claimed = await self._readable(answer)
        return claimed[0] if claimed else None

    async def _readable(self, answer: list[Any]) -> list[Delivery]:
        """A request that cannot be read ends here: nobody of this version could work on it."""
        now_ms, now = answer[0], time.monotonic()
        deliveries = []
        for parts in answer[1:]:
            try:
                deliveries.append(_delivery(parts, now_ms, now))
            except FAULTS as error:
                skipped("request", error)
                await self._scripts.run("finish", self._worker, *parts[:2], encode(UNREADABLE), "failed")
        return deliveries

    async def end_unreadable(self, fields: Mapping[bytes, bytes], error: BaseException) -> None:
        """An entry of the inbox that `handed_over` does not understand; a request that came so ends."""
        skipped("inbox", error)
        if b"id" in fields and fields.get(b"attempt", b"").isdigit():
            named = fields[b"id"], fields[b"attempt"]
            await self._scripts.run("finish", self._worker, *named, encode(UNREADABLE), "failed")

    async def beat(self, info: WorkerInfo, held: Iterable[tuple[str, int]]) -> tuple[bool, set[str]]:
        """Returns whether a dead worker left a request, and which of `held` are not ours any more."""
        answer = await self._scripts.run(
            "beat", self._worker, encode(info), LEASE_MS, self._model, LEASE_MS, ENTRY_VERSION, *_flat(held)
        )
        return bool(answer[0]), {name.decode() for name in answer[1:]}

    async def image(self, delivery: Delivery) -> bytes | None:
        """The original bytes; None when Redis does not have them any more."""
        data: Any = await self._redis.get(f"{self._scripts.prefix}image:{delivery.tenant}:{delivery.image}")
        return data if data is None else bytes(data)

    async def emit(self, delivery: Delivery, seq: int, events: Sequence[Event]) -> bool:
        """False when this delivery is not the current one: cancelled, late, or taken over."""
        payloads = [encode(event) for event in events]
        return bool(await self._scripts.run("emit", self._worker, *delivery.key, seq, *payloads))

    async def finish(self, delivery: Delivery, answer: Terminal) -> bool:
        """False when another final answer came first."""
        outcome = _outcome(answer)
        return bool(await self._scripts.run("finish", self._worker, *delivery.key, encode(answer), outcome))

    async def refuse(self) -> None:
        """From now on nothing is handed over that was not asked for."""
        for priority in get_args(Priority):
            idle = f"{self._scripts.prefix}idle:{ENTRY_VERSION}:{self._model}:{priority}"
            await self._redis.zrem(idle, self._worker)

    async def leave(self) -> None:
        """Says goodbye and gives back what is not finished."""
        await self._scripts.run("leave", self._worker, self._model, ENTRY_VERSION)


async def report_gone(redis: Redis, namespace: str, worker: str) -> None:
    """For a supervisor that saw `worker` die: its requests are redelivered without waiting for the lease."""
    await Scripts(redis, namespace).run("gone", worker, ENTRY_VERSION)


def handed_over(fields: Mapping[bytes, bytes]) -> Delivery | None:
    """The request of an entry of the inbox; None when the entry tells of a cancellation."""
    if b"params" not in fields:
        return None
    numbers = [int(fields[name]) for name in (b"attempt", b"admitted_ms", b"deadline_ms")]
    texts = [fields[name] for name in _TEXTS]
    cost = int(fields.get(b"price", 1)), int(fields.get(b"memory", 0))
    return _delivery([fields[b"id"], *numbers, *texts, *cost], numbers[1], time.monotonic())


def _outcome(answer: Completed | Failure) -> str:
    if isinstance(answer, Completed):
        return "completed"
    return "expired" if answer.problem == "deadline-exceeded" else "failed"


def _flat(held: Iterable[tuple[str, int]]) -> list[str | int]:
    return [part for pair in held for part in pair]


def _delivery(parts: list[Any], now_ms: int, now: float) -> Delivery:
    name, attempt, admitted_ms, deadline_ms, *rest = parts
    tenant, task, priority, events, params, image, traceparent, price, memory = rest
    return Delivery(
        id=name.decode(),
        attempt=attempt,
        tenant=tenant.decode(),
        task=task.decode(),
        priority="batch" if priority == b"batch" else "interactive",
        events=bool(events),
        params=decode_params(params),
        image=image.decode(),
        traceparent=traceparent.decode(),
        queue_ms=float(max(now_ms - admitted_ms, 0)),
        deadline=now + (deadline_ms - now_ms) / 1000,
        cost=Cost(price, memory),
    )
