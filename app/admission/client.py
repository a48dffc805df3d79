"""The API's side of the queue: submit a request, follow its events, cancel it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from dataclasses import dataclass
from typing import Any

import structlog
from redis.exceptions import ReadOnlyError

from app.admission import registry
from app.admission.connections import REDIS_ERRORS, consumer, producer
from app.admission.errors import AdmissionError, QueueFull, TenantQueueFull, Unavailable, UnknownModel
from app.admission.failed import FailedModel, failed_models
from app.admission.faults import FaultLog, may_evict
from app.admission.figures import Figures, read_figures
from app.admission.images import ImageRef
from app.admission.messages import (
    ENTRY_VERSION,
    Failure,
    Priority,
    SpatialParams,
    Terminal,
    WorkerModel,
    decode_terminal,
    encode,
)
from app.admission.replies import ReplyReader
from app.admission.scripts import Scripts
from app.admission.sender import Sender
from app.admission.tickets import Ticket
from app.deadlines import DETAIL, LATE_S
from app.intake.cost import ORDINARY, Cost
from app.settings import Settings
from app.supervised import supervised

__all__ = ["AdmissionClient", "Limits", "Ticket"]

log = structlog.get_logger(__name__)

WATCH_S = 0.5
AWAY_S = 5.0
"""Callers wait this long for a Redis that went away."""
READY_S = 2.0
"""A Redis that takes longer to say that it is there is not ready."""
POLICY_S = 30.0
"""Between two looks at whether Redis may drop what is still needed."""
CLOSE_S = 1.0
CANCELLED = Failure(problem="cancelled", detail="The request was cancelled.")
LATE = Failure(problem="deadline-exceeded", detail=DETAIL)
CLOSING = Failure(problem="unavailable", detail="The service is shutting down; send the request again.")
LOST = Failure(problem="unavailable", detail="The queue lost the request; send it again.")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be admitted and unanswered: requests, and image bytes."""

    depth: int = 1000
    tenant_depth: int = 500
    bytes: int = 512 * 1024 * 1024
    tenant_bytes: int = 256 * 1024 * 1024
    result_ttl_s: float = 300.0

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """The limits that the settings ask for."""
        return cls(
            settings.queue_depth,
            settings.tenant_queue_depth,
            settings.queue_bytes,
            settings.tenant_queue_bytes,
            settings.result_ttl_s,
        )


class AdmissionClient:
    """One per API process: one reply stream, read by one task.

    client = await AdmissionClient.connect(url, "default", Limits.of(settings))
    ticket = await client.submit(request_id=..., model="tiny", task="detect", ...)
    async for event in ticket.events(): ...
    """

    def __init__(self, url: str, namespace: str, limits: Limits) -> None:
        self._limits = limits
        self._redis = producer(url)
        self._reading = consumer(url)
        self._scripts = Scripts(self._redis, namespace)
        self._prefix = self._scripts.prefix
        self._reply = f"{self._prefix}reply:{secrets.token_hex(8)}"
        self._tickets: dict[str, Ticket] = {}
        self._reader = ReplyReader(self._reading, self._reply, self._tickets)
        self._heard = time.monotonic()
        """When Redis last answered the watcher."""
        self._orphans: dict[str, tuple[Failure, str]] = {}
        """Ids whose caller has gone without Redis knowing, and how their work ended for us."""
        self._faults = FaultLog()
        self._evicts: str | None = None
        """Why Redis may lose requests."""
        self._policy_at = float("-inf")
        self._tasks: list[asyncio.Task[None]] = []
        self._sender = Sender(self._scripts)
        self._models: list[WorkerModel] = []
        self._models_at = float("-inf")

    @classmethod
    async def connect(cls, url: str, namespace: str, limits: Limits | None = None) -> AdmissionClient:
        """Starts the reader. Does not fail when Redis is away: see `ready`."""
        client = cls(url, namespace, limits or Limits())
        client._tasks = [
            asyncio.create_task(supervised("admission-replies", client._reader.run)),
            asyncio.create_task(supervised("admission-watch", client._watch)),
        ]
        return client

    async def close(self) -> None:
        """Ends the reader; tickets still open fail as unavailable."""
        await self.give_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._reading.aclose()
        await self._redis.aclose()

    async def give_up(self) -> None:
        """Open tickets fail as unavailable, and their work ends if Redis can be told in `CLOSE_S`."""
        for ticket in list(self._tickets.values()):
            self._abandon(ticket, CLOSING)
        with contextlib.suppress(*REDIS_ERRORS):
            async with asyncio.timeout(CLOSE_S):
                await self._cancel_orphans()

    async def submit(
        self,
        *,
        request_id: str,
        model: str,
        task: str,
        params: SpatialParams,
        image: bytes | ImageRef,
        timeout_s: float,
        tenant: str = "anonymous",
        priority: Priority = "interactive",
        events: bool = True,
        traceparent: str = "",
        key_id: str = "",
        cost: Cost = ORDINARY,
    ) -> Ticket:
        """Puts a request into the queue, once however often the same `request_id` is submitted.

        Args:
            request_id: made by the server, unique over all tenants.
            image: the original bytes; they reach Redis once however many requests of a tenant share them, and
                not at all where they are referred to and Redis has them.
            timeout_s: from now, by the clock of Redis; by ours it ends `LATE_S` later.
            events: whether objects are told as they are found; if not, they come with the final answer.
            key_id: whose use it counts as, for that key and day.
            cost: of decoding the image: it counts as that many ordinary requests.

        Raises:
            QueueFull, TenantQueueFull: with `retry_after_s`.
            UnknownModel: no worker has this model.
            Unavailable: Redis cannot be reached, or no worker has been there for a minute.
        """
        new = request_id not in self._tickets
        ticket = self._tickets.setdefault(request_id, Ticket(request_id, timeout_s, self._cancel))
        self._orphans.pop(request_id, None)
        before_image = ENTRY_VERSION, request_id, model, priority, tenant, task, encode(params)
        after_image = (
            *(len(params.phrases), round(timeout_s * 1000)),
            *(self._reply, traceparent, round(self._limits.result_ttl_s * 1000), "1" if events else ""),
            *(self._limits.depth, self._limits.tenant_depth, self._limits.bytes, self._limits.tenant_bytes),
            *(key_id, cost.price, cost.memory, "1" if cost.costly else ""),
        )
        try:
            self._accept(ticket, model, await self._sender.admit(image, before_image, after_image))
        except BaseException as error:
            if new:
                self._withdraw(request_id, error)
            if isinstance(error, REDIS_ERRORS):
                raise self._faults.failed(error) from error
            raise
        return ticket

    async def models(self, max_age_s: float = 0.0) -> list[WorkerModel]:
        """The models that live workers serve, by name, as of `max_age_s` ago at most. Raises Unavailable."""
        if time.monotonic() > self._models_at + max_age_s:
            try:
                await self._look_for_models()
            except REDIS_ERRORS as error:
                raise self._faults.failed(error) from error
        return self._models

    async def _look_for_models(self) -> None:
        now = time.monotonic()
        self._models = registry.by_model(await registry.workers(self._redis, self._prefix))
        self._models_at = now

    async def failed_models(self) -> list[FailedModel]:
        """Models with workers that do not start. Raises Unavailable."""
        try:
            return await failed_models(self._redis, self._prefix)
        except REDIS_ERRORS as error:
            raise self._faults.failed(error) from error

    async def known_models(self) -> set[str]:
        """Names that may be asked for: of live workers, and of those that left lately. Raises Unavailable."""
        try:
            names: Any = await self._redis.zrange(f"{self._prefix}models", 0, -1)
        except REDIS_ERRORS as error:
            raise self._faults.failed(error) from error
        return {name.decode(errors="replace") for name in names}

    async def figures(self) -> Figures:
        """What `/metrics` shows. Raises Unavailable."""
        try:
            answer = await self._scripts.run("figures")
            return read_figures(answer, await registry.workers(self._redis, self._prefix))
        except REDIS_ERRORS as error:
            raise self._faults.failed(error) from error

    async def ready(self) -> tuple[bool, str]:
        """(Redis takes requests and a worker lives, why not)."""
        try:
            async with asyncio.timeout(READY_S):
                live = await registry.workers(self._redis, self._prefix)
                # a replica and a full Redis would only let us read
                await self._redis.set(f"{self._prefix}writable", 1, px=1000)
        except REDIS_ERRORS as error:
            return False, self._faults.failed(error).detail
        if self._evicts is not None:
            return False, self._evicts
        return (True, "") if live else (False, "no worker is running")

    def _withdraw(self, request_id: str, error: BaseException) -> None:
        self._tickets.pop(request_id, None)
        if not isinstance(error, AdmissionError):
            # perhaps it was admitted, with nobody left to wait
            self._orphans[request_id] = CANCELLED, "cancelled"

    def _accept(self, ticket: Ticket, model: str, answer: list[Any]) -> None:
        kind = answer[0].decode()
        if kind in ("queue-full", "tenant-queue-full"):
            refusal = QueueFull if kind == "queue-full" else TenantQueueFull
            raise refusal("Too much is waiting; try again later.", retry_after_s=float(answer[1]))
        if kind == "unknown-model":
            raise UnknownModel(f"No worker serves the model {model!r}.")
        if kind == "need-image":
            raise Unavailable("The queue has no room for the image.", retry_after_s=1.0)
        if kind == "no-worker":
            raise Unavailable("No worker is running.", retry_after_s=5.0)
        ticket.admitted = True
        if kind == "answered":
            self._conclude(ticket, decode_terminal(answer[1]))
        else:  # whatever Redis, its clock or the watcher do
            ticket.end_late(LATE_S, lambda: self._abandon(ticket, LATE, "expired"))

    def _conclude(self, ticket: Ticket, terminal: Terminal) -> None:
        if self._tickets.get(ticket.id) is ticket:
            del self._tickets[ticket.id]
        ticket.conclude(terminal)

    def _abandon(self, ticket: Ticket, failure: Failure, outcome: str = "cancelled") -> None:
        """Ends a ticket here and, as soon as Redis can be reached, its work there."""
        self._orphans[ticket.id] = failure, outcome
        self._conclude(ticket, failure)

    async def _cancel(self, ticket: Ticket) -> None:
        try:
            first = await self._scripts.run("cancel", ticket.id, encode(CANCELLED))
        except REDIS_ERRORS:
            self._abandon(ticket, CANCELLED)
        else:
            if first:
                self._conclude(ticket, CANCELLED)

    async def _watch(self) -> None:
        """Ends what is late, finds answers whose event got lost and requests that Redis lost."""
        while True:
            waiting = [ticket for ticket in self._tickets.values() if ticket.admitted]
            try:
                read = self._reader.last
                standing = await self._scripts.run("watch", self._reply, read, *(t.id for t in waiting))
                self._settle(waiting, standing)
                await self._cancel_orphans()
                await self._look_for_models()  # so that no request has to
                await self._look_at_policy()
                self._heard = time.monotonic()
                self._faults.worked()
            except REDIS_ERRORS as error:
                self._faults.failed(error)
                if isinstance(error, ReadOnlyError):
                    self._reading.renew()
                self._give_up(waiting)
            await asyncio.sleep(WATCH_S)

    async def _look_at_policy(self) -> None:
        if time.monotonic() > self._policy_at + POLICY_S:
            evicts = await may_evict(self._redis)
            if evicts is not None and self._evicts is None:
                log.error("Redis may lose requests", reason=evicts)
            self._evicts, self._policy_at = evicts, time.monotonic()

    def _settle(self, waiting: list[Ticket], standing: list[bytes | None]) -> None:
        for ticket, answer in zip(waiting, standing, strict=True):
            if answer is None:
                self._conclude(ticket, LOST)
            elif answer:
                self._conclude(ticket, decode_terminal(answer))

    async def _cancel_orphans(self) -> None:
        for request_id, (failure, outcome) in list(self._orphans.items()):
            await self._scripts.run("cancel", request_id, encode(failure), outcome)
            self._orphans.pop(request_id, None)

    def _give_up(self, waiting: list[Ticket]) -> None:
        now = time.monotonic()
        for ticket in waiting:
            if now > self._heard + AWAY_S:
                self._abandon(ticket, LOST)
