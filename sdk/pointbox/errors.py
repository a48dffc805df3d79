"""Everything that can go wrong in a call, as one tree of exceptions under `PointboxError`.

A service that refuses says so with a problem document (RFC 9457); each of its types is a class here, and the
document is at `.problem`. What goes wrong before an answer exists is `ConnectionFailed` or `CallTimeout`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Problem(Struct, frozen=True, kw_only=True):
    """A problem document: what the service says was wrong, and what would be right."""

    type: str = "about:blank"
    """The kind of problem; of Pointbox's own the last part is a name, as in `/problems/invalid-image`."""
    title: str = ""
    status: int = 0
    detail: str = ""
    request_id: str = ""
    """The id under which the service's log tells about this request."""
    field: str | None = None
    """The one field of the request that was wrong, where there is one."""


class PointboxError(Exception):
    """A call that has no result."""

    retriable: bool = False
    """Whether the same call may succeed a little later. The client has tried that already."""
    retry_after: float | None = None
    """Seconds after which the service asked to come back."""
    request_id: str = ""


class NoAnswer(PointboxError):
    """There is nothing from the service that could be read."""

    def __init__(self, message: str, request_id: str = "") -> None:
        super().__init__(message, request_id)
        self.request_id = request_id

    def __str__(self) -> str:
        return str(self.args[0])


class ConnectionFailed(NoAnswer):
    """The service was not reached, or the connection broke before the answer was complete."""

    retriable = True


class CallTimeout(NoAnswer, TimeoutError):
    """The call took longer than the client's `timeout`, retries and pauses included."""


class InvalidResponse(NoAnswer):
    """What answered is not a Pointbox service."""


class APIError(PointboxError):
    """The service, or a proxy before it, refused.

    Attributes:
        problem: the problem document.
        status: the HTTP status.
        request_id: the id under which the service's log tells about it.
        retry_after: seconds after which the service asked to come back, or None.
        field: the field of the request that was wrong, or None.
    """

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(problem, retry_after)
        self.problem = problem
        self.status = problem.status
        self.request_id = problem.request_id
        self.field = problem.field
        self.retry_after = retry_after

    def __str__(self) -> str:
        name = self.problem.type.removeprefix("/problems/")
        kind = self.problem.title if name == "about:blank" else name
        where = f" (field {self.field})" if self.field else ""
        request = f" [request {self.request_id}]" if self.request_id else ""
        return f"{self.status} {kind}: {self.problem.detail}{where}{request}"


class InvalidRequest(APIError):
    """An option is unknown or out of range; `field` says which."""


class InvalidPhrase(InvalidRequest):
    """A phrase is blank or too long."""


class InvalidImage(InvalidRequest):
    """The image is empty, damaged, cut off or too small."""

    @property
    def reason(self) -> str:
        """What is wrong with the image."""
        return self.problem.detail


class UnsupportedMedia(InvalidImage):
    """The bytes are no image of a format that the service reads."""


class ImageTooLarge(InvalidImage):
    """The image has too many bytes or too many pixels."""


class UnsupportedTask(InvalidRequest):
    """The model does not have this task."""


class NotFound(APIError):
    """There is nothing under this id or route; it may belong to somebody else, or have expired."""


class UnknownModel(NotFound):
    """No worker has this model."""


class Unauthenticated(APIError):
    """The API key is missing or not valid: pass `api_key` or set POINTBOX_API_KEY."""


class Forbidden(APIError):
    """The API key does not allow this."""


class IdempotencyInFlight(APIError):
    """An earlier try of this very call is still running."""

    retriable = True


class IdempotencyMismatch(InvalidRequest):
    """The Idempotency-Key belongs to another call."""


class RateLimited(APIError):
    """Too many requests of this key or tenant; `retry_after` says when to come back."""

    retriable = True


class Unavailable(APIError):
    """The service cannot answer now."""

    retriable = True


class QueueFull(Unavailable):
    """Too many requests are waiting; `retry_after` says when to come back."""


class WorkerCrashed(Unavailable):
    """The request brought a worker down more than once; sending it again would do so again."""

    retriable = False


class DeadlineExceeded(APIError):
    """`timeout_s` passed before anything was found."""


class InternalError(APIError):
    """The service made an error; its log tells more under `request_id`."""


KINDS: Mapping[str, type[APIError]] = {
    "invalid-request": InvalidRequest,
    "invalid-phrase": InvalidPhrase,
    "invalid-image": InvalidImage,
    "unsupported-media": UnsupportedMedia,
    "image-too-large": ImageTooLarge,
    "unknown-model": UnknownModel,
    "unsupported-task": UnsupportedTask,
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "not-found": NotFound,
    "idempotency-in-flight": IdempotencyInFlight,
    "idempotency-mismatch": IdempotencyMismatch,
    "rate-limited": RateLimited,
    "tenant-queue-full": RateLimited,
    "queue-full": QueueFull,
    "unavailable": Unavailable,
    "worker-crashed": WorkerCrashed,
    "deadline-exceeded": DeadlineExceeded,
    "internal": InternalError,
}
