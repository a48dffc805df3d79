"""Why a request was not admitted."""

from __future__ import annotations


class AdmissionError(Exception):
    """The request is not in the queue. `problem` is the slug under /problems/."""

    problem = "unavailable"

    def __init__(self, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s


class QueueFull(AdmissionError):
    """The queue holds as many requests, or as many image bytes, as it may. `retry_after_s` is set."""

    problem = "queue-full"


class TenantQueueFull(AdmissionError):
    """The same for this tenant alone. `retry_after_s` is set."""

    problem = "tenant-queue-full"


class UnknownModel(AdmissionError):
    """No worker serves this model."""

    problem = "unknown-model"


class Unavailable(AdmissionError):
    """Redis cannot be reached, or no worker has been seen for a while."""
