"""The API's side of the queue: submit a request, follow its events, cancel it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from app.admission.messages import Event, SpatialParams, Terminal, WorkerModel


class Ticket:
    """An admitted request."""

    id: str

    def events(self) -> AsyncIterator[Event]:
        """Objects as they are found; ends after Completed or Failure."""
        raise NotImplementedError

    async def result(self) -> Terminal:
        """Waits for the final answer."""
        raise NotImplementedError

    async def cancel(self) -> None:
        """Stops the work unless it has ended already."""
        raise NotImplementedError


class AdmissionClient:
    """One per API process."""

    @classmethod
    async def connect(cls, url: str, namespace: str) -> AdmissionClient:
        """Returns even when Redis is away: see `ready`."""
        raise NotImplementedError

    async def close(self) -> None:
        """Ends the reader; tickets still open fail as unavailable."""
        raise NotImplementedError

    async def submit(
        self,
        *,
        request_id: str,
        model: str,
        task: str,
        params: SpatialParams,
        image: bytes,
        timeout_s: float,
        tenant: str = "anonymous",
        priority: str = "interactive",
        traceparent: str = "",
    ) -> Ticket:
        """Raises QueueFull, TenantQueueFull, UnknownModel or Unavailable (app.admission.errors)."""
        raise NotImplementedError

    async def models(self) -> list[WorkerModel]:
        """The models that live workers serve, by name. Raises Unavailable."""
        raise NotImplementedError

    async def ready(self) -> tuple[bool, str]:
        """(Redis answers and a worker lives, why not)."""
        raise NotImplementedError
