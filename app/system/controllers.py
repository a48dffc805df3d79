"""Health for orchestrators, models for callers."""

from __future__ import annotations

from litestar import Controller, get
from litestar.datastructures import State
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST

from app.access.gate import NEEDS, Gate
from app.access.middleware import Access
from app.admission.client import AdmissionClient
from app.admission.errors import AdmissionError
from app.admission.failed import FailedModel
from app.admission.messages import WorkerModel
from app.openapi import ACCESS_PROBLEMS, OpenOperation, problem_responses
from app.problems import ProblemError
from app.system.metrics import exposition

EXPOSITION = CONTENT_TYPE_LATEST.partition("; charset")[0]
"""Litestar adds the charset to every text type."""


class Health(Struct, frozen=True):
    """The answer of the health routes when all is well."""

    status: str = "ok"


class Models(Struct, frozen=True):
    """The models that live workers serve, and those that `pointbox serve` cannot start."""

    models: list[WorkerModel]
    failed: list[FailedModel] = []


class HealthController(Controller):
    """`/livez`: this process answers. `/readyz`: a request sent now would be worked on."""

    tags = ("system",)

    @get("/livez", summary="The process is alive", operation_class=OpenOperation)
    async def livez(self) -> Health:
        """Always 200 while the process can answer at all."""
        return Health()

    @get(
        "/readyz",
        summary="Requests can be answered",
        operation_class=OpenOperation,
        responses=problem_responses("unavailable"),
    )
    async def readyz(self, state: State) -> Health:
        """200 when Redis answers, a worker is alive and keys can be checked; else a 503 that says why not."""
        client: AdmissionClient = state.client
        ready, reason = await client.ready()
        if not ready:
            raise ProblemError("unavailable", reason, retry_after_s=1)
        gate: Gate | None = state.gate
        if gate is not None and not await gate.reachable():
            raise ProblemError("unavailable", "the database cannot be reached", retry_after_s=1)
        return Health()


class MetricsController(Controller):
    """Figures for Prometheus."""

    tags = ("system",)
    middleware = (Access(),)

    @get(
        "/metrics",
        opt={NEEDS: "metrics"},
        media_type=EXPOSITION,
        summary="Figures for Prometheus",
        responses=problem_responses(*ACCESS_PROBLEMS),
    )
    async def metrics(self, state: State) -> bytes:
        """Of the queue, the workers, and this process's routes; no figure names a tenant or a key."""
        client: AdmissionClient = state.client
        try:
            figures = await client.figures()
        except AdmissionError:
            figures = None
        return exposition(state.http.registry, figures)


class ModelController(Controller):
    """Which models can be asked for."""

    tags = ("system",)

    @get(
        "/models",
        operation_id="listModels",
        summary="List the models",
        responses=problem_responses(*ACCESS_PROBLEMS, "unavailable"),
    )
    async def models(self, state: State) -> Models:
        """The models that live workers serve, their tasks, and how busy they are, counted in phrases.

        `failed` names the models with workers that do not start, and why.
        """
        client: AdmissionClient = state.client
        return Models(await client.models(), await client.failed_models())
