"""What a key looks like: `pb_` and eight characters to recognise it by, then 256 random bits."""

from __future__ import annotations

import hashlib
import secrets
import string

PREFIX_CHARS = 11
_ALPHABET = string.ascii_letters + string.digits


def make_key() -> str:
    """A new key, such as `pb_k3J9xQ2a_7bX...`. A double click selects all of it."""
    return f"pb_{_random(8)}_{_random(43)}"


def prefix_of(key: str) -> str:
    """The part that may be shown and logged."""
    return key[:PREFIX_CHARS]


def digest_of(key: str) -> str:
    """What the database keeps: SHA-256, in hexadecimal."""
    return hashlib.sha256(key.encode()).hexdigest()


def _random(count: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(count))
