"""The routes below /jobs and /stores."""

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
from app.jobs.documents import PictureOperation, SubmitOperation
from app.jobs.reports import Wanted
from app.jobs.schemas import JobInfo, JobList, JobRequest, SampleList, StoreList
from app.jobs.service import MAX_LISTED, MAX_SAMPLES, JobService
from app.jobs.waiting import with_wait
from app.openapi import ACCESS_PROBLEMS, problem_responses
from app.problems import ProblemError
from app.queries import only_known_parameters
from app.strict_json import decode_json

LINES = "application/x-ndjson"
_COMMON = ("invalid-request", "not-found", "unavailable", *ACCESS_PROBLEMS)
_PICTURE = ("image-too-large", "invalid-image", "unsupported-media")
_SUBMITTING = (
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
_Offset = Annotated[int, Parameter(ge=0, description="Lines to leave out at the beginning.")]
_Limit = Annotated[int | None, Parameter(ge=1, description="Lines at most.")]
_Number = Annotated[int, PathParameter(description="As `GET /v1/jobs/{job_id}/samples` gave it.")]


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

    @get(summary="The tenant's jobs, newest first", responses=problem_responses(*_COMMON))
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
        """Only what is not done is computed; a complete job goes on if files of it are gone or damaged."""
        return await _service(state).resume(job_id, caller_of(request))

    @get(
        "/{job_id:str}/results",
        summary="Results so far, as JSON lines",
        media_type=LINES,
        responses=problem_responses(*_COMMON),
    )
    async def results(
        self,
        request: Request[Any, Any, Any],
        state: State,
        job_id: _JobId,
        shard: _Shard = None,
        offset: _Offset = 0,
        limit: _Limit = None,
    ) -> Stream:
        """One line an image, of the shards that are done."""
        return await _lines(request, state, job_id, "results", Wanted(shard, offset, limit))

    @get(
        "/{job_id:str}/errors",
        summary="Images without a result so far, as JSON lines",
        media_type=LINES,
        responses=problem_responses(*_COMMON),
    )
    async def errors(
        self,
        request: Request[Any, Any, Any],
        state: State,
        job_id: _JobId,
        shard: _Shard = None,
        offset: _Offset = 0,
        limit: _Limit = None,
    ) -> Stream:
        """Key, stage and reason, of the shards that are done."""
        return await _lines(request, state, job_id, "errors", Wanted(shard, offset, limit))

    @get(
        "/{job_id:str}/samples",
        summary="Some results so far, with their pictures",
        responses=problem_responses(*_COMMON),
    )
    async def samples(
        self,
        request: Request[Any, Any, Any],
        state: State,
        job_id: _JobId,
        limit: Annotated[int, Parameter(ge=1, le=MAX_SAMPLES)] = 12,
    ) -> SampleList:
        """Spread evenly over the shards that are done."""
        return await _service(state).samples(job_id, caller_of(request), limit)

    @get(
        "/{job_id:str}/samples/{number:int}",
        summary="The picture of a sample",
        operation_class=PictureOperation,
        responses=problem_responses(*_PICTURE, *_COMMON),
    )
    async def picture(
        self, request: Request[Any, Any, Any], state: State, job_id: _JobId, number: _Number
    ) -> Response[bytes]:
        """Upright, as a JPEG of 1,024 pixels at most; a 404 once it is deleted from its store or replaced."""
        picture = await _service(state).picture(job_id, caller_of(request), number)
        return Response(picture, media_type="image/jpeg", headers={"cache-control": "no-store"})


class StoreController(Controller):
    """What jobs may read and write."""

    path = "/stores"
    tags = ("jobs",)
    guards = (only_known_parameters,)
    opt: ClassVar = {NEEDS: "jobs"}

    @get(
        summary="The stores that the tenant may name",
        responses=problem_responses(*_COMMON),
    )
    async def stores(self, request: Request[Any, Any, Any], state: State) -> StoreList:
        """By name; where they are is not told."""
        return _service(state).stores(caller_of(request))


async def _lines(
    request: Request[Any, Any, Any],
    state: State,
    job_id: str,
    what: Literal["results", "errors"],
    wanted: Wanted,
) -> Stream:
    lines = await _service(state).lines(job_id, caller_of(request), what, wanted)
    return Stream(lines, media_type=LINES)


def _service(state: State) -> JobService:
    service: JobService | None = state.jobs
    if service is None:
        raise ProblemError("not-found", "Jobs are off on this server: it has no stores (POINTBOX_STORES).")
    return service
