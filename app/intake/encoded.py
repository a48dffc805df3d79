"""Images inside JSON: a data URI or bare base64, as the clients of this world really write them."""

from __future__ import annotations

import binascii
import re
from urllib.parse import unquote_to_bytes

from app.problems import ProblemError

_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_SPACE = b" \t\r\n\f\v"
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):")


def image_bytes(text: str, *, field: str) -> bytes:
    """The bytes behind a data URI or bare base64.

    Missing padding, white space, the URL-safe alphabet and percent escapes are understood.

    Raises:
        ProblemError: invalid-request: 400 for characters that base64 does not have, 422 for any other URL.
    """
    scheme = _SCHEME.match(text[:64])
    if scheme is None:
        return _base64(text.encode("utf-8", "replace"), field)
    if scheme[1].lower() != "data":
        raise ProblemError(
            "invalid-request",
            f"Images are not read from {scheme[1].lower()}: addresses; send the image itself as base64.",
            field=field,
        )
    return _data_uri(text, field)


def _data_uri(text: str, field: str) -> bytes:
    head, comma, body = text.partition(",")
    if not comma:
        raise ProblemError("invalid-request", "The data URI has no comma.", field=field, status=400)
    raw = body.encode("utf-8", "replace")
    if b"%" in raw:
        raw = unquote_to_bytes(raw)
    parameters = [parameter.strip().lower() for parameter in head.split(";")[1:]]
    return _base64(raw, field) if "base64" in parameters else raw


def _base64(raw: bytes, field: str) -> bytes:
    text = raw.translate(_URL_SAFE, delete=_SPACE).rstrip(b"=")
    try:
        return binascii.a2b_base64(text + b"=" * (-len(text) % 4), strict_mode=True)
    except binascii.Error as error:
        raise ProblemError(
            "invalid-request", f"This is not base64: {error}.", field=field, status=400
        ) from None
