"""What is sent to, and answered by, /images."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class ImageBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """An image to keep, as JSON, form or query. Exactly one of `image` and `image_url`."""

    image: str | None = None
    """A data URI, bare base64, or the URL of an image."""
    image_url: str | None = None
    """The same."""
    model: str | None = None
    """The model that prefills it; the server's own when not given."""
    timeout_s: Annotated[float, Meta(gt=0)] | None = None


class UploadedImage(Struct, frozen=True, kw_only=True):
    """An image that is kept and prefilled."""

    request_id: str
    image_id: str
    """Goes in the place of the image in a request to /detect or /point."""
    model: str
    width: int
    """Of the upright image, in pixels."""
    height: int
    bytes: int
    expires_in_s: float
    """Counts again from every use."""
    notes: list[str]
    """What was done to its pixels."""
