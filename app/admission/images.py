"""An image by name: most requests about one find it in Redis already."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

HASH_INLINE_BYTES = 256 * 1024
"""Hashing more than this goes to another thread."""


@dataclass(frozen=True, slots=True)
class ImageRef:
    """An image known by the hash of its original bytes; `load` gets them when Redis does not have them."""

    sha256: str
    size: int
    load: Callable[[], Awaitable[bytes]]


async def name_of(image: bytes | ImageRef) -> tuple[str, int]:
    """SHA-256 and size of the original bytes."""
    if isinstance(image, ImageRef):
        return image.sha256, image.size
    if len(image) <= HASH_INLINE_BYTES:
        return _digest(image), len(image)
    return await asyncio.to_thread(_digest, image), len(image)


def _digest(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()
