"""Where the service is and how patient the client is."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pointbox.arguments import seconds, text, whole
from pointbox.version import __version__

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT_S = 120.0
DEFAULT_RETRIES = 4


@dataclass(frozen=True, slots=True)
class Config:
    """What is the same for all calls of one client."""

    url: str
    """Without a slash at the end and without `/v1`."""
    api_key: str | None = field(repr=False)
    model: str | None
    timeout_s: float
    retries: int

    @classmethod
    def of(
        cls, url: str | None, api_key: str | None, model: str | None, timeout: float, retries: int
    ) -> Config:
        """Arguments win over POINTBOX_URL and POINTBOX_API_KEY; empty variables count as not set.

        Raises:
            TypeError, ValueError: one of them cannot be used.
        """
        timeout_s, retries = seconds("timeout", timeout), whole("retries", retries, 0)
        for name, value in (("url", url), ("api_key", api_key), ("model", model)):
            if value is not None:
                text(name, value)
        key = api_key or os.environ.get("POINTBOX_API_KEY") or None
        if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
            raise ValueError("The API key has spaces, line ends or letters that no key has.")
        return cls(
            _base(url or os.environ.get("POINTBOX_URL") or DEFAULT_URL), key, model, timeout_s, retries
        )

    def headers(self) -> dict[str, str]:
        """Sent with every request."""
        headers = {"User-Agent": f"pointbox-python/{__version__}"}
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers


def _base(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        usable = False
    if not usable:
        raise ValueError(f"The URL of the service must look like http://host:8000, not {url!r}.")
    if parts.query or parts.fragment:
        raise ValueError(f"The URL of the service must have no query and no fragment: {url!r}.")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")
