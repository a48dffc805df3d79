"""Strings that say where a picture is: a path, or a URL of some scheme."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote
from urllib.request import url2pathname

_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]+):(//)?")
"""Of two letters at least: `C:` is a drive."""


def is_for_service(address: str) -> bool:
    """Whether the service itself is to find the picture there: an http(s) URL or a data URI."""
    scheme = _SCHEME.match(address)
    return scheme is not None and scheme[1].lower() in ("http", "https", "data")


def path_of(address: str) -> Path:
    """The file that a path or a `file:` URL names.

    Raises:
        ValueError: the address is empty, or of a scheme that is not read.
    """
    if address == "":
        raise ValueError("The path of the picture is empty.")
    scheme = _SCHEME.match(address)
    if scheme is None:
        return Path(address)
    name = scheme[1].lower()
    if name == "file":
        return _file(address.strip())
    if scheme[2] is None:
        return Path(address)
    advice = "pass a path, the bytes of the file, or an http(s) URL"
    if name in ("s3", "gs", "gcs", "az", "abfs", "abfss"):
        advice += " (such as a presigned one); client.jobs asks about all images of a bucket of the service"
    raise ValueError(f"Pictures are not read from {name}:// addresses: {advice}.")


def _file(url: str) -> Path:
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if unquote(host).lower() not in ("", "localhost"):
            raise ValueError(f"Files of other machines are not read: {url[:200]!r}.")
        rest = slash + path
    if not rest:
        raise ValueError("The path of the picture is empty.")
    return Path(url2pathname(rest))
