"""What every route that needs a model does: choose it, put a request in the queue, wait, cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from litestar import Request

from app.access.caller import Caller
from app.admission.client import AdmissionClient, Ticket
from app.admission.errors import AdmissionError, UnknownModel
from app.admission.messages import Completed, Failure, Priority, SpatialParams, WorkerModel
from app.correlation import new_id
from app.images.picture import Picture
from app.logs import EXCHANGE
from app.problems import ProblemError
from app.settings import Settings
from app.spatial.schemas import Task
from app.tracing import traceparent

MODELS_AGE_S = 1.0
"""Requests are sent to models as they were so long ago."""

FAILED_RETRY_S = 60.0
"""Callers of a model that does not start are told to ask again so much later."""


class ClientGone(Exception):
    """The caller hung up; its work is cancelled and nobody reads an answer."""


class Inference:
    """One per API process; holds nothing of any single request."""

    def __init__(self, client: AdmissionClient, settings: Settings) -> None:
        self._client = client
        self._default = settings.default_model
        """The name last found for callers who name no model. It outlives a worker that is starting again."""

    async def submit(
        self,
        task: Task,
        params: SpatialParams,
        picture: Picture,
        caller: Caller,
        *,
        model: str | None,
        timeout_s: float,
        priority: Priority = "interactive",
        events: bool = False,
    ) -> Ticket:
        """Put a request in the queue, as work of the caller's tenant.

        Args:
            events: whether the ticket tells objects as they are found.

        Raises:
            ProblemError: unknown-model, unsupported-task or unavailable.
            AdmissionError: the queue is full or cannot be reached.
        """
        name = await self._model(task, model, params.adapter)
        try:
            ticket = await self._client.submit(
                # The caller may choose its request's id, and choose it twice: the queue needs one of our own.
                request_id=new_id(),
                model=name,
                task=task,
                params=params,
                image=picture.data,
                cost=picture.cost,
                timeout_s=timeout_s,
                tenant=caller.tenant,
                priority=priority,
                events=events,
                key_id=caller.key_id or "",
                traceparent=traceparent(),
            )
        except UnknownModel:
            if model is None:  # the caller named none: nothing is wrong with the request
                raise ProblemError("unavailable", "No worker is running.", retry_after_s=5) from None
            raise await self._unknown(model) from None
        EXCHANGE.get({})["ticket"] = ticket.id
        return ticket

    async def result(
        self, ticket: Ticket, disconnected: Callable[[], Awaitable[None]], names: Mapping[str, str]
    ) -> Completed:
        """Wait for the answer; cancel the work when nobody does.

        Args:
            disconnected: returns when the caller hangs up.
            names: what the caller calls the fields that a problem may be about.

        Raises:
            ProblemError: the request failed. ClientGone: its caller hung up.
        """
        ending = ticket.ending()
        gone = asyncio.ensure_future(disconnected())
        gone.add_done_callback(lambda _: ending.cancel())  # an answer that is there already stays
        try:
            outcome = await ending
        except asyncio.CancelledError:
            await cancel(ticket)
            if gone.done():
                raise ClientGone from None
            raise
        finally:
            gone.cancel()
        if isinstance(outcome, Failure):
            raise problem_of(outcome, names)
        return outcome

    async def check(self, task: Task, model: str | None) -> None:
        """Of work that waits outside of the queue.  Raises ProblemError: unknown-model, unsupported-task.

        Nothing is known before a worker has been there, nor while Redis is away: then it may wait.
        """
        try:
            known = await self._client.known_models()
            await self._model(task, model, None)
        except AdmissionError:
            return
        if model is not None and known and model not in known:
            raise await self._unknown(model)

    async def _unknown(self, model: str) -> ProblemError:
        for failed in await self._client.failed_models():
            if failed.name == model:
                detail = f"The model {model} cannot be started here; /v1/models says why. It is tried again."
                return ProblemError("unavailable", detail, field="model", retry_after_s=FAILED_RETRY_S)
        known = sorted(await self._client.known_models())
        there = f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"
        detail = f"There is no model {model[:100]!r}; {there}."
        return ProblemError("unknown-model", detail, field="model")

    async def _model(self, task: Task, asked: str | None, adapter: str | None) -> str:
        """The name of the model to use: the one asked for, else the one this server was started with."""
        models = {model.name: model for model in await self._client.models(MODELS_AGE_S)}
        if models and self._default not in models:
            self._default = min(models)
        name = self._default if asked is None else asked
        if name in models:
            _check_ability(models, name, task, adapter)
        return name


def _check_ability(models: Mapping[str, WorkerModel], name: str, task: Task, adapter: str | None) -> None:
    model = models[name]
    if task not in model.tasks:
        able = [other.name for other in models.values() if task in other.tasks]
        there = f"Models that do: {', '.join(able)}." if able else "No running model does."
        detail = f"The model {name} does not {task}. {there}"
        raise ProblemError("unsupported-task", detail, field="model")
    if adapter is not None and adapter not in model.adapters:
        has = f"; it has {', '.join(model.adapters)}" if model.adapters else "; it has none"
        detail = f"The model {model.name} has no adapter {adapter!r}{has}."
        raise ProblemError("unknown-model", detail, field="adapter")


def disconnection(request: Request[Any, Any, Any]) -> Callable[[], Awaitable[None]]:
    """Returns when the caller of a request, whose body has been read, hangs up."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return disconnected


async def cancel(ticket: Ticket) -> None:
    """Cancel a request although the task that asks for it is itself being cancelled."""
    with anyio.CancelScope(shield=True):
        await ticket.cancel()


def problem_of(failure: Failure, names: Mapping[str, str]) -> ProblemError:
    """A failure of the worker or the queue, as its caller is told; `names` are those of its fields."""
    if failure.problem == "cancelled":
        return ProblemError("unavailable", "The request was cancelled by the server; send it again.")
    field = names.get(failure.field, failure.field) if failure.field else None
    return ProblemError(failure.problem, failure.detail, field=field, retry_after_s=failure.retry_after_s)
