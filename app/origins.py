"""The web pages that may call the service, as `POINTBOX_CORS_ORIGINS` lists them."""

from __future__ import annotations

import re

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^\s/?#@:\[\]]+)(:\d{1,5})?")


def read_origins(text: str) -> frozenset[str]:
    """Each origin, in small letters and without a slash at its end; `*` stands for all.

    Raises:
        ValueError: one is no origin.
    """
    parts = (part.strip().removesuffix("/") for part in text.split(","))
    origins = frozenset(part.lower() for part in parts if part)
    for origin in sorted(origins):
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"must have origins such as https://example.com:8443, or *, not {origin!r}")
    return origins
