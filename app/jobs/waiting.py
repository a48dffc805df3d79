"""What an open job waits for, where no runner is there to say it."""

from __future__ import annotations

import msgspec

from app.admission.client import AdmissionClient
from app.admission.errors import AdmissionError
from app.inference import MODELS_AGE_S
from app.jobs.ledger import OPEN
from app.jobs.schemas import JobInfo


async def with_wait(job: JobInfo, client: AdmissionClient) -> JobInfo:
    """The job, with what it waits for as its reason unless a runner has told one."""
    if job.state not in OPEN or job.reason:
        return job
    return msgspec.structs.replace(job, reason=await _wait(job, client))


async def _wait(job: JobInfo, client: AdmissionClient) -> str:
    try:
        served = await client.models(MODELS_AGE_S)
    except AdmissionError:
        return "waits for the queue, which cannot be reached"
    model = job.model or job.request.model
    if not served:
        return "waits for a worker: none is running"
    if model is not None and model not in {known.name for known in served}:
        return f"waits for a worker that serves the model {model!r}: there is none"
    if job.state == "queued" and not any(known.job_runners for known in served):
        return "waits for a worker that runs jobs: there is none"
    return ""
