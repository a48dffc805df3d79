"""Requests that ask for another protocol (`Upgrade: h2c`, `websocket`) are answered as HTTP/1.1."""

from __future__ import annotations

from collections.abc import Iterable

_ASKING = (b"upgrade", b"http2-settings")


def head_without_upgrade(first_line: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of a request without the fields that ask for an upgrade, and its empty line.

    Args:
        headers: with names in lower case.
    """
    lines = [first_line]
    for name, value in headers:
        if name == b"connection":
            tokens = (token.strip() for token in value.split(b","))
            value = b", ".join(token for token in tokens if token.lower() not in _ASKING)
        if name not in _ASKING and (value or name != b"connection"):
            lines.append(b"%s: %s" % (name, value))
    return b"\r\n".join((*lines, b"", b""))
