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


async def ref_of(image: bytes | ImageRef) -> ImageRef:
    """The reference of bytes that are here."""
    if isinstance(image, ImageRef):
        return image

    async def load() -> bytes:
        return image

    if len(image) <= HASH_INLINE_BYTES:
        return ImageRef(_digest(image), len(image), load)
    return ImageRef(await asyncio.to_thread(_digest, image), len(image), load)


def _digest(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()
