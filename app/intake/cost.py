"""What a picture will cost a worker, estimated from its header before anything is decoded.

The figures are CPU milliseconds, measured on pictures of 4 to 67 megapixels and rounded up. They need not be
exact: they let a queue tell a picture that takes seconds from one that takes milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

UNIT_MS = 50.0
"""Work that has the price 1: about a photo of 1.5 megapixels, and more than most requests need."""
COSTLY = 10
"""Pictures of this price or more are kept from taking all threads, and all memory, of a worker."""
MAX_WORK_MS = 20_000.0
"""More is refused: of the sizes that are read, only pictures made for it take so long."""
PREPARE_MS = 16.0
"""Per megapixel: hashing the pixels, and scaling them to what the model sees."""
SCAN_MS = 0.6
"""Per megapixel, for each further scan of a JPEG: it visits all coefficients, however short it is."""
TILE_MS = 0.05
"""For each part of an image that is decoded on its own."""

_DECODE_MS = {"JPEG": 10.0, "MPO": 10.0, "BMP": 10.0, "GIF": 14.0, "PNG": 14.0, "TIFF": 18.0, "WEBP": 30.0}
"""Per megapixel, by format."""
_ELSE_DECODE_MS = 40.0
_BYTES_MS = {"JPEG": 15.0, "MPO": 15.0, "HEIF": 50.0, "AVIF": 50.0}
"""Per megabyte of the file, by format."""
_ELSE_BYTES_MS = 5.0
_CONVERT_MS = {"RGB": 3.0, "L": 4.0, "1": 4.0, "P": 8.0, "CMYK": 8.0, "I": 30.0, "F": 50.0}
"""Per megapixel, by Pillow's mode: what it takes to become RGB of 8 bits on white."""
_ELSE_CONVERT_MS = 25.0
_PROFILE_MS = 20.0
_PEAK_BYTES = {"I": 28, "F": 28, "RGBA": 16, "LA": 16, "PA": 16}
"""Per pixel while it is decoded, all copies together; what preparing takes later is less."""
_ELSE_PEAK_BYTES = 14
_OWN_BUFFER_BYTES = 8
"""Per pixel more for decoders that hand over a whole picture of their own."""
_OWN_BUFFER = frozenset({"WEBP", "HEIF", "AVIF"})


@dataclass(frozen=True, slots=True)
class Cost:
    """What a picture takes of a worker.

    Attributes:
        price: its work, in units of an ordinary picture's, which has 1.
        memory: bytes at most while it is decoded and prepared; 0 where nobody estimated them.
    """

    price: int = 1
    memory: int = 0

    @property
    def costly(self) -> bool:
        """Whether it takes so much longer than others that they must not wait for it."""
        return self.price >= COSTLY


ORDINARY = Cost()


def cost_of(image: Image.Image, format: str, data: bytes, scans: int = 1) -> Cost:
    """The cost of an image that is opened and not loaded.

    Args:
        data: its bytes.
        scans: of a JPEG.
    """
    pixels = image.width * image.height
    peak = _PEAK_BYTES.get(image.mode, _ELSE_PEAK_BYTES) + _OWN_BUFFER_BYTES * (format in _OWN_BUFFER)
    return Cost(_price(_work_ms(image, format, data, scans)), pixels * peak + len(data))


def cost_of_wide(size: tuple[int, int], decoded: int, parts: Sequence[int], bytes_in_all: int) -> Cost:
    """The cost of an image that Pillow does not decode.

    Args:
        size: width and height in pixels.
        decoded: bytes of its samples.
        parts: bytes of each part that is decoded on its own; several may share theirs.
        bytes_in_all: of the file.
    """
    pixels = size[0] * size[1]
    pixels_ms = pixels / 1e6 * (PREPARE_MS + 3 * _DECODE_MS["TIFF"] + _CONVERT_MS["F"])
    bytes_ms = max(bytes_in_all, sum(parts)) / 1e6 * _ELSE_BYTES_MS
    memory = pixels * _PEAK_BYTES["F"] + 2 * decoded + bytes_in_all
    return Cost(_price(pixels_ms + bytes_ms + len(parts) * TILE_MS), memory)


def unknown_cost(width: int, height: int, size: int) -> Cost:
    """The cost where only the size in pixels and in bytes is known: that of the dearest usual kind."""
    megapixels = width * height / 1e6
    pixels_ms = megapixels * (PREPARE_MS + _ELSE_DECODE_MS + _ELSE_CONVERT_MS)
    bytes_ms = size / 1e6 * max(_BYTES_MS.values())
    return Cost(_price(pixels_ms + bytes_ms), width * height * max(_PEAK_BYTES.values()) + size)


def takes_too_long(cost: Cost) -> bool:
    """Whether an image must be refused for the work it would make."""
    return cost.price > MAX_WORK_MS / UNIT_MS


def _price(work_ms: float) -> int:
    return max(1, math.floor(work_ms / UNIT_MS))


def _work_ms(image: Image.Image, format: str, data: bytes, scans: int) -> float:
    decode_ms = _DECODE_MS.get(format, _ELSE_DECODE_MS)
    if image.info.get("interlace"):
        decode_ms *= 2
    if _deep(image):
        decode_ms *= 3
    convert_ms = _CONVERT_MS.get(image.mode, _ELSE_CONVERT_MS)
    if "transparency" in image.info:
        convert_ms += _ELSE_CONVERT_MS
    if image.info.get("icc_profile"):
        convert_ms += _PROFILE_MS
    per_megapixel = PREPARE_MS + decode_ms + convert_ms + SCAN_MS * _extra_scans(image, data, scans)
    megapixels = image.width * image.height / 1e6
    bytes_ms = _read_bytes(image, data) / 1e6 * _BYTES_MS.get(format, _ELSE_BYTES_MS)
    return megapixels * per_megapixel + bytes_ms + _parts(image) * TILE_MS


def _deep(image: Image.Image) -> bool:
    """Whether its samples have 16 bits: Pillow's raw mode tells before the mode does."""
    arguments: Any = image.tile[0][3] if getattr(image, "tile", None) else ""
    raw = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    return isinstance(raw, str) and "16" in raw


def _extra_scans(image: Image.Image, data: bytes, scans: int) -> int:
    """Scans of a JPEG beyond one of each component; the parts of a TIFF have one each."""
    if image.format == "TIFF" and image.info.get("compression") in ("jpeg", "tiff_jpeg"):
        return max(0, _scans(data) - _parts(image))
    return max(0, scans - 3)


def _scans(data: bytes) -> int:
    """Start-of-scan markers: within compressed data FF never stands before DA."""
    octets = np.frombuffer(data, np.uint8)
    return int(np.count_nonzero(octets[:-1][octets[1:] == 0xDA] == 0xFF))


def _parts(image: Image.Image) -> int:
    """Strips or tiles, as far as the header tells; several may share their bytes."""
    return max(len(_part_sizes(image)), len(getattr(image, "tile", ())))


def _read_bytes(image: Image.Image, data: bytes) -> int:
    """Compressed bytes that are read: every strip and tile of a TIFF says how many, and they may overlap."""
    sizes = _part_sizes(image)
    return max(len(data), sum(min(size, len(data)) for size in sizes))


def _part_sizes(image: Image.Image) -> tuple[int, ...]:
    tags = getattr(image, "tag_v2", None)
    if image.format != "TIFF" or tags is None:
        return ()
    sizes = tags.get(325) or tags.get(279) or ()
    sizes = sizes if isinstance(sizes, tuple) else (sizes,)
    return tuple(size for size in sizes if isinstance(size, int) and size > 0)
