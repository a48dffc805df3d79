"""Image files opened on this side, to draw on them and to know their size."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

from PIL import Image, UnidentifiedImageError


def opened(data: bytes) -> Image.Image:
    """The image in a file.

    Raises:
        OSError: it cannot be read; for HEIC, the message says what to install.
    """
    try:
        return Image.open(BytesIO(data))
    except UnidentifiedImageError:
        if data[4:8] != b"ftyp":  # HEIC and its relatives, which Pillow alone does not read
            raise
    image: Image.Image = _heif_reader().open_heif(BytesIO(data)).to_pillow()
    return image


def _heif_reader() -> Any:
    try:
        return import_module("pillow_heif")
    except ImportError:
        raise UnidentifiedImageError(
            "To read HEIC on this side, pillow-heif is needed: pip install 'pointbox[heif]'."
        ) from None
