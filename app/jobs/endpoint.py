"""A service elsewhere, through its client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from app.client import pointbox
from app.jobs.errors import JobError, StoreAway
from app.jobs.records import JobSpec, Result
from app.problems import KINDS, ProblemError
from app.spatial.schemas import DetectAnswer, PointAnswer

TIMEOUT_S = 600.0
PATIENCE_S = 600.0
"""How long a service may be away before a job stops; it can be run again."""
PAUSE_S = 1.0
_AWAY = (
    pointbox.ConnectionFailed,
    pointbox.CallTimeout,
    pointbox.DeadlineExceeded,
    pointbox.IdempotencyInFlight,
    pointbox.RateLimited,
    pointbox.Unavailable,
)
"""They have to do with the service now, and not with what it was asked."""
_PASSING = (*_AWAY, pointbox.UnknownModel)
_OF_THE_IMAGE = (pointbox.InvalidRequest, pointbox.WorkerCrashed, pointbox.InternalError)


class ServiceAnswerer:
    """Asks a running service at batch priority."""

    def __init__(self, client: pointbox.AsyncClient, at_once: int) -> None:
        self._client = client
        self.at_once = at_once

    async def answer(self, key: str, data: bytes, phrases: Sequence[str], spec: JobSpec) -> Result:
        """Raises ProblemError for the image, JobError and StoreAway for the service."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await self._ask(key, data, phrases, spec)
            except _OF_THE_IMAGE as error:
                slug = error.problem.type.removeprefix("/problems/")
                raise ProblemError(slug if slug in KINDS else "internal", error.problem.detail) from error
            except _PASSING as error:
                wait_s = error.retry_after or PAUSE_S
                if time.monotonic() + wait_s > until:
                    raise StoreAway(f"the service does not answer: {error}") from error
            except pointbox.PointboxError as error:
                raise JobError(f"the service refuses: {error}") from error
            await asyncio.sleep(wait_s)

    async def _ask(self, key: str, data: bytes, phrases: Sequence[str], spec: JobSpec) -> Result:
        ask = self._client.detect if spec.task == "detect" else self._client.point
        found = await ask(
            data,
            phrases,
            model=spec.model,
            max_objects=spec.max_objects,
            min_score=spec.min_score,
            dedupe=spec.dedupe,
            priority="batch",
            timeout_s=TIMEOUT_S,
        )
        kind = DetectAnswer if spec.task == "detect" else PointAnswer
        answer: DetectAnswer | PointAnswer = msgspec.json.decode(found.to_json(), type=kind)
        return Result.of(key, answer)

    async def close(self) -> None:
        await self._client.close()


def answerer_at(endpoint: str, model: pointbox.Model) -> ServiceAnswerer:
    """As many images at once as keep the model's workers busy."""
    return ServiceAnswerer(pointbox.AsyncClient(endpoint), 2 * max(1, model.capacity))


@contextmanager
def client_of(endpoint: str | None) -> Iterator[pointbox.Client]:
    """A client of the service there, or else at POINTBOX_URL; the key is POINTBOX_API_KEY.

    Raises:
        ProblemError: whatever goes wrong in the block between client and service; unavailable where that has
            to do with the service now, and not with what was asked.
    """
    try:
        with pointbox.Client(endpoint) as client:
            yield client
    except (*_AWAY, pointbox.InternalError) as error:
        raise ProblemError("unavailable", str(error)) from error
    except pointbox.Unauthenticated as error:
        detail = f"{error} Set POINTBOX_API_KEY to a key of the service."
        raise ProblemError("unauthenticated", detail) from error
    except pointbox.PointboxError as error:
        raise ProblemError("invalid-request", str(error)) from error
    except ValueError as error:  # of the client's own settings
        raise ProblemError("invalid-request", str(error)) from error


def model_at(endpoint: str, name: str | None) -> pointbox.Model:
    """The model of this name, or the only one.  Raises ProblemError."""
    with client_of(endpoint) as client:
        models = {model.name: model for model in client.models()}
    if name is None and len(models) == 1:
        return next(iter(models.values()))
    if name not in models:
        there = ", ".join(sorted(models)) or "none now"
        detail = f"Name a model of the service with --model: there are {there}."
        raise ProblemError("unknown-model", detail, field="model")
    return models[name]
