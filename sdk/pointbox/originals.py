"""The file behind a PIL image, while the image is nothing else than that file."""

from __future__ import annotations

import os
from io import BufferedRandom, BufferedReader, BytesIO, FileIO

from PIL import Image, ImageFile

FORMATS = frozenset({"PNG", "TIFF", "BMP"})
"""Those in which Pillow's pixels may say less than the file: 16 bits per colour, white as zero, and more. The
service reads all of them."""
MAX_BYTES = 16 << 20
"""A longer file may not fit into a request; encoded anew, it may."""


def original(image: Image.Image) -> bytes | None:
    """The bytes of the file that `image` was opened from, None where it may have been changed since.

    An image that Pillow has not decoded yet cannot have been changed. Its position in the file is left alone.
    """
    if not isinstance(image, ImageFile.ImageFile) or image.format not in FORMATS:
        return None
    if not image.tile or image.tell() != 0:  # decoded, or another page
        return None
    try:
        data = _content(image.fp)
    except (OSError, ValueError):  # closed
        return None
    return data if data and _is_whole(image, data) else None


def _content(file: object) -> bytes | None:
    if isinstance(file, BytesIO):
        return file.getvalue() if file.getbuffer().nbytes <= MAX_BYTES else None
    # Nothing that merely looks like a file: within an archive, the picture begins elsewhere.
    if not isinstance(file, BufferedReader | BufferedRandom | FileIO) or not hasattr(os, "pread"):
        return None
    number = file.fileno()
    return os.pread(number, MAX_BYTES + 1, 0) if os.fstat(number).st_size <= MAX_BYTES else None


def _is_whole(image: Image.Image, data: bytes) -> bool:
    """Whether these bytes say all of it: `info` may have been changed."""
    with Image.open(BytesIO(data), formats=[str(image.format)]) as again:
        return (again.size, again.mode, again.info) == (image.size, image.mode, image.info)
