"""A service's job asks through the queue, at batch priority, so that other callers go first."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from app.admission.client import AdmissionClient
from app.admission.errors import QueueFull, TenantQueueFull, Unavailable, UnknownModel
from app.admission.messages import Failure, SpatialParams
from app.intake.cost import ORDINARY, Cost
from app.intake.sniff import check
from app.jobs.errors import StoreAway
from app.jobs.records import JobSpec, Result
from app.problems import ProblemError
from app.spatial.answers import build_answer

TIMEOUT_S = 600.0
PATIENCE_S = 600.0
"""How long workers may be away before the job is put back, with its shard under way."""
PAUSE_S = 1.0
_PASSING = {"unavailable", "cancelled", "deadline-exceeded"}
"""Problems that have to do with the service and not with the image."""


@dataclass(frozen=True, slots=True)
class QueueAnswerer:
    """Asks as a tenant; what it asks counts as the use of a key."""

    client: AdmissionClient
    tenant: str
    key_id: str
    at_once: int

    async def answer(self, key: str, data: bytes, phrases: Sequence[str], spec: JobSpec) -> Result:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await self._ask(key, data, phrases, spec)
            except UnknownModel as error:
                raise StoreAway(f"no worker serves the model {spec.model!r}") from error
            except (QueueFull, TenantQueueFull, Unavailable) as error:
                wait_s = getattr(error, "retry_after_s", None) or PAUSE_S
                reason = str(error)
            except ProblemError as problem:
                if problem.slug not in _PASSING:
                    raise
                wait_s, reason = problem.retry_after_s or PAUSE_S, problem.detail
            if time.monotonic() + wait_s > until:
                raise StoreAway(f"no worker answers: {reason}")
            await asyncio.sleep(wait_s)

    async def _ask(self, key: str, data: bytes, phrases: Sequence[str], spec: JobSpec) -> Result:
        params = SpatialParams(
            phrases=list(phrases),
            max_objects=spec.max_objects,
            min_score=spec.min_score,
            dedupe=spec.dedupe,
        )
        ticket = await self.client.submit(
            request_id=uuid.uuid4().hex,
            model=spec.model,
            task=spec.task,
            params=params,
            image=data,
            cost=await asyncio.to_thread(_cost, data),
            timeout_s=TIMEOUT_S,
            tenant=self.tenant,
            priority="batch",
            events=False,
            key_id=self.key_id,
        )
        try:
            outcome = await ticket.result()
        except asyncio.CancelledError:
            await ticket.cancel()
            raise
        if isinstance(outcome, Failure):
            raise ProblemError(outcome.problem, outcome.detail, retry_after_s=outcome.retry_after_s)
        answer = build_answer(spec.task, outcome, request_id="", phrases=phrases, units="normalized")
        return Result.of(key, answer)


def _cost(data: bytes) -> Cost:
    """What the header says; a worker words what is wrong with one that cannot be read."""
    try:
        return check(data).cost
    except ProblemError:
        return ORDINARY
