"""How the routes below /images read in the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass

from litestar.openapi.spec import Operation

from app.images.schemas import ImageBody
from app.openapi import (
    ACCESS_PROBLEMS,
    EXAMPLE_IMAGE,
    IDEMPOTENCY_KEY,
    IMAGE_BYTES,
    IMAGE_TEXT,
    MODEL,
    TIMEOUT,
    image_bodies,
    query_of_raw_bodies,
)

UPLOAD_PROBLEMS = (
    "invalid-request",
    "invalid-image",
    "unsupported-media",
    "image-too-large",
    "unknown-model",
    "unsupported-task",
    "idempotency-in-flight",
    "idempotency-mismatch",
    "tenant-queue-full",
    "queue-full",
    "unavailable",
    "worker-crashed",
    "deadline-exceeded",
    *ACCESS_PROBLEMS,
)
DELETE_PROBLEMS = ("not-found", "unavailable", *ACCESS_PROBLEMS)

_OPTIONS = {"model": MODEL, "timeout_s": TIMEOUT}


@dataclass
class ForgetOperation(Operation):
    """Takes away the refusal that Litestar adds wherever a path has a parameter: any text can be an id."""

    def __post_init__(self) -> None:
        if self.responses is not None:
            self.responses.pop("400", None)


@dataclass
class UploadOperation(Operation):
    """Adds the bodies, which the handler reads itself."""

    def __post_init__(self) -> None:
        self.request_body = image_bodies(
            ImageBody,
            json={"image": IMAGE_TEXT, "image_url": IMAGE_TEXT, **_OPTIONS},
            form={"image": IMAGE_BYTES, "image_url": IMAGE_TEXT, **_OPTIONS},
            examples={"one": ("A picture", {"image": EXAMPLE_IMAGE})},
            says="Exactly one of `image` and `image_url`.",
        )
        self.parameters = [IDEMPOTENCY_KEY, *query_of_raw_bodies(_OPTIONS)]
