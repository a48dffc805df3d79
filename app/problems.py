"""Every error a caller can see, as one table (RFC 9457 problem documents).

A problem is named by its slug, the last part of its type URI ``/problems/{slug}``. Raise `ProblemError`
anywhere below HTTP: the web server, the worker and the command line all know how to say it.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET, Struct, UnsetType

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """What is the same for every problem of one type."""

    status: int
    title: str
    retry_after_s: float | None = None
    """When to try again, where nobody knows better; every 429 and 503 says it."""


KINDS: dict[str, Kind] = {
    "invalid-request": Kind(422, "The request is not valid"),
    "invalid-phrase": Kind(422, "The phrase is not valid"),
    "invalid-image": Kind(422, "The image cannot be decoded"),
    "unsupported-media": Kind(415, "The media type is not supported"),
    "image-too-large": Kind(413, "The image is too large"),
    "unknown-model": Kind(404, "The model is not known"),
    "unsupported-task": Kind(422, "The model does not have this task"),
    "unauthenticated": Kind(401, "Credentials are missing or not valid"),
    "forbidden": Kind(403, "The credentials do not allow this"),
    "not-found": Kind(404, "There is nothing here"),
    "idempotency-in-flight": Kind(409, "A request with this Idempotency-Key is still running"),
    "idempotency-mismatch": Kind(422, "The Idempotency-Key belongs to a different request"),
    "rate-limited": Kind(429, "Too many requests", 1.0),
    "tenant-queue-full": Kind(429, "Too many requests of this tenant are waiting", 5.0),
    "queue-full": Kind(503, "Too many requests are waiting", 5.0),
    "unavailable": Kind(503, "The service is not available", 1.0),
    "worker-crashed": Kind(503, "The worker crashed on this request", 5.0),
    "deadline-exceeded": Kind(504, "The deadline passed before an answer existed"),
    "internal": Kind(500, "The service made an error"),
}


class Problem(Struct, frozen=True, kw_only=True):
    """The document itself: the body of every answer that is not a success."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    field: str | UnsetType = UNSET


class ProblemError(Exception):
    """A failure that its caller is told about.

    Args:
        slug: a key of `KINDS`; an unknown one becomes ``internal``.
        detail: one sentence for a person: what was wrong, and what would be right.
        field: the one field of the request that was wrong, where there is one.
        status: only where a type has a second status (a body that is not JSON is a 400 invalid-request).
        retry_after_s: when trying again may help; sent as ``Retry-After``. None: what its kind says.
    """

    def __init__(
        self,
        slug: str,
        detail: str,
        *,
        field: str | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.slug = slug if slug in KINDS else "internal"
        self.status = status or KINDS[self.slug].status
        self.title = KINDS[self.slug].title
        self.detail = detail
        self.field = field
        self.retry_after_s = KINDS[self.slug].retry_after_s if retry_after_s is None else retry_after_s

    def document(self, request_id: str) -> Problem:
        """The RFC 9457 document of this failure."""
        return Problem(
            type=f"/problems/{self.slug}",
            title=self.title,
            status=self.status,
            detail=self.detail,
            request_id=request_id,
            field=UNSET if self.field is None else self.field,
        )
