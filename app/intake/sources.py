"""Where the image of a request is: in the request itself, behind a URL, or uploaded before."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app.intake.encoded import image_bytes
from app.problems import ProblemError

MAX_URL_CHARS = 4096
_REMOTE = re.compile(r"\s*https?:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Inline:
    """The bytes themselves. `field` is what the caller called them, for problems found later."""

    data: bytes
    field: str = "image"

    def identity(self) -> str:
        """Says which image was meant, also when it can no longer be had."""
        return f"bytes {hashlib.sha256(self.data).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Remote:
    """To be fetched by the server."""

    url: str
    field: str = "image_url"

    def identity(self) -> str:
        """Says which image was meant, also when it can no longer be had."""
        return f"url {self.url}"


@dataclass(frozen=True, slots=True)
class Stored:
    """Uploaded before, by the same tenant."""

    image_id: str
    field: str = "image_id"

    def identity(self) -> str:
        """Says which image was meant, also when it can no longer be had."""
        return f"id {self.image_id}"


Source: TypeAlias = Inline | Remote | Stored


def read_source(texts: Mapping[str, str | None], upload: bytes | None) -> Source:
    """The one image of a request.

    Args:
        texts: `image` and `image_url` (a data URI, bare base64 or a URL), `image_id`; None where not sent.
        upload: the image where it came as bytes.

    Raises:
        ProblemError: there is none, there are several, or it is not encoded as said.
    """
    given = [(field, text) for field, text in texts.items() if text is not None]
    if len(given) + (upload is not None) > 1:
        detail = f"Send one image, as one of {', '.join(texts)}."
        raise ProblemError("invalid-request", detail, field=given[-1][0])
    if upload is not None:
        return Inline(upload)
    if not given:
        raise ProblemError("invalid-request", "The image is missing.", field="image")
    field, text = given[0]
    if field == "image_id":
        return Stored(text)
    if _REMOTE.match(text):
        return Remote(_checked_url(text.strip(), field), field)
    return Inline(image_bytes(text, field=field), field)


def _checked_url(url: str, field: str) -> str:
    if len(url) > MAX_URL_CHARS:
        detail = f"The URL is too long: at most {MAX_URL_CHARS} characters are read."
        raise ProblemError("invalid-request", detail, field=field)
    return url
