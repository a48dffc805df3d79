"""The routes below /jobs."""

from __future__ import annotations

import hashlib
from contextlib import AsyncExitStack
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from litestar import Controller, HttpMethod, Request, Response, get, post, route
from litestar.datastructures import State
from litestar.params import Parameter, PathParameter
from litestar.response import Stream

from app.access.caller import caller_of
from app.access.gate import NEEDS
from app.bodies import check_plain
from app.idempotency.replays import REPLAYED, Replays, key_of
from app.inference import Inference
from app.jobs.documents import SubmitOperation
from app.jobs.schemas import JobInfo, JobList, JobRequest
from app.jobs.service import MAX_LISTED, JobService
from app.jobs.waiting import with_wait
from app.openapi import ACCESS_PROBLEMS, problem_responses
from app.problems import ProblemError
from app.queries import only_known_parameters
from app.strict_json import decode_json

LINES = "application/x-ndjson"
_COMMON = ("not-found", "unavailable", *ACCESS_PROBLEMS)
_SUBMITTING = (
    "invalid-request",
    "invalid-phrase",
    "unsupported-media",
    "unknown-model",
    "unsupported-task",
    "idempotency-in-flight",
    "idempotency-mismatch",
    *_COMMON,
)
_JobId = Annotated[str, PathParameter(description="As `POST /v1/jobs` gave it.")]
_Shard = Annotated[int | None, Parameter(ge=0, description="Only this shard's.")]


class JobController(Controller):
    """Batches over a bucket. A job belongs to its tenant; another tenant's is not there."""

    path = "/jobs"
    tags = ("jobs",)
    opt: ClassVar = {NEEDS: "jobs"}
    guards = (only_known_parameters,)

    @route(http_method=HttpMethod.OPTIONS, status_code=204, include_in_schema=False)
    async def allow(self) -> Response[None]:
        """Litestar takes handlers by name, and its own answer would know the first one's method only."""
        return Response(None, headers={"Allow": "GET, OPTIONS, POST"})

    @post(
        status_code=201,
        summary="Ask the same about every image of a store",
        operation_class=SubmitOperation,
        responses=problem_responses(*_SUBMITTING),
    )
    async def submit(self, request: Request[Any, Any, Any], state: State) -> Response[JobInfo]:
        """The job is queued and runs by itself; source and destination are stores of this server."""
        service, caller = _service(state), caller_of(request)
        if request.content_type[0] != "application/json":
            raise ProblemError("unsupported-media", "Send the job as application/json.")
        check_plain(request)
        asked = decode_json(await request.body(), JobRequest)
        key = key_of(request)
        async with AsyncExitStack() as held:
            claim = None
            if key is not None:
                replays: Replays = state.replays
                fingerprint = hashlib.sha256(msgspec.json.encode(asked)).hexdigest()
                claim = await replays.claim(caller.tenant, "jobs", key, fingerprint)
                if isinstance(claim, bytes):
                    again = msgspec.json.decode(claim, type=JobInfo)
                    return Response(again, status_code=201, headers=REPLAYED)
                await held.enter_async_context(claim)
            inference: Inference = state.inference
            await inference.check(asked.task, asked.model)
            job = await service.submit(asked, caller)
            if claim is not None:
                await claim.keep(msgspec.json.encode(job))
            return Response(job, status_code=201)

    @get(summary="The tenant's jobs, newest first", responses=problem_responses("invalid-request", *_COMMON))
    async def listed(
        self,
        request: Request[Any, Any, Any],
        state: State,
        limit: Annotated[int, Parameter(ge=1, le=MAX_LISTED)] = 20,
        before: Annotated[str | None, Parameter(description="`next` of the answer before.")] = None,
    ) -> JobList:
        """Each with its progress."""
        page = await _service(state).listed(caller_of(request), limit, before)
        return JobList(jobs=[await with_wait(job, state.client) for job in page.jobs], next=page.next)

    @get("/{job_id:str}", summary="A job and how far it is", responses=problem_responses(*_COMMON))
    async def show(self, request: Request[Any, Any, Any], state: State, job_id: _JobId) -> JobInfo:
        """Counts, rate and the time that is left."""
        return await with_wait(await _service(state).show(job_id, caller_of(request)), state.client)

    @post(
        "/{job_id:str}/cancel",
        status_code=200,
        summary="Stop a job",
        responses=problem_responses(*_COMMON),
    )
    async def cancel(self, request: Request[Any, Any, Any], state: State, job_id: _JobId) -> JobInfo:
        """What is done stays; a job that has ended stays as it is."""
        return await _service(state).cancel(job_id, caller_of(request))

    @post(
        "/{job_id:str}/resume",
        status_code=200,
        summary="Go on with a job that failed or was cancelled",
        responses=problem_responses(*_COMMON),
    )
    async def resume(self, request: Request[Any, Any, Any], state: State, job_id: _JobId) -> JobInfo:
        """Only what is not done is computed."""
        return await _service(state).resume(job_id, caller_of(request))

    @get(
        "/{job_id:str}/results",
        summary="Results so far, as JSON lines",
        media_type=LINES,
        responses=problem_responses("invalid-request", *_COMMON),
    )
    async def results(
        self, request: Request[Any, Any, Any], state: State, job_id: _JobId, shard: _Shard = None
    ) -> Stream:
        """One line an image, of the shards that are done."""
        return await _lines(request, state, job_id, "results", shard)

    @get(
        "/{job_id:str}/errors",
        summary="Images without a result so far, as JSON lines",
        media_type=LINES,
        responses=problem_responses("invalid-request", *_COMMON),
    )
    async def errors(
        self, request: Request[Any, Any, Any], state: State, job_id: _JobId, shard: _Shard = None
    ) -> Stream:
        """Key, stage and reason, of the shards that are done."""
        return await _lines(request, state, job_id, "errors", shard)


async def _lines(
    request: Request[Any, Any, Any],
    state: State,
    job_id: str,
    what: Literal["results", "errors"],
    shard: int | None,
) -> Stream:
    lines = await _service(state).lines(job_id, caller_of(request), what, shard)
    return Stream(lines, media_type=LINES)


def _service(state: State) -> JobService:
    service: JobService | None = state.jobs
    if service is None:
        raise ProblemError("not-found", "Jobs are off on this server: it has no stores (POINTBOX_STORES).")
    return service
