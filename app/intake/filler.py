"""Tells a PNG with too few rows from one whose last rows are black.

Pillow takes the end of a compressed stream for the end of the picture and leaves the rows that are missing as
they were. So those of the last rows that a decoder writes last are filled with noise first: where it is still
there afterwards, nothing was decoded over it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from PIL import Image

from app.intake.refusals import EndsEarlyError

_ROWS = 2
"""The last written is the last row, or in an interlaced picture the last odd one."""


def load_whole(image: Image.Image, reopen: Callable[[], Image.Image]) -> Image.Image:
    """Decode an opened PNG, and return it.

    Args:
        image: opened and not decoded.
        reopen: opens the same bytes again; called only where rows seem to be missing.

    Raises:
        EndsEarlyError: rows are missing.
        Exception: anything else that Pillow raises on damaged bytes.
    """
    noise = os.urandom(image.width * _ROWS)
    if _written_over(image, noise):
        return image
    again = reopen()  # in a narrow picture of one bit the noise may be what the picture shows
    if _written_over(again, bytes(255 - byte for byte in noise)):
        return again
    raise EndsEarlyError


def _written_over(image: Image.Image, noise: bytes) -> bool:
    """Decode over noise; whether none of the last rows still holds it."""
    first = image.height - _ROWS
    pattern = Image.frombytes("L", (image.width, _ROWS), noise).convert(image.mode)
    canvas = Image.new(image.mode, image.size)
    canvas.paste(pattern, (0, first))
    image.im = canvas.im
    image.load()
    return all(_row(image, first + at) != _row(pattern, at) for at in range(_ROWS))


def _row(image: Image.Image, y: int) -> bytes:
    return image.crop((0, y, image.width, y + 1)).tobytes()
