"""Tells a picture with too few rows from one whose last rows are black.

Pillow takes the end of a compressed stream for the end of the picture and leaves the rows that are missing as
they were. So those of the last rows that a decoder writes last are filled with noise first: where it is still
there afterwards, nothing was decoded over it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from PIL import Image

from app.intake.refusals import EndsEarlyError

WATCHED = frozenset({"PNG", "GIF"})
"""Formats whose decoders in Pillow stop without an error."""
_ROWS = 2
"""The last written is the last row, or in an interlaced picture the last odd one."""


def load_whole(image: Image.Image, reopen: Callable[[], Image.Image]) -> Image.Image:
    """Decode an opened image of a watched format, and return it.

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
    left, top, right, bottom = image.tile[0].extents if image.tile else (0, 0, *image.size)
    box = (left, max(top, bottom - _ROWS), right, bottom)
    grey = Image.frombytes("L", (image.width, _ROWS), noise).crop((0, 0, right - left, bottom - box[1]))
    clear = getattr(image, "_frame_transparency", None)
    canvas = Image.new(image.mode, image.size, 0 if clear is None else clear)
    if clear is not None:
        image._frame_transparency = None  # or the canvas would be replaced by an empty one
    pattern = grey.convert(image.mode)
    canvas.paste(pattern, box)
    before = [pattern.crop((0, y, pattern.width, y + 1)).tobytes() for y in range(pattern.height)]
    image.im = canvas.im
    image.load()
    last = image.crop(box)
    after = [last.crop((0, y, last.width, y + 1)).tobytes() for y in range(last.height)]
    return all(old != new for old, new in zip(before, after, strict=True))
